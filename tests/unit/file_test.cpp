#include "host/sys/file.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>
#include <string>

#include "host/sys/error.hpp"
#include "tests/unit/scratch.hpp"

using namespace lumelift;
using sys::Deadline;
using sys::FileLock;
using sys::Milliseconds;
using test::error_of;
using test::holds;

namespace {

int files_in(const test::fs::path& folder) {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : test::fs::directory_iterator(folder)) ++count;
  return count;
}

}  // namespace

TEST_CASE("read_file gives every byte up to the cap") {
  const test::Scratch scratch;
  const std::string content("a\0b\xff\n", 5);
  const auto file = scratch.write("f", content);
  CHECK(sys::read_file(file, 5) == content);
  CHECK(sys::read_file(scratch.write("empty", ""), 0).empty());
}

TEST_CASE("R124: what is no readable regular file is refused with path and reason, and a FIFO does not block") {
  const test::Scratch scratch;
  const auto fifo = scratch.path() / "fifo";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  test::fs::create_symlink("nowhere", scratch.path() / "dangling");
  const std::pair<test::fs::path, std::string> cases[] = {
      {scratch.path() / "missing", "No such file"},
      {scratch.path() / "dangling", "No such file"},
      {scratch.path(), "folder"},
      {fifo, "not a regular file"},
      {"/dev/null", "not a regular file"},
      {scratch.write("big", "123456"), "larger than 5 bytes"},
  };
  for (const auto& [path, reason] : cases) {
    CAPTURE(path);
    const auto error = error_of([&] { (void)sys::read_file(path, 5); });
    REQUIRE(error);
    CHECK(error->id() == "file-unreadable");
    CHECK(error->kind() == ErrorKind::usage);
    CHECK(holds(error->message(), path.string()));
    CHECK(holds(error->message(), reason));
  }
}

TEST_CASE("R08: the tail of a log is what it gained, at most its last bytes; a log that began anew counts whole") {
  const test::Scratch scratch;
  const auto log = scratch.write("log", "last week\ntoday\n");
  CHECK(sys::read_tail(log, 10, 100) == "today\n");
  CHECK(sys::read_tail(log, 0, 6) == "today\n");
  CHECK(sys::read_tail(log, 16, 100).empty());
  CHECK(sys::read_tail(log, 500, 100) == "last week\ntoday\n");
  CHECK(sys::read_tail(scratch.path() / "missing", 0, 100).empty());
  CHECK(sys::read_tail(scratch.path(), 0, 100).empty());
}

TEST_CASE("write_file replaces content and mode, whatever the umask, and leaves nothing beside it") {
  const test::Scratch scratch;
  const auto file = scratch.write("f", "old", 0644);
  const auto old_mask = ::umask(0077);
  sys::write_file(file, "new", 0755);
  ::umask(old_mask);
  CHECK(test::slurp(file) == "new");
  CHECK(test::mode_of(file) == 0755);
  CHECK(files_in(scratch.path()) == 1);
}

TEST_CASE("write_file replaces a symlink instead of following it") {
  const test::Scratch scratch;
  const auto victim = scratch.write("victim", "safe");
  test::fs::create_symlink(victim, scratch.path() / "link");
  sys::write_file(scratch.path() / "link", "new", 0600);
  CHECK(test::slurp(victim) == "safe");
  CHECK_FALSE(test::fs::is_symlink(scratch.path() / "link"));
}

TEST_CASE("write_file that cannot write leaves no half file and names the path") {
  const test::Scratch scratch;
  test::fs::create_directories(scratch.path() / "taken" / "x");
  for (const auto& path : {scratch.path() / "no" / "folder", scratch.path() / "taken"}) {
    const auto error = error_of([&] { sys::write_file(path, "new", 0600); });
    REQUIRE(error);
    CHECK(error->id() == "file-unwritable");
    CHECK(holds(error->message(), path.string()));
  }
  CHECK(files_in(scratch.path()) == 1);
}

TEST_CASE("the state folder is made with its parents, private, whatever the umask") {
  const test::Scratch scratch;
  const auto folder = scratch.path() / "a" / "b" / "c";
  const auto old_mask = ::umask(0);
  sys::ensure_private_folder(folder);
  ::umask(old_mask);
  for (const auto& path : {folder, folder.parent_path(), folder.parent_path().parent_path()}) {
    CHECK(test::mode_of(path) == 0700);
  }
  CHECK(files_in(folder) == 0);
  sys::ensure_private_folder(folder);
}

TEST_CASE("a state folder that others may read is tightened") {
  const test::Scratch scratch;
  ::chmod(scratch.path().c_str(), 0755);
  sys::ensure_private_folder(scratch.path());
  CHECK(test::mode_of(scratch.path()) == 0700);
}

TEST_CASE("a state folder that is not safely ours is refused with reason and fix") {
  const test::Scratch scratch;
  const auto open_folder = scratch.path() / "open";
  test::fs::create_directory(open_folder);
  ::chmod(open_folder.c_str(), 0777);
  test::fs::create_directory_symlink(open_folder, scratch.path() / "link");
  const auto file = scratch.write("file", "");
  const std::pair<test::fs::path, std::string> cases[] = {
      {open_folder, "others may write"},
      {scratch.path() / "link", "symbolic link"},
      {scratch.path() / "link" / "", "symbolic link"},
      {file, "not a folder"},
      {file / "below", "Not a directory"},
  };
  for (const auto& [path, reason] : cases) {
    CAPTURE(path);
    const auto error = error_of([&] { sys::ensure_private_folder(path); });
    REQUIRE(error);
    CHECK(error->id() == "state-folder-unusable");
    CHECK(holds(error->message(), reason));
    CHECK_FALSE(error->fix().empty());
  }
  CHECK(test::mode_of(open_folder) == 0777);
}

