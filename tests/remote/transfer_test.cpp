#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "host/sys/hash.hpp"
#include "remote/guest.hpp"
#include "remote/transfer.hpp"
#include "server.hpp"

using namespace lumelift;
using namespace lumelift::test;
using namespace std::chrono_literals;

namespace {

FileState state(std::string_view content, unsigned mode = 0644) {
  return {sys::sha256(content), mode, content.size()};
}

void put(const fs::path& file, std::string_view content, unsigned mode = 0644) {
  std::ofstream(file, std::ios::binary) << content;
  ::chmod(file.c_str(), mode);
}

std::string content(const fs::path& file) {
  return sys::read_file(file, 1u << 30);
}

unsigned mode_of(const fs::path& file) {
  struct stat about {};
  REQUIRE(::lstat(file.c_str(), &about) == 0);
  return about.st_mode & 07777;
}

ino_t inode(const fs::path& file) {
  struct stat about {};
  REQUIRE(::stat(file.c_str(), &about) == 0);
  return about.st_ino;
}

/// Every file below a folder with mode, inode and content.
std::string snapshot(const fs::path& folder) {
  std::vector<std::string> lines;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().filename() == ".zshenv") {
      continue;
    }
    auto line = fmt::format("{} {:o}", entry.path().string(), mode_of(entry.path()));
    if (entry.is_regular_file()) {
      line += fmt::format(" {} {}", inode(entry.path()), sys::sha256(content(entry.path())));
    }
    lines.push_back(line);
  }
  std::sort(lines.begin(), lines.end());
  return fmt::format("{}", fmt::join(lines, "\n"));
}

std::string bytes(std::size_t count) {
  std::string text(count, '\0');
  std::uint32_t state = 12345;
  for (auto& byte : text) {
    byte = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  }
  return text;
}

}  // namespace

TEST_CASE("R84: sizes around the packet, odd names, any umask") {
  const LabGuest lab(R"({"umask": "077", "zshenv": "echo noise; setopt noclobber"})");
  auto session = lab.connect();
  Transfer transfer(session);
  Guest guest(session);
  for (const std::size_t size : {0, 1, 29'999, 30'000, 30'001, 300'000, 5'000'000}) {
    INFO(size);
    const auto path = lab.home() + "/sized";
    const auto text = bytes(size);
    transfer.put_bytes(text, path, state(text, 0755));
    CHECK(content(path) == text);
    CHECK(mode_of(path) == 0755);
    CHECK(guest.look({path}, sys::Deadline::in(30s))[0].file == state(text, 0755));
    CHECK(transfer.read(path, 8u << 20) == text);
  }
  const auto folder = lab.home() + "/odd";
  fs::create_directory(folder);
  for (const auto* name : {"a b", "it's", "$(touch x)", "-rf", "a\\b", "new\nline", "\\x", "caf\xc3\xa9", "*", "~"}) {
    const auto path = folder + "/" + name;
    transfer.put_bytes(name, path, state(name));
    CHECK(content(path) == name);
    transfer.take_back(path, {});
  }
  for (const std::size_t length : {220, 221, 255}) {
    const auto path = folder + "/" + std::string(length, 'n');
    transfer.put_bytes("long", path, state("long"));
    transfer.put_bytes("longer", path, state("longer"));
    CHECK(content(path) == "longer");
    transfer.take_back(path, state("long"));
    transfer.take_back(path, {});
  }
  CHECK(snapshot(folder).empty());
  CHECK_FALSE(transfer.read(folder + "/none", 10));
  CHECK(error_id([&] { (void)transfer.read(lab.home() + "/sized", 10); }) == "guest-file-too-large");
}

TEST_CASE("R69: a replaced file gets another inode and comes back with its own") {
  const LabGuest lab;
  auto session = lab.connect();
  Transfer transfer(session);
  const auto path = lab.home() + "/lib";
  put(path, "former", 0640);
  const auto before = snapshot(lab.home());
  const auto old = inode(path);
  transfer.put_bytes("new", path, state("new", 0755));
  CHECK(inode(path) != old);
  const auto kept = [&](const std::string& text) { return Transfer::before_name(path, sys::sha256(text)); };
  CHECK(inode(kept("former")) == old);
  transfer.put_bytes("newer", path, state("newer"));
  CHECK(content(kept("former")) == "former");
  CHECK(content(kept("new")) == "new");
  transfer.tidy(path);
  CHECK(content(kept("former")) == "former");
  // Two replacements are taken back one after the other.
  transfer.take_back(path, state("new", 0755));
  transfer.tidy(path);
  CHECK(content(path) == "new");
  CHECK(mode_of(path) == 0755);
  transfer.take_back(path, state("former", 0640));
  transfer.tidy(path);
  CHECK(snapshot(lab.home()) == before);
  transfer.take_back(path, state("former", 0640));  // once more: nothing is left to do
  CHECK(snapshot(lab.home()) == before);
  // Not the file that is to come back, and nothing to come back to.
  CHECK(error_id([&] { transfer.take_back(path, state("other")); }) == "former-file-missing");
  CHECK(content(path) == "former");
}

