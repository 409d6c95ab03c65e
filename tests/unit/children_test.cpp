#include "host/sys/children.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <csignal>
#include <map>
#include <string>
#include <vector>

#include "host/sys/error.hpp"
#include "tests/unit/plans.hpp"
#include "tests/unit/scratch.hpp"

using namespace lumelift;
using sys::Children;
using sys::Deadline;
using sys::Milliseconds;

namespace {

sys::Command sh(const std::string& script) {
  return {.argv = {"/bin/sh", "-c", script}};
}

/// Waits for all of them; what they said by key, and how they ended.
struct Heard {
  std::map<std::size_t, std::vector<std::string>> lines;
  std::map<std::size_t, sys::Outcome> outcomes;
};
Heard all(Children& children) {
  Heard heard;
  while (children.count() > 0) {
    for (auto& ended :
         children.wait(Milliseconds{20'000}, [&](std::size_t key, std::string_view line) { heard.lines[key].emplace_back(line); })) {
      heard.outcomes[ended.key] = ended.outcome;
    }
  }
  return heard;
}

}  // namespace

TEST_CASE("children run at the same time, each with its own streams and status") {
  Children children;
  const sys::Stopwatch watch;
  for (std::size_t key = 0; key < 5; ++key) {
    children.start(key, sh("echo out " + std::to_string(key) + "; echo one >&2; sleep 0.5; printf 'two' >&2; exit " + std::to_string(key)),
                   Deadline::in(Milliseconds{20'000}));
  }
  CHECK(children.count() == 5);
  const Heard heard = all(children);
  CHECK(watch.elapsed() < Milliseconds{2'000});
  for (std::size_t key = 0; key < 5; ++key) {
    CHECK(heard.outcomes.at(key).status == static_cast<int>(key));
    CHECK(heard.outcomes.at(key).out == "out " + std::to_string(key) + "\n");
    CHECK(heard.lines.at(key) == std::vector<std::string>{"one", "two"});
  }
}

TEST_CASE("children: a line is heard while the command still runs") {
  Children children;
  children.start(7, sh("echo early >&2; sleep 30"), Deadline::in(Milliseconds{60'000}));
  std::string said;
  const sys::Stopwatch watch;
  while (said.empty() && watch.elapsed() < Milliseconds{10'000}) {
    CHECK(children.wait(Milliseconds{100}, [&](std::size_t, std::string_view line) { said = line; }).empty());
  }
  CHECK(said == "early");
  CHECK(children.count() == 1);
}

TEST_CASE("children: a signal reaches the command, not what it has started") {
  Children children;
  children.start(0, sh("trap 'echo told; exit 9' INT; echo up >&2; (trap 'echo child told' INT; sleep 1) & wait"),
                 Deadline::in(Milliseconds{20'000}));
  children.start(1, sh("echo up >&2; sleep 0.2; exit 0"), Deadline::in(Milliseconds{20'000}));
  int up = 0;
  while (up == 0) {
    (void)children.wait(Milliseconds{50}, [&](std::size_t key, std::string_view) { up += key == 0 ? 1 : 0; });
  }
  children.signal_all(SIGINT);
  const Heard heard = all(children);
  CHECK(heard.outcomes.at(0).status == 9);
  CHECK(heard.outcomes.at(0).out == "told\n");
}

TEST_CASE("children: each has a deadline of its own") {
  Children children;
  children.start(0, sh("sleep 30"), Deadline::in(Milliseconds{100}));
  children.start(1, sh("sleep 0.5; echo fine"), Deadline::in(Milliseconds{20'000}));
  const Heard heard = all(children);
  CHECK(heard.outcomes.at(0).timed_out);
  CHECK(heard.outcomes.at(1).out == "fine\n");
}

TEST_CASE("children: what is left when they go out of scope is killed") {
  const test::Scratch scratch;
  const auto pid_file = scratch.path() / "pid";
  {
    Children children;
    children.start(0, sh("echo $$ > " + pid_file.string() + "; echo up >&2; sleep 30"), Deadline::in(Milliseconds{60'000}));
    bool up = false;
    while (!up) {
      (void)children.wait(Milliseconds{50}, [&](std::size_t, std::string_view) { up = true; });
    }
  }
  const pid_t pid = std::stoi(test::slurp(pid_file));
  CHECK(::kill(pid, 0) != 0);
}

TEST_CASE("children: a program that is not there is said at once") {
  Children children;
  const Error error = test::thrown([&] { children.start(0, {.argv = {"/no/such/program"}}, Deadline::in(Milliseconds{1'000})); });
  CHECK(error.id() == "host-tool-missing");
  CHECK(children.count() == 0);
}
