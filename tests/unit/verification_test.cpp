#include "cli/verification.hpp"

#include <doctest/doctest.h>

using namespace lumelift;

namespace {

constexpr const char* library = "/.local/share/lumelift/liblumelift-metal.dylib";
const std::vector<std::string> mapped = {"/usr/lib/x", std::string("/Users/lume") + library};

std::string receipt(int pid, const char* outcome, const char* started = "2000.5") {
  return std::string(R"({"pid":)") + std::to_string(pid) + R"(,"started":")" + started + R"(","outcome":")" + outcome +
         R"(","reason":"ceiling-absent"})";
}

bool passes(const ProcessSeen& seen) {
  const auto checks = check_process(seen, "w", library, 1000);
  REQUIRE(checks.size() == 2);
  return checks[0].passed && checks[1].passed;
}

}  // namespace

TEST_CASE("a process is unlocked by its receipt and by what it has mapped, never by one alone") {
  CHECK(passes({7, receipt(7, "active"), mapped}));
  CHECK(passes({7, receipt(7, "armed"), mapped}));
  CHECK_FALSE(passes({7, receipt(8, "active"), mapped}));
  CHECK_FALSE(passes({7, receipt(7, "stock"), mapped}));
  CHECK_FALSE(passes({7, receipt(7, "active", "100.0"), mapped}));
  CHECK_FALSE(passes({7, receipt(7, "active"), {"/usr/lib/x"}}));
  CHECK_FALSE(passes({7, receipt(7, "active"), {}}));
}

TEST_CASE("foreign receipts of any kind are refused, not believed") {
  for (const char* text :
       {"", "{", "[]", "{}", "null", R"({"pid":"7","outcome":"active"})", R"({"pid":7,"outcome":7})", R"({"pid":7})", "\x1b]0;x\x07"}) {
    CHECK_FALSE(passes({7, text, mapped}));
  }
}

TEST_CASE("what was proven comes from the last committed report") {
  const auto run = [](RunId id, RunState state, const char* build, int family) {
    RunRecord record;
    record.id = id;
    record.state = state;
    record.summary = std::string(R"({"guest":{"os":"26.5","build":")") + build + R"("},"profile":{"name":"p","apple_family_max":)" +
                     std::to_string(family) + R"(,"threadgroup_memory":0,"working_set":0}})";
    return record;
  };
  const Proven proven =
      proven_by({run(1, RunState::committed, "A", 1007), run(2, RunState::committed, "B", 1009), run(3, RunState::open, "C", 1001)});
  CHECK(proven.build == "B");
  CHECK(proven.profile->apple_family_max == 1009);
  CHECK_FALSE(proven_by({}).profile);
  RunRecord odd;
  odd.state = RunState::committed;
  odd.summary = "{";
  CHECK_THROWS_AS(static_cast<void>(proven_by({odd})), Error);
}