TEST_CASE("every step of a put that stops half way is taken back without a trace") {
  const LabGuest lab;
  auto session = lab.connect();
  Transfer transfer(session);
  const auto path = lab.home() + "/lib";
  const auto part = Transfer::part_name(path), kept = Transfer::before_name(path, sys::sha256("former"));
  for (const bool existed : {false, true}) {
    for (int stage = 0; stage < 4; ++stage) {
      INFO(stage);
      if (existed) {
        put(path, "former", 0600);
      }
      const auto before = snapshot(lab.home());
      put(part, stage == 0 ? "ne" : "new");
      if (stage >= 2 && existed) {
        REQUIRE(::link(path.c_str(), kept.c_str()) == 0);
      }
      if (stage == 3) {
        REQUIRE(::rename(part.c_str(), path.c_str()) == 0);
      }
      transfer.take_back(path, existed ? std::optional(state("former", 0600)) : std::nullopt);
      transfer.tidy(path);
      CHECK(snapshot(lab.home()) == before);
      // Where nothing had happened to the file itself, tidying alone must do.
      if (stage < 3) {
        put(part, "ne");
        if (stage >= 2 && existed) {
          REQUIRE(::link(path.c_str(), kept.c_str()) == 0);
        }
        transfer.tidy(path);
        CHECK(snapshot(lab.home()) == before);
      }
      fs::remove(path);
    }
  }
}

TEST_CASE("a client that is killed at any moment leaves the former file or the complete new one") {
  const LabGuest lab;
  const auto path = lab.home() + "/model";
  const auto text = bytes(3'000'000);
  constexpr int rounds = 12;
  int committed = 0;
  sys::Stopwatch watch;
  {
    auto session = lab.connect();
    Transfer transfer(session);
    transfer.put_bytes(text, path, state(text));
    transfer.take_back(path, {});
  }
  const auto whole = watch.elapsed();
  for (int i = 0; i < rounds; ++i) {
    put(path, "former", 0640);
    const auto before = snapshot(lab.home());
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        auto session = lab.connect();
        Transfer(session).put_bytes(text, path, state(text));
      } catch (...) {
        ::_exit(1);
      }
      ::_exit(0);
    }
    if (i + 1 < rounds) {  // the last one may end by itself
      std::this_thread::sleep_for(whole * (i + 1) / rounds);
      ::kill(child, SIGKILL);
    }
    ::waitpid(child, nullptr, 0);
    auto session = lab.connect();
    Transfer transfer(session);
    transfer.tidy(path);
    const auto now = content(path);
    CHECK((now == "former" || now == text));
    committed += now == text;
    if (now == text) {
      transfer.take_back(path, state("former", 0640));
    }
    transfer.tidy(path);
    CHECK(snapshot(lab.home()) == before);
  }
  MESSAGE("complete in " << committed << " of " << rounds);
  CHECK(committed > 0);
  CHECK(committed < rounds);
}