TEST_CASE("a state folder of somebody else is refused" * doctest::skip(::geteuid() != 0)) {
  const test::Scratch scratch;
  const auto folder = scratch.path() / "theirs";
  test::fs::create_directory(folder);
  ::chmod(folder.c_str(), 0700);
  REQUIRE(::chown(folder.c_str(), 12345, 12345) == 0);
  const auto error = error_of([&] { sys::ensure_private_folder(folder); });
  REQUIRE(error);
  CHECK(holds(error->message(), "belongs to user 12345"));
}

TEST_CASE("a state folder without write permission is refused" * doctest::skip(::geteuid() != 0)) {
  const test::Scratch scratch;
  ::chmod(scratch.path().c_str(), 0755);
  const auto folder = scratch.path() / "readonly";
  test::fs::create_directory(folder);
  REQUIRE(::chown(scratch.path().c_str(), 12345, 12345) == 0);
  const int status = test::in_child([&] {
    if (::setuid(12345) != 0) return 9;
    const auto error = error_of([&] { sys::ensure_private_folder(folder.parent_path() / "readonly" / "state"); });
    return error && error->id() == "state-folder-unusable" && holds(error->message(), "Permission denied") ? 0 : 1;
  });
  CHECK(status == 0);
}

TEST_CASE("R135: a lock held elsewhere: busy, with who holds it, since when and for what") {
  const test::Scratch scratch;
  const auto path = scratch.path() / "vm-a.lock";
  const FileLock held(path, "unlock of VM a", Deadline::in(Milliseconds{0}));
  CHECK(test::mode_of(path) == 0600);

  const sys::Stopwatch watch;
  const auto error = error_of([&] { const FileLock second(path, "rollback", Deadline::in(Milliseconds{150})); });
  REQUIRE(error);
  CHECK(watch.elapsed() >= Milliseconds{150});
  CHECK(watch.elapsed() < Milliseconds{3'000});
  CHECK(error->id() == "lock-held");
  CHECK(error->kind() == ErrorKind::busy);
  CHECK(holds(error->message(), "pid " + std::to_string(::getpid()) + " since 20"));
  CHECK(holds(error->message(), "unlock of VM a"));
  CHECK(holds(FileLock::holder(path).value_or(""), "unlock of VM a"));
}

TEST_CASE("R135: a lock that nobody holds has no holder, whatever its file says") {
  const test::Scratch scratch;
  CHECK_FALSE(FileLock::holder(scratch.path() / "missing"));
  CHECK_FALSE(FileLock::holder(scratch.write("old.lock", "pid 1 since 2001-01-01T00:00:00Z: something very long ago\n")));
  { const FileLock lock(scratch.path() / "old.lock", "short", Deadline::in(Milliseconds{0})); }
  CHECK(holds(test::slurp(scratch.path() / "old.lock"), ": short\n"));
  CHECK_FALSE(holds(test::slurp(scratch.path() / "old.lock"), "long ago"));
  CHECK_FALSE(FileLock::holder(scratch.path() / "old.lock"));
}

TEST_CASE("R132: a lock goes with its process, however that ends") {
  const test::Scratch scratch;
  const auto path = scratch.path() / "vm.lock";
  sys::Pipe ready = sys::make_pipe();
  const pid_t owner = ::fork();
  if (owner == 0) {
    const FileLock lock(path, "crash", Deadline::in(Milliseconds{0}));
    [[maybe_unused]] const auto ignored = ::write(ready.write.get(), "!", 1);
    ::pause();
    ::_exit(0);
  }
  char byte = 0;
  REQUIRE(::read(ready.read.get(), &byte, 1) == 1);
  CHECK(holds(FileLock::holder(path).value_or(""), "pid " + std::to_string(owner)));
  ::kill(owner, SIGKILL);
  const FileLock mine(path, "after the crash", Deadline::in(Milliseconds{2'000}));
  ::waitpid(owner, nullptr, 0);
  CHECK(holds(FileLock::holder(path).value_or(""), "after the crash"));
}

TEST_CASE("a lock moves with its object and ends with it") {
  const test::Scratch scratch;
  const auto path = scratch.path() / "l";
  std::optional<FileLock> kept;
  {
    FileLock lock(path, "moved", Deadline::in(Milliseconds{0}));
    kept.emplace(std::move(lock));
  }
  CHECK(FileLock::holder(path));
  kept.reset();
  CHECK_FALSE(FileLock::holder(path));
}

TEST_CASE("a lock file that is a symlink is refused") {
  const test::Scratch scratch;
  const auto victim = scratch.write("victim", "safe");
  test::fs::create_symlink(victim, scratch.path() / "l");
  const auto error = error_of([&] { const FileLock lock(scratch.path() / "l", "x", Deadline::in(Milliseconds{0})); });
  REQUIRE(error);
  CHECK(test::slurp(victim) == "safe");
}
