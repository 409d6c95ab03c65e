#include "host/journal.hpp"

#include <doctest/doctest.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <vector>

#include "host/sys/error.hpp"
#include "tests/unit/scratch.hpp"

using namespace lumelift;
using sys::Deadline;
using sys::Milliseconds;
using test::error_of;
using test::holds;
using Access = Journal::Access;

namespace {

struct Folder : test::Scratch {
  [[nodiscard]] test::fs::path state() const { return path() / "state"; }
  [[nodiscard]] test::fs::path file() const { return state() / "journal.sqlite"; }
  [[nodiscard]] Journal open(Access access = Access::write) const { return {state(), access}; }
};

void sql(const test::fs::path& file, const char* statement) {
  sqlite3* handle = nullptr;
  REQUIRE(sqlite3_open(file.c_str(), &handle) == SQLITE_OK);
  REQUIRE(sqlite3_exec(handle, statement, nullptr, nullptr, nullptr) == SQLITE_OK);
  sqlite3_close(handle);
}

void wait_for(const std::vector<pid_t>& pids) {
  for (const pid_t pid : pids) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    CHECK(status == 0);
  }
}

/// Starts `body` in a process of its own; its result is the exit status.
template <typename Body>
pid_t start(Body body) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  try {
    ::_exit(body());
  } catch (const Error& error) {
    ::dprintf(2, "%s: %s\n", error.id().c_str(), error.message().c_str());
  }
  ::_exit(99);
}

}  // namespace