TEST_CASE("R98: an interrupted upload leaves a session that can undo it") {
  const LabGuest lab;
  const auto path = lab.home() + "/model";
  put(path, "former");
  const auto before = snapshot(lab.home());
  const auto text = bytes(40'000'000);
  const pid_t child = ::fork();
  if (child == 0) {
    // Signals belong to a whole process, so this one is the test's own.
    sys::arm_signals();
    auto session = lab.connect();
    Transfer transfer(session);
    int answer = 1;
    try {
      const TempFolder folder;
      transfer.put_file(folder.write("model", text), path, state(text), [](std::uint64_t sent, std::uint64_t) {
        if (sent > 1'000'000) {
          ::raise(SIGINT);
        }
      });
    } catch (const sys::Interrupted&) {
      const sys::Shield shield;
      try {
        transfer.take_back(path, state("former"));
        transfer.tidy(path);
        answer = 0;
      } catch (const Error& error) {
        std::fprintf(stderr, "%s\n", joined(error).c_str());
      }
    } catch (const Error& error) {
      std::fprintf(stderr, "%s\n", joined(error).c_str());
    }
    ::_exit(answer);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(snapshot(lab.home()) == before);
}

TEST_CASE("a source that is not what was planned for is refused, and the part removed") {
  const LabGuest lab;
  auto session = lab.connect();
  Transfer transfer(session);
  const auto path = lab.home() + "/x";
  const TempFolder folder;
  const auto text = bytes(2'500'000);
  const auto source = folder.write("source", text);
  const auto before = snapshot(lab.home());
  const auto id = [&](const FileState& want) { return error_id([&] { transfer.put_file(source, path, want); }); };
  CHECK(id({state(text).sha256, 0644, text.size() - 1}) == "source-changed");
  CHECK(id({state(text).sha256, 0644, text.size() + 1}) == "source-changed");
  CHECK(id({state("other").sha256, 0644, text.size()}) == "source-changed");
  CHECK(error_id([&] { transfer.put_file(folder.path() / "none", path, state(text)); }) == "file-unreadable");
  CHECK(error_id([&] { transfer.put_file(folder.path(), path, state(text)); }) == "file-unreadable");
  CHECK(error_id([&] { transfer.put_bytes("x", lab.home() + "/no/x", state("x")); }) == "guest-folder-missing");
  std::this_thread::sleep_for(500ms);
  CHECK(snapshot(lab.home()) == before);
  std::vector<std::uint64_t> news;
  transfer.put_file(source, path, state(text), [&](std::uint64_t sent, std::uint64_t) { news.push_back(sent); });
  CHECK(content(path) == text);
  REQUIRE_FALSE(news.empty());
  CHECK(news.back() == text.size());
}

TEST_CASE("links are not followed") {
  const LabGuest lab;
  auto session = lab.connect();
  Transfer transfer(session);
  const auto own = lab.home() + "/.local/share/lumelift";
  fs::create_directories(own);
  fs::create_directory(lab.home() + "/elsewhere");
  put(lab.home() + "/precious", "precious");
  const auto id = [&](const std::string& path) { return error_id([&] { transfer.put_bytes("evil", path, state("evil")); }); };
  REQUIRE(::symlink((lab.home() + "/precious").c_str(), (own + "/lib").c_str()) == 0);
  CHECK(id(own + "/lib") == "guest-path-unsafe");
  CHECK(error_id([&] { transfer.take_back(own + "/lib", {}); }) == "guest-path-unsafe");
  REQUIRE(::symlink((lab.home() + "/elsewhere").c_str(), (own + "/sub").c_str()) == 0);
  CHECK(id(own + "/sub/lib") == "guest-path-unsafe");
  CHECK(id(lab.home() + "/elsewhere") == "guest-path-unsafe");
  const auto path = own + "/lib2";
  REQUIRE(::symlink((lab.home() + "/precious").c_str(), Transfer::part_name(path).c_str()) == 0);
  CHECK(id(path) == "none");
  CHECK(content(lab.home() + "/precious") == "precious");
  CHECK(fs::is_empty(lab.home() + "/elsewhere"));
  CHECK(id("relative") == "guest-path-unsafe");
}

TEST_CASE("R87: a full disk and a read-only folder are named") {
  const LabGuest lab(R"({"disk_kb": 3000})");
  auto session = lab.connect();
  Transfer transfer(session);
  const auto before = snapshot(lab.home());
  const auto text = bytes(6'000'000);
  const auto full = error_text([&] { transfer.put_bytes(text, lab.home() + "/big", state(text)); });
  INFO(full);
  CHECK(full.starts_with("guest-disk-full"));
  CHECK(full.find("5860 kB needed") != std::string::npos);
  CHECK(snapshot(lab.home()) == before);
  fs::create_directory(lab.home() + "/locked");
  ::chmod((lab.home() + "/locked").c_str(), 0555);
  const auto locked = error_text([&] { transfer.put_bytes("x", lab.home() + "/locked/x", state("x")); });
  CHECK(locked.starts_with("guest-read-only"));
  CHECK(locked.find("Permission denied") != std::string::npos);
}

TEST_CASE("R94: a checksum tool that is missing or babbles is no mismatch") {
  const LabGuest lab;
  auto session = lab.connect();
  Transfer transfer(session);
  const auto tool = lab.root() + "/usr/bin/shasum";
  const auto with = [&](const char* script) {
    fs::remove(tool);
    put(tool, script, 0755);
    return error_id([&] { transfer.put_bytes("x", lab.home() + "/x", state("x")); });
  };
  CHECK(with("#!/bin/sh\necho \\\\abc\n") == "transfer-unverified");
  CHECK(with("#!/bin/sh\nexit 1\n") == "transfer-unverified");
  CHECK(with("#!/bin/sh\nprintf '%064d  -\\n' 0\n") == "transfer-corrupt");
  CHECK(with("#!/bin/sh\necho warning; echo more\n") == "transfer-unverified");
  CHECK_FALSE(fs::exists(lab.home() + "/x"));
  CHECK_FALSE(fs::exists(Transfer::part_name(lab.home() + "/x")));
}
