#include "cli/guest_run.hpp"

#include <doctest/doctest.h>

#include "cli/guest_verdict.hpp"
#include "host/sys/error.hpp"
#include "host/sys/process.hpp"
#include "host/sys/terminal.hpp"
#include "remote/inspect.hpp"

using namespace lumelift;

TEST_CASE("the launch line becomes the program, scrubbed, in its folder, and tells its pid first") {
  const Launch launch{{"/bin/sh", "-c", "echo $$; /usr/bin/env; pwd; echo \"$1\"", "sh", "it's \"$x\" \n*"}, {{"OWN", "a'b c"}}, "/"};
  for (const char* shell : {"/bin/sh", "/bin/bash", "/usr/bin/zsh"}) {
    const auto done = sys::run({.argv = {shell, "-c", launch_line(launch, "feed")},
                                .env = {{"DYLD_MADE_UP", "1"},
                                        {"LUMELIFT_TRACE", "x"},
                                        {"LUME_METAL_APPLE_FAMILY_MAX", "1009"},
                                        {"KEPT", "two\nexport DYLD_x y"}}},
                               sys::Deadline::in(sys::Milliseconds{10'000}));
    REQUIRE(done.ok());
    MarkCutter cutter("feed");
    const std::string own = cutter.feed(done.out);
    REQUIRE(cutter.pid());
    CHECK(own.starts_with(std::to_string(*cutter.pid()) + "\n"));
    CHECK(own.find("OWN=a'b c\n") != own.npos);
    CHECK(own.find("KEPT=two\n") != own.npos);
    CHECK(own.find("\nDYLD_") == own.npos);
    CHECK(own.find("\nLUME") == own.npos);
    CHECK(own.ends_with("\n/\nit's \"$x\" \n*\n"));
  }
}

TEST_CASE("what env would take for an option or a variable is refused") {
  for (const char* program : {"", "-x", "A=b"}) {
    CHECK_THROWS_AS(static_cast<void>(launch_line({{program}, {}, {}}, "t")), Error);
  }
}

TEST_CASE("the mark is found wherever the pieces are cut") {
  const std::string text = "from a start file\n\036feed 4711\036first\0bytes\036";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    MarkCutter cutter("feed");
    std::string own = cutter.feed(text.substr(0, cut));
    own += cutter.feed(text.substr(cut));
    own += cutter.rest();
    CHECK(own == "first");
    CHECK(cutter.pid() == 4711);
  }
  MarkCutter cutter("feed");
  CHECK(cutter.feed("no mark at all\n").empty());
  CHECK(cutter.rest() == "no mark at all\n");
  CHECK_FALSE(cutter.pid());
}

TEST_CASE("bytes behind the mark are the program's, marks of its own among them") {
  const std::string text("\036feed 1\036\0\036feed 2\036", 17);
  MarkCutter cutter("feed");
  CHECK(cutter.feed(text) == text.substr(8));
  CHECK(cutter.feed("\036feed 3\036") == "\036feed 3\036");
  CHECK(cutter.pid() == 1);
}

TEST_CASE("the status that is passed on") {
  const auto status = [](std::optional<int> code, std::string signal) {
    RunEnding ending;
    ending.result.status = code;
    ending.result.signal = std::move(signal);
    return ending.status();
  };
  CHECK(status(0, "") == 0);
  CHECK(status(255, "") == 255);
  CHECK(status({}, "KILL") == 137);
  CHECK(status({}, "TERM") == 143);
  CHECK(status({}, "odd@example") == 255);
  CHECK(status({}, "") == 255);
}

TEST_CASE("guest paths and versions") {
  CHECK(guest_path("~/a/../b", "/Users/lume") == "/Users/lume/b");
  CHECK(guest_path("./x", "/Users/lume") == "/Users/lume/x");
  CHECK(guest_path("x/", "/Users/lume", "/opt/w") == "/opt/w/x");
  CHECK(guest_path("/a//b", "/h") == "/a/b");
  CHECK(version_from("26.5.2") == Version{26, 5, 2});
  CHECK(version_from("13.0") == Version{13, 0, 0});
  CHECK_FALSE(version_from("13.x"));
  CHECK_FALSE(version_from(""));
}

TEST_CASE("mapped files as lsof and vmmap name them") {
  CHECK(parse_lsof("p12\nftxt\nn/a/b c\nftxt\nn/d\nftxt\nn/a/b c\nnpipe\n") == std::vector<std::string>{"/a/b c", "/d"});
  CHECK(parse_vmmap("__TEXT  10-20 [ 16K] r-x/rwx SM=COW          /a/b c\n__DATA 20-30 [ 16K] rw-/rwx SM=PRV  /d\nMALLOC 1-2 SM=PRV\n") ==
        std::vector<std::string>{"/a/b c", "/d"});
  CHECK(parse_lsof("").empty());
}

TEST_CASE("a relay turns signals into news and gives the handlers back") {
  struct ::sigaction before {
  }, after{};
  ::sigaction(SIGUSR1, nullptr, &before);
  {
    sys::SignalRelay relay;
    ::raise(SIGUSR1);
    ::raise(SIGWINCH);
    CHECK(relay.take() == std::vector<int>{SIGUSR1, SIGWINCH});
    CHECK(relay.take().empty());
  }
  ::sigaction(SIGUSR1, nullptr, &after);
  CHECK((before.sa_handler == after.sa_handler));
}
