#include "remote/interactive.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>

#include "host/sys/fd.hpp"
#include "tests/remote/server.hpp"

using namespace lumelift;
using namespace lumelift::test;

namespace {

sys::Deadline soon() {
  return sys::Deadline::in(sys::Milliseconds{20'000});
}

struct Heard {
  std::string out, err;
  Interaction with;
  Heard() {
    with.on_output = [this](std::string_view piece, bool is_err) { (is_err ? err : out) += piece; };
  }
};

}  // namespace

TEST_CASE("a command without input sees its end at once; streams and status are apart") {
  const Server server = Server::openssh();
  Session session = server.connect();
  Heard heard;
  const ExecResult result = session.interact("cat; echo out; echo err >&2; exit 7", heard.with, soon());
  CHECK(result.status == 7);
  CHECK(heard.out == "out\n");
  CHECK(heard.err == "err\n");
}

TEST_CASE("input follows as it comes, and its end") {
  const Server server = Server::openssh();
  Session session = server.connect();
  sys::Pipe pipe = sys::make_pipe();
  Heard heard;
  heard.with.input = pipe.read.get();
  int written = 0;
  heard.with.every = sys::Milliseconds{10};
  heard.with.on_wake = [&]() -> std::optional<sys::WindowSize> {
    // The next line goes out only when the last one has come back.
    if (std::count(heard.out.begin(), heard.out.end(), '\n') < written) {
      return std::nullopt;
    }
    if (written == 3) {
      pipe.write = sys::Fd();
    } else if (pipe.write.get() >= 0 && ::write(pipe.write.get(), "line\n", 5) == 5) {
      ++written;
    }
    return std::nullopt;
  };
  CHECK(session.interact("cat", heard.with, soon()).status == 0);
  CHECK(heard.out == "line\nline\nline\n");
}

TEST_CASE("an exit status that comes after both streams have ended is not lost") {
  const Server server = Server::openssh();
  Session session = server.connect();
  Heard heard;
  CHECK(session.interact("echo said; exec >&- 2>&-; sleep 0.3; exit 9", heard.with, soon()).status == 9);
  CHECK(heard.out == "said\n");
}

TEST_CASE("a terminal with the size that is asked for") {
  const Server server = Server::openssh();
  Session session = server.connect();
  Heard heard;
  heard.with.terminal = TerminalRequest{"xterm", {91, 33}};
  CHECK(session.interact("test -t 0 && test -t 1 && stty size", heard.with, soon()).status == 0);
  CHECK(heard.out == "33 91\r\n");
}

TEST_CASE("a terminal that changes its size says so to the command") {
  const Server server = Server::openssh();
  Session session = server.connect();
  sys::Pipe pipe = sys::make_pipe();
  Heard heard;
  heard.with.terminal = TerminalRequest{"xterm", {91, 33}};
  heard.with.input = pipe.read.get();
  heard.with.every = sys::Milliseconds{50};
  bool resized = false;
  heard.with.on_wake = [&]() -> std::optional<sys::WindowSize> {
    if (resized || heard.out.find("33 91") == std::string::npos) {
      return std::nullopt;
    }
    resized = true;
    return sys::WindowSize{100, 40};
  };
  const auto ending =
      session.interact("trap 'stty size; exit 5' WINCH; stty size; i=0; while [ $i -lt 80 ]; do sleep 0.1; i=$((i+1)); done", heard.with,
                       sys::Deadline::in(sys::Milliseconds{20'000}));
  CHECK(ending.status == 5);
  CHECK(heard.out.find("40 100") != std::string::npos);
}

TEST_CASE("short commands go over the same connection while a long one runs") {
  const Server server = Server::openssh();
  Session session = server.connect();
  Heard heard;
  heard.with.every = sys::Milliseconds{20};
  bool sent = false;
  heard.with.on_wake = [&]() -> std::optional<sys::WindowSize> {
    if (!sent && heard.out.ends_with("\n")) {
      sent = true;
      CHECK(session.exec("kill -TERM " + heard.out, soon()).status == 0);
    }
    return std::nullopt;
  };
  const ExecResult result = session.interact("echo $$; exec sleep 30", heard.with, soon());
  CHECK(result.signal == "TERM");
}

TEST_CASE("what the listener throws ends the command") {
  const Server server = Server::openssh();
  Session session = server.connect();
  Interaction with;
  with.on_output = [](std::string_view, bool) { throw Error(ErrorKind::failed, "enough", "enough"); };
  CHECK(error_id([&] { static_cast<void>(session.interact("while :; do echo y; done", with, soon())); }) == "enough");
  CHECK(session.exec("echo alive", soon()).out == "alive\n");
}
