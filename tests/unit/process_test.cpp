#include "host/sys/process.hpp"

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <string>

#include "host/sys/error.hpp"
#include "host/sys/fd.hpp"
#include "tests/unit/scratch.hpp"

using namespace lumelift;
using sys::Deadline;
using sys::Milliseconds;

namespace {

sys::Outcome sh(const std::string& script, Milliseconds limit = Milliseconds{10'000}) {
  return sys::run({.argv = {"/bin/sh", "-c", script}}, Deadline::in(limit));
}

bool alive(pid_t pid) {
  if (::kill(pid, 0) != 0) return false;
  // An orphan that has ended may stay a zombie until init looks.
  const std::string stat = test::slurp("/proc/" + std::to_string(pid) + "/stat");
  return stat.find(") Z") == std::string::npos;
}

bool gone_soon(pid_t pid) {
  for (int i = 0; i < 200 && alive(pid); ++i) ::usleep(10'000);
  return !alive(pid);
}

}  // namespace

TEST_CASE("run keeps the two streams apart and passes the exit status on") {
  const auto outcome = sh("echo out; echo err >&2; exit 3");
  CHECK(outcome.out == "out\n");
  CHECK(outcome.err == "err\n");
  CHECK(outcome.status == 3);
  CHECK_FALSE(outcome.signal);
  CHECK_FALSE(outcome.ok());
  CHECK(outcome.ending() == "exit status 3");
  CHECK(sh("exit 0").ok());
}

TEST_CASE("run: words reach the program as they are, without a shell") {
  const auto outcome = sys::run({.argv = {"printf", "%s|", "a b'c", "$HOME", "*", ""}}, Deadline::in(Milliseconds{5'000}));
  CHECK(outcome.out == "a b'c|$HOME|*||");
}

TEST_CASE("run: additions replace the environment's own values, the rest stays") {
  ::setenv("LUMELIFT_TEST_KEPT", "kept", 1);
  ::setenv("LUMELIFT_TEST_OLD", "old", 1);
  const auto outcome = sys::run({.argv = {"/bin/sh", "-c", "echo $LUMELIFT_TEST_KEPT $LUMELIFT_TEST_OLD; env | grep -c TEST_OLD"},
                                 .env = {{"LUMELIFT_TEST_OLD", "new"}}},
                                Deadline::in(Milliseconds{5'000}));
  CHECK(outcome.out == "kept new\n1\n");
}

TEST_CASE("run: a signal that ended the child is told apart from an exit") {
  const auto outcome = sh("kill -9 $$");
  CHECK(outcome.signal == 9);
  CHECK_FALSE(outcome.status);
  CHECK(outcome.ending() == "signal 9");
}

TEST_CASE("run: input of any length arrives; a child that does not read it ends as it likes") {
  std::signal(SIGPIPE, SIG_IGN);
  const std::string input(3'000'000, 'x');
  CHECK(sys::run({.argv = {"wc", "-c"}, .input = input}, Deadline::in(Milliseconds{10'000})).out.find("3000000") != std::string::npos);
  CHECK(sys::run({.argv = {"true"}, .input = input}, Deadline::in(Milliseconds{10'000})).ok());
  CHECK(sh("cat").out.empty());
}

TEST_CASE("run: output beyond the cap is drained and dropped") {
  const auto outcome =
      sys::run({.argv = {"/bin/sh", "-c", "head -c 5000000 /dev/zero; head -c 5000000 /dev/zero >&2; echo end >&2"}, .output_cap = 1000},
               Deadline::in(Milliseconds{20'000}));
  CHECK(outcome.ok());
  CHECK(outcome.truncated);
  CHECK(outcome.out.size() == 1000);
  CHECK(outcome.err.size() == 1000);
}

TEST_CASE("R12: a child that sleeps for ever and ignores TERM is killed with its group, and the message has the limit") {
  const test::Scratch scratch;
  const auto pids = scratch.path() / "pids";
  const sys::Stopwatch watch;
  const auto outcome = sh("trap '' TERM; echo begun; sh -c 'trap \"\" TERM; while :; do sleep 1; done' & echo $! $$ > " + pids.string() +
                              "; while :; do sleep 1; done",
                          Milliseconds{300});
  CHECK(outcome.timed_out);
  CHECK_FALSE(outcome.status);
  CHECK_FALSE(outcome.signal);
  CHECK(outcome.out == "begun\n");
  CHECK(outcome.ending() == "no answer within 0.3 s");
  CHECK(watch.elapsed() >= Milliseconds{2'300});
  CHECK(watch.elapsed() < Milliseconds{6'000});
  pid_t grandchild = 0, child = 0;
  std::ifstream(pids) >> grandchild >> child;
  REQUIRE(grandchild > 0);
  CHECK(gone_soon(grandchild));
  CHECK(gone_soon(child));
}

TEST_CASE("R12: a child that honours TERM is gone at once, with the grandchild that does not") {
  const test::Scratch scratch;
  const auto pids = scratch.path() / "pids";
  const sys::Stopwatch watch;
  const auto outcome = sh("sh -c 'trap \"\" TERM; while :; do sleep 1; done' & echo $! > " + pids.string() + "; wait", Milliseconds{300});
  CHECK(outcome.timed_out);
  CHECK(watch.elapsed() < Milliseconds{2'000});
  pid_t grandchild = 0;
  std::ifstream(pids) >> grandchild;
  REQUIRE(grandchild > 0);
  CHECK(gone_soon(grandchild));
}

TEST_CASE("R12: a grandchild that keeps the streams open does not prolong the wait, and lives on") {
  const test::Scratch scratch;
  const auto pids = scratch.path() / "pids";
  const sys::Stopwatch watch;
  const auto outcome = sh("sleep 30 & echo $! > " + pids.string() + "; echo said", Milliseconds{20'000});
  CHECK(outcome.ok());
  CHECK(outcome.out == "said\n");
  CHECK(watch.elapsed() < Milliseconds{3'000});
  pid_t grandchild = 0;
  std::ifstream(pids) >> grandchild;
  REQUIRE(grandchild > 0);
  CHECK(alive(grandchild));
  ::kill(grandchild, SIGKILL);
}

TEST_CASE("R12: a grandchild that writes without end does not hold us either") {
  const test::Scratch scratch;
  const auto pids = scratch.path() / "pids";
  const sys::Stopwatch watch;
  const auto outcome = sh("yes & echo $! > " + pids.string() + "; sleep 0.1", Milliseconds{20'000});
  CHECK(outcome.ok());
  CHECK(watch.elapsed() < Milliseconds{3'000});
  pid_t grandchild = 0;
  std::ifstream(pids) >> grandchild;
  CHECK(gone_soon(grandchild));
}

TEST_CASE("run: a child that closes its streams and goes on is still waited for") {
  const sys::Stopwatch watch;
  const auto outcome = sh("exec >&- 2>&-; sleep 0.3; exit 7");
  CHECK(outcome.status == 7);
  CHECK(watch.elapsed() >= Milliseconds{300});
}

TEST_CASE("run: a program that is not there, or is no program, is named with the fix") {
  const test::Scratch scratch;
  const auto no_program = scratch.write("data", "not a program", 0644);
  for (const std::string& program : {std::string("lumelift-no-such-tool"), no_program.string()}) {
    try {
      (void)sys::run({.argv = {program}}, Deadline::in(Milliseconds{1'000}));
      FAIL("ran " << program);
    } catch (const Error& error) {
      CHECK(error.id() == "host-tool-missing");
      CHECK(error.message().find(program) != std::string::npos);
      CHECK_FALSE(error.fix().empty());
    }
  }
}

TEST_CASE("run: the child gets no descriptor but its three streams, and its own group") {
  const sys::Pipe pipe = sys::make_pipe();
  struct stat info {};
  REQUIRE(::fstat(pipe.read.get(), &info) == 0);
  const auto listed = sh("ls -l /proc/self/fd").out;
  CHECK(listed.find(" 1 -> pipe:") != std::string::npos);
  CHECK(listed.find("pipe:[" + std::to_string(info.st_ino) + "]") == std::string::npos);
  CHECK(sh("read pid name state parent group rest < /proc/$$/stat; test $group = $$").ok());
}

TEST_CASE("run: an interrupt kills the group, reaps it and is passed on") {
  const test::Scratch scratch;
  const auto pids = scratch.path() / "pids";
  const int status = test::in_child([&] {
    sys::arm_signals();
    const pid_t parent = ::getpid();
    try {
      (void)sys::run({.argv = {"/bin/sh", "-c", "echo $$ > " + pids.string() + "; kill -INT " + std::to_string(parent) + "; sleep 30"}},
                     Deadline::in(Milliseconds{20'000}));
    } catch (const sys::Interrupted& interrupted) {
      return interrupted.signal == SIGINT && ::waitpid(-1, nullptr, WNOHANG) == -1 ? 0 : 1;
    }
    return 2;
  });
  CHECK(status == 0);
  pid_t child = 0;
  std::ifstream(pids) >> child;
  REQUIRE(child > 0);
  CHECK(gone_soon(child));
}

TEST_CASE("run: an observer sees each command and its ending") {
  std::string seen;
  sys::observe_runs(
      [&](const sys::Command& command, const sys::Outcome& outcome) { seen = sys::shown(command.argv) + " -> " + outcome.ending(); });
  (void)sh("exit 4");
  sys::observe_runs({});
  CHECK(seen == "/bin/sh -c 'exit 4' -> exit status 4");
}

TEST_CASE("a command is shown so that it could be pasted") {
  CHECK(sys::shown({"lume", "get", "my vm", "--format", "json"}) == "lume get 'my vm' --format json");
  CHECK(sys::shown({"x", "it's", ""}) == "x 'it'\\''s' ''");
}

TEST_CASE("run: a quick command costs milliseconds, not a polling slice") {
  Milliseconds best{1'000};
  for (int i = 0; i < 30; ++i) {
    const auto outcome = sys::run({.argv = {"true"}}, Deadline::in(Milliseconds{20'000}));
    REQUIRE(outcome.ok());
    best = std::min(best, outcome.elapsed);
  }
  CHECK(best < Milliseconds{15});
}

TEST_CASE("a companion talks over one socket and ends with its owner") {
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0);
  const sys::Fd ours(ends[0]);
  sys::Fd theirs(ends[1]);
  pid_t pid = 0;
  {
    sys::Companion companion({"sh", "-c", "echo $$; echo trouble >&2; exec cat"}, theirs);
    theirs.reset();
    std::string heard;
    std::array<char, 64> block;
    REQUIRE(::write(ours.get(), "ping\n", 5) == 5);
    while (heard.find("ping\n") == std::string::npos) {
      const auto got = ::read(ours.get(), block.data(), block.size());
      REQUIRE(got > 0);
      heard.append(block.data(), static_cast<std::size_t>(got));
    }
    pid = std::stoi(heard);
    CHECK(::kill(pid, 0) == 0);
    CHECK(companion.said() == "trouble\n");
  }
  CHECK(::kill(pid, 0) == -1);
  CHECK(test::error_of([&] { const sys::Companion none({"no-such-program"}, ours); })->id() == "host-tool-missing");
}