TEST_CASE("a run goes through its states, and its record stays") {
  const Folder folder;
  auto journal = folder.open();
  const RunId run = journal.begin("vm-a", "unlock");
  auto live = journal.live_runs("vm-a");
  REQUIRE(live.size() == 1);
  CHECK(live[0].id == run);
  CHECK(live[0].command == "unlock");
  CHECK(live[0].state == RunState::open);
  CHECK(live[0].started_at > 1'700'000'000);
  CHECK(live[0].ended_at == 0);
  CHECK(live[0].summary.empty());

  journal.set_run(run, RunState::committed, R"({"ok":true})");
  CHECK(journal.live_runs("vm-a")[0].state == RunState::committed);
  CHECK(journal.live_runs("vm-a")[0].ended_at >= live[0].started_at);
  journal.set_run(run, RunState::undoing);
  CHECK(journal.live_runs()[0].ended_at == 0);
  CHECK(journal.live_runs()[0].summary == R"({"ok":true})");
  journal.set_run(run, RunState::partial);
  CHECK(journal.live_runs().size() == 1);
  journal.set_run(run, RunState::undone);
  CHECK(journal.live_runs().empty());
  CHECK(journal.history().size() == 1);
  CHECK(journal.history("vm-b").empty());
}

TEST_CASE("runs are listed oldest first, by VM or all") {
  const Folder folder;
  auto journal = folder.open();
  const RunId first = journal.begin("a", "unlock"), second = journal.begin("b", "unlock"), third = journal.begin("a", "unlock");
  CHECK(journal.live_runs().size() == 3);
  const auto of_a = journal.live_runs("a");
  REQUIRE(of_a.size() == 2);
  CHECK(of_a[0].id == first);
  CHECK(of_a[1].id == third);
  CHECK(journal.history("b").front().id == second);
}

TEST_CASE("only an intended step can be amended, and only its text changes") {
  const Folder folder;
  auto journal = folder.open();
  const RunId run = journal.begin("a", "unlock");
  const int first = journal.intend(run, "first"), second = journal.intend(run, "second");
  journal.amend(run, second, "more");
  CHECK(journal.steps(run)[0].body == "first");
  CHECK(journal.steps(run)[1].body == "more");
  CHECK(journal.steps(run)[1].state == StepState::intended);
  journal.mark(run, first, StepState::done);
  CHECK(error_of([&] { journal.amend(run, first, "late"); })->id() == "journal-failed");
  CHECK(error_of([&] { journal.amend(run, 7, "none"); })->id() == "journal-failed");
  CHECK(journal.steps(run)[0].body == "first");
}

TEST_CASE("steps keep their order, their exact text and their state") {
  const Folder folder;
  auto journal = folder.open();
  const RunId run = journal.begin("a", "unlock"), other = journal.begin("b", "unlock");
  const std::string odd = "{\"path\":\"it's \\u0000 \xc3\xa4 \\\"x\\\"\"}";
  CHECK(journal.intend(run, odd) == 1);
  CHECK(journal.intend(other, "{}") == 1);
  CHECK(journal.intend(run, "") == 2);
  journal.mark(run, 2, StepState::kept);
  journal.mark(run, 1, StepState::done);
  const auto steps = journal.steps(run);
  REQUIRE(steps.size() == 2);
  CHECK(steps[0].body == odd);
  CHECK(steps[0].position == 1);
  CHECK(steps[0].state == StepState::done);
  CHECK(steps[1].body.empty());
  CHECK(steps[1].state == StepState::kept);
  CHECK(journal.steps(other)[0].state == StepState::intended);
  CHECK(journal.steps(4711).empty());
}

TEST_CASE("a run or step that is not there is an error, not silence") {
  const Folder folder;
  auto journal = folder.open();
  CHECK(error_of([&] { journal.set_run(7, RunState::undone); })->id() == "journal-failed");
  CHECK(error_of([&] { journal.mark(7, 1, StepState::done); })->id() == "journal-failed");
  CHECK(error_of([&] { (void)journal.intend(7, "{}"); })->id() == "journal-failed");
}

TEST_CASE("R111: claims of two VMs on one resource, and the original value outlives a second claim of the same VM") {
  const Folder folder;
  auto journal = folder.open();
  const RunId run = journal.begin("a", "unlock");
  (void)journal.intend(run, "{}", Claim{"preference", "a", "\"absent\"", 100});
  (void)journal.intend(run, "{}", Claim{"preference", "b", "\"absent\"", 200});
  (void)journal.intend(run, "{}", Claim{"preference", "a", "true", 300});
  auto claims = journal.claims("preference");
  REQUIRE(claims.size() == 2);
  CHECK(claims[0].vm == "b");
  CHECK(claims[1].vm == "a");
  CHECK(claims[1].before == "\"absent\"");
  CHECK(claims[1].since == 300);
  journal.release("preference", "b");
  journal.release("preference", "nobody");
  CHECK(journal.claims("preference").size() == 1);
  CHECK(journal.claims("other").empty());
}

TEST_CASE("an intent and its claim are one: neither without the other") {
  const Folder folder;
  auto journal = folder.open();
  CHECK(error_of([&] { (void)journal.intend(99, "{}", Claim{"preference", "a", "1", 1}); }));
  CHECK(journal.claims("preference").empty());
}

TEST_CASE("R20: pins belong to VMs; two VMs may have the same key") {
  const Folder folder;
  auto journal = folder.open();
  CHECK_FALSE(journal.pin("a"));
  journal.set_pin("b", "SHA256:x");
  journal.set_pin("a", "SHA256:x");
  journal.set_pin("a", "SHA256:y");
  CHECK(journal.pin("a")->fingerprint == "SHA256:y");
  REQUIRE(journal.pins().size() == 2);
  CHECK(journal.pins()[0].vm == "a");
  journal.remove_pin("a");
  CHECK_FALSE(journal.pin("a"));
  CHECK(journal.pin("b"));
}

TEST_CASE("everything is there when the journal is opened again") {
  const Folder folder;
  RunId run = 0;
  {
    auto journal = folder.open();
    run = journal.begin("a", "unlock");
    (void)journal.intend(run, "step", Claim{"r", "a", "b", 1});
    journal.set_pin("a", "f");
  }
  const auto journal = folder.open(Access::read);
  CHECK(journal.live_runs().size() == 1);
  CHECK(journal.steps(run).size() == 1);
  CHECK(journal.claims("r").size() == 1);
  CHECK(journal.pin("a"));
}

TEST_CASE("R132: what was said before kill -9 is there afterwards; what was not committed is not") {
  const Folder folder;
  const pid_t writer = ::fork();
  if (writer == 0) {
    auto journal = folder.open();
    const RunId run = journal.begin("a", "unlock");
    (void)journal.intend(run, "step");
    ::kill(::getpid(), SIGKILL);
  }
  ::waitpid(writer, nullptr, 0);
  CHECK(test::fs::exists(folder.file().string() + "-wal"));
  const auto reader = folder.open(Access::read);
  REQUIRE(reader.live_runs("a").size() == 1);
  CHECK(reader.steps(reader.live_runs("a")[0].id).size() == 1);
}

TEST_CASE("reading creates nothing: no folder, no file") {
  const Folder folder;
  auto journal = folder.open(Access::read);
  CHECK(journal.live_runs().empty());
  CHECK(journal.history().empty());
  CHECK(journal.steps(1).empty());
  CHECK(journal.claims("preference").empty());
  CHECK(journal.pins().empty());
  CHECK_FALSE(journal.pin("a"));
  CHECK_FALSE(test::fs::exists(folder.state()));
  CHECK(error_of([&] { (void)journal.begin("a", "unlock"); }));
}

TEST_CASE("a file in place of the folder is told to readers too, not taken for a history without entries") {
  const Folder folder;
  const auto file = folder.write("state", "mine");
  const auto error = error_of([&] { (void)folder.open(Access::read); });
  REQUIRE(error);
  CHECK(error->id() == "state-folder-unusable");
  CHECK(holds(error->message(), "not a folder"));
  CHECK(test::fs::is_regular_file(file));
}

TEST_CASE("a journal opened for reading refuses to write") {
  const Folder folder;
  { (void)folder.open().begin("a", "unlock"); }
  auto journal = folder.open(Access::read);
  CHECK(error_of([&] { (void)journal.begin("a", "unlock"); }));
  CHECK(error_of([&] { journal.remove_pin("a"); }));
  CHECK(journal.history().size() == 1);
}

TEST_CASE("folder and files are private whatever the umask") {
  const Folder folder;
  const auto old_mask = ::umask(0);
  {
    auto journal = folder.open();
    (void)journal.begin("a", "unlock");
    const auto lock = journal.lock_vm("a", "test", Deadline::in(Milliseconds{0}));
    CHECK(test::mode_of(folder.state()) == 0700);
    int files = 0;
    for (const auto& entry : test::fs::directory_iterator(folder.state())) {
      CAPTURE(entry.path());
      CHECK(test::mode_of(entry.path()) == 0600);
      ++files;
    }
    CHECK(files >= 4);  // database, its log and index, the locks
  }
  ::umask(old_mask);
}

TEST_CASE("a reader is not blocked by a writer in the middle of its work, nor the writer by it") {
  const Folder folder;
  { (void)folder.open().begin("a", "unlock"); }
  sqlite3* writer = nullptr;
  REQUIRE(sqlite3_open(folder.file().c_str(), &writer) == SQLITE_OK);
  REQUIRE(sqlite3_exec(writer, "BEGIN IMMEDIATE; DELETE FROM run", nullptr, nullptr, nullptr) == SQLITE_OK);
  const sys::Stopwatch watch;
  const auto reader = folder.open(Access::read);
  CHECK(reader.history().size() == 1);
  CHECK(watch.elapsed() < Milliseconds{1'000});
  REQUIRE(sqlite3_exec(writer, "COMMIT", nullptr, nullptr, nullptr) == SQLITE_OK);
  CHECK(reader.history().empty());
  sqlite3_close(writer);
}

TEST_CASE("a writer that never lets go: busy after ten seconds" * doctest::skip(::getenv("LUMELIFT_SLOW_TESTS") == nullptr)) {
  const Folder folder;
  auto journal = folder.open();
  sqlite3* writer = nullptr;
  REQUIRE(sqlite3_open(folder.file().c_str(), &writer) == SQLITE_OK);
  REQUIRE(sqlite3_exec(writer, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr) == SQLITE_OK);
  const auto error = error_of([&] { (void)journal.begin("a", "unlock"); });
  REQUIRE(error);
  CHECK(error->id() == "journal-busy");
  CHECK(error->kind() == ErrorKind::busy);
  sqlite3_close(writer);
}

TEST_CASE("a journal of a newer version is refused for reading and writing, and left as it is") {
  const Folder folder;
  { (void)folder.open().begin("a", "unlock"); }
  sql(folder.file(), "PRAGMA user_version = 2");
  for (const auto access : {Access::read, Access::write}) {
    const auto error = error_of([&] { (void)folder.open(access).history(); });
    REQUIRE(error);
    CHECK(error->id() == "journal-newer");
    CHECK(holds(error->message(), folder.file().string()));
  }
}

TEST_CASE("a database of somebody else, or a file that is none, is named and left alone") {
  const Folder folder;
  sys::ensure_private_folder(folder.state());
  SUBCASE("somebody else's") {
    sql(folder.file(), "CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)");
  }
  SUBCASE("no database") {
    std::ofstream(folder.file()) << std::string(5000, 'x');
  }
  const auto before = test::slurp(folder.file());
  for (const auto access : {Access::read, Access::write}) {
    const auto error = error_of([&] { (void)folder.open(access).history(); });
    REQUIRE(error);
    CHECK(error->id() == "journal-unreadable");
    CHECK(holds(error->message(), folder.file().string()));
    CHECK(holds(error->fix(), "move"));
  }
  CHECK(test::slurp(folder.file()) == before);
}

TEST_CASE("a damaged journal is reported wherever it was cut or overwritten, never half believed") {
  const Folder folder;
  {
    auto journal = folder.open();
    for (int i = 0; i < 40; ++i) {
      const RunId run = journal.begin("vm" + std::to_string(i), "unlock");
      (void)journal.intend(run, std::string(300, 'b'));
    }
  }
  const auto whole = test::slurp(folder.file());
  REQUIRE(whole.size() > 5 * 4096);
  const auto outcome = [&](const std::string& content) {
    std::ofstream(folder.file(), std::ios::binary | std::ios::trunc) << content;
    const auto error = error_of([&] {
      const auto journal = folder.open(Access::read);
      if (journal.history().size() != 40) throw Error(ErrorKind::failed, "half", "half believed");
    });
    return error ? error->id() : "ok";
  };
  CHECK(outcome(whole) == "ok");
  for (std::size_t cut = 1024; cut < whole.size(); cut += 1024) {
    CAPTURE(cut);
    CHECK(outcome(whole.substr(0, cut)) == "journal-unreadable");
  }
  for (std::size_t page = 1; page < whole.size() / 4096; ++page) {
    CAPTURE(page);
    auto bad = whole;
    std::fill_n(bad.begin() + static_cast<std::ptrdiff_t>(page * 4096), 4096, '\x5a');
    CHECK(outcome(bad) == "journal-unreadable");
  }
}

TEST_CASE("a read-only folder can still be read" * doctest::skip(::geteuid() != 0)) {
  const Folder folder;
  { (void)folder.open().begin("a", "unlock"); }
  ::chmod(folder.path().c_str(), 0755);
  ::chmod(folder.state().c_str(), 0555);
  ::chmod(folder.file().c_str(), 0444);
  const int status = test::in_child([&] {
    if (::setuid(12345) != 0) return 9;
    if (folder.open(Access::read).history().size() != 1) return 1;
    const auto error = error_of([&] { (void)folder.open(Access::write); });
    return error && error->id() == "state-folder-unusable" ? 0 : 2;
  });
  CHECK(status == 0);
}

TEST_CASE("a full disk: the call fails by name and what was recorded before stays") {
  const Folder folder;
  { (void)folder.open().begin("a", "unlock"); }
  const int status = test::in_child([&] {
    auto journal = folder.open();
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{200'000, 200'000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const auto error = error_of([&] { (void)journal.intend(1, std::string(400'000, 'x')); });
    return error && !error->fix().empty() && journal.steps(1).empty() ? 0 : 1;
  });
  CHECK(status == 0);
  CHECK(folder.open().live_runs("a").size() == 1);
}

TEST_CASE("R126: ten processes make and write one journal at once; nothing is lost and nobody fails") {
  const Folder folder;
  std::vector<pid_t> pids;
  for (int i = 0; i < 10; ++i) {
    pids.push_back(start([&folder, i] {
      for (int round = 0; round < 5; ++round) {
        auto journal = folder.open();
        const RunId run = journal.begin("vm" + std::to_string(i), "unlock");
        if (journal.intend(run, "step", Claim{"preference", "vm" + std::to_string(i), "1", 1}) != 1) return 1;
        journal.mark(run, 1, StepState::done);
        if (folder.open(Access::read).steps(run).size() != 1) return 2;
      }
      return 0;
    }));
  }
  wait_for(pids);
  const auto journal = folder.open();
  CHECK(journal.history().size() == 50);
  CHECK(journal.claims("preference").size() == 10);
}

TEST_CASE("R127: twenty processes pin twenty keys at once; all twenty are there") {
  const Folder folder;
  std::vector<pid_t> pids;
  for (int i = 0; i < 20; ++i) {
    pids.push_back(start([&folder, i] {
      folder.open().set_pin("vm" + std::to_string(i), "SHA256:" + std::to_string(i));
      return 0;
    }));
  }
  wait_for(pids);
  CHECK(folder.open(Access::read).pins().size() == 20);
}

TEST_CASE("VM locks: one per VM, none in each other's way, for any name, and the preference has its own") {
  const Folder folder;
  const auto journal = folder.open();
  const Deadline now = Deadline::in(Milliseconds{0});
  const std::string long_a(255, 'n'), long_b = std::string(254, 'n') + "m", hostile = "../x\n\x1b[31m";
  std::vector<sys::FileLock> locks;
  for (const auto& name : {std::string("a"), std::string("a_b"), std::string("a:b"), std::string("preference"), long_a, long_b,
                           std::string(255, ':'), hostile}) {
    CAPTURE(name);
    locks.push_back(journal.lock_vm(name, "test", now));
    const auto error = error_of([&] { (void)journal.lock_vm(name, "again", now); });
    REQUIRE(error);
    CHECK(error->id() == "lock-held");
    CHECK(error->kind() == ErrorKind::busy);
  }
  locks.push_back(journal.lock_preference("test", now));
  CHECK(error_of([&] { (void)journal.lock_preference("again", now); }));
  CHECK(test::fs::exists(folder.state() / "vm-a.lock"));
  CHECK(test::fs::exists(folder.state() / "preference.lock"));
  CHECK_FALSE(test::fs::exists(folder.path() / "x"));
}

TEST_CASE("R135: reading goes on while a VM is locked") {
  const Folder folder;
  const auto journal = folder.open();
  const auto lock = journal.lock_vm("a", "long work", Deadline::in(Milliseconds{0}));
  const sys::Stopwatch watch;
  CHECK(folder.open(Access::read).history().empty());
  CHECK(watch.elapsed() < Milliseconds{1'000});
  CHECK(holds(sys::FileLock::holder(folder.state() / "vm-a.lock").value_or(""), "long work"));
}
