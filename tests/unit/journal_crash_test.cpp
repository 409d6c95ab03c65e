#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "host/journal.hpp"
#include "host/sys/error.hpp"
#include "tests/unit/scratch.hpp"

using namespace lumelift;
namespace fs = std::filesystem;

namespace {

struct Folder : test::Scratch {
  Folder() { fs::permissions(path(), fs::perms::owner_all); }
};

void write(const fs::path& file, std::string_view bytes) {
  std::ofstream(file, std::ios::binary | std::ios::trunc).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

/// Everything that the journal tells, as text.
std::string told(const Journal& journal) {
  std::string text;
  for (const auto& run : journal.history()) {
    text += run.vm + " " + shown(run.state) + "\n";
    for (const auto& step : journal.steps(run.id)) {
      text += std::to_string(step.position) + step.body + shown(step.state) + "\n";
    }
  }
  for (const auto& claim : journal.claims("pref")) {
    text += claim.vm + claim.before + "\n";
  }
  return text;
}

/// What a cut journal tells, or the id of the error.
std::string told_after(const fs::path& folder, Journal::Access access) {
  try {
    return told(Journal(folder, access));
  } catch (const Error& error) {
    return "error " + error.id();
  }
}

/// A journal at rest (its log flushed) or in the middle of its work, with every state that it passed through.
struct Recorded {
  std::string file, log;
  std::vector<std::string> states;
};

Recorded record(bool at_rest) {
  const Folder folder;
  Recorded recorded;
  {
    Journal journal(folder.path(), Journal::Access::write);
    const auto note = [&] { recorded.states.push_back(told(journal)); };
    note();
    for (const char* vm : {"a", "b"}) {
      const RunId run = journal.begin(vm, "unlock");
      note();
      const int position = journal.intend(run, "{\"kind\":\"preference\"}", Claim{"pref", vm, "{\"type\":\"absent\"}", 1});
      note();
      journal.mark(run, position, StepState::done);
      note();
      journal.set_run(run, RunState::committed, "{}");
      note();
    }
    if (!at_rest) {
      recorded.file = test::slurp(folder.path() / "journal.sqlite");
      recorded.log = test::slurp(folder.path() / "journal.sqlite-wal");
    }
  }
  if (at_rest) {
    recorded.file = test::slurp(folder.path() / "journal.sqlite");
  }
  return recorded;
}

bool known(const std::vector<std::string>& states, const std::string& text) {
  return std::find(states.begin(), states.end(), text) != states.end();
}

}  // namespace

TEST_CASE("a journal whose log is cut at any byte opens with a state that it had") {
  const Recorded recorded = record(false);
  REQUIRE(recorded.log.size() > 40'000);
  const Folder folder;
  std::string last;
  std::size_t different = 0;
  for (std::size_t length = 0; length <= recorded.log.size(); ++length) {
    // Every byte around a frame's ends, where the outcome changes; within a page every 509th must do.
    const std::size_t in_frame = length < 32 ? 0 : (length - 32) % 4120;
    if (in_frame > 28 && in_frame < 4116 && length % 509 != 0) {
      continue;
    }
    write(folder.path() / "journal.sqlite", recorded.file);
    write(folder.path() / "journal.sqlite-wal", std::string_view(recorded.log).substr(0, length));
    fs::remove(folder.path() / "journal.sqlite-shm");
    const std::string text = told_after(folder.path(), Journal::Access::read);
    CAPTURE(length);
    CHECK(known(recorded.states, text));
    different += text != last;
    last = text;
  }
  CHECK(last == recorded.states.back());
  CHECK(different >= 6);
}

TEST_CASE("a journal whose file is cut at any byte is refused, or nothing but unused bytes was cut off") {
  const Recorded recorded = record(true);
  REQUIRE(recorded.file.size() % 4096 == 0);
  const Folder folder;
  for (const auto access : {Journal::Access::read, Journal::Access::write}) {
    // To SQLite a file of one byte is an empty one, as good as the file that a crash leaves at the very first start.
    for (std::size_t length = 2; length < recorded.file.size(); ++length) {
      const std::size_t in_page = length % 4096;
      if (in_page > 20 && in_page < 4093 && length % 509 != 0) {
        continue;
      }
      write(folder.path() / "journal.sqlite", std::string_view(recorded.file).substr(0, length));
      fs::remove(folder.path() / "journal.sqlite-wal");
      fs::remove(folder.path() / "journal.sqlite-shm");
      CAPTURE(length);
      const std::string text = told_after(folder.path(), access);
      // The last page of a table without rows holds nothing behind its first bytes.
      const bool in_last_page = length > recorded.file.size() - 4096;
      CHECK((text == "error journal-unreadable" || (in_last_page && text == recorded.states.back())));
    }
  }
}

TEST_CASE("a damaged byte anywhere is refused or changes nothing that is told") {
  const Recorded recorded = record(true);
  const Folder folder;
  std::size_t silent = 0, changed = 0;
  for (std::size_t at = 0; at < recorded.file.size(); at += 41) {
    std::string damaged = recorded.file;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x55);
    write(folder.path() / "journal.sqlite", damaged);
    fs::remove(folder.path() / "journal.sqlite-wal");
    fs::remove(folder.path() / "journal.sqlite-shm");
    const std::string text = told_after(folder.path(), Journal::Access::read);
    if (text.starts_with("error ")) {
      continue;
    }
    ++(text == recorded.states.back() ? silent : changed);
  }
  // A flipped byte within a text cannot be told from another text; everything else is noticed.
  CHECK(silent > 0);
  CHECK(changed * 20 < recorded.file.size() / 41);
}
