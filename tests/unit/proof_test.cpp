#include "cli/proof.hpp"

#include <doctest/doctest.h>

#include "cli/bench_programs.hpp"
#include "cli/json_text.hpp"
#include "cli/receipt.hpp"
#include "cli/samples.hpp"
#include "host/sys/error.hpp"
#include "host/sys/file.hpp"
#include "tests/unit/plans.hpp"

using namespace lumelift;
using namespace lumelift::test;

namespace {

std::string captured(const char* name) {
  return sys::read_file(std::string(LUMELIFT_SOURCE_DIR "/tests/data/probe/") + name + ".json", 1u << 20);
}

ProbePair pair() {
  return {parse_probe(captured("stock")), parse_probe(captured("unlocked"))};
}

const Profile tested{"tested", 1009, 65536, 0};

std::string lines(const std::vector<std::string>& list) {
  std::string out;
  for (const auto& line : list) {
    out += line + "\n";
  }
  return out;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("a stock and an unlocked probe, as captured from a guest") {
  const ProbePair answers = pair();
  CHECK(answers.stock.device == "Apple Paravirtual device");
  CHECK(answers.stock.highest_apple == 1005);
  CHECK(answers.stock.threadgroup_memory == 32768);
  CHECK(answers.stock.family(1005));
  CHECK_FALSE(answers.stock.family(1006));
  CHECK_FALSE(answers.stock.family(4711));
  CHECK(answers.unlocked.highest_apple == 1009);
  CHECK(answers.unlocked.threadgroup_memory == 65536);
  CHECK(answers.unlocked.verdict == "unlocked");
  CHECK_FALSE(answers.unlocked.family(5001));
  CHECK(answers.unlocked.stock_reason.empty());
  CHECK(shortfalls(answers, tested).empty());
}

TEST_CASE("a probe cut at any byte is unreadable, not a wrong answer") {
  const std::string whole = captured("unlocked");
  for (std::size_t length = 0; length + 1 < whole.size(); length += 7) {
    const auto error = thrown([&] { (void)parse_probe(whole.substr(0, length)); });
    REQUIRE(error.id() == "probe-unreadable");
    REQUIRE(error.kind() == ErrorKind::unproven);
  }
}

TEST_CASE("hostile probe output is refused") {
  const std::string whole = captured("stock");
  for (const auto& text :
       std::vector<std::string>{"null", "[]", "{}", "7", "\xff\xfe", std::string(200'000, '['), R"({"device":null})",
                                R"({"device":{"families":[]},"problems":7})", R"({"device":{"families":{"x":true}}})",
                                R"({"device":{"families":{"99999999999999999999":true}}})", R"({"device":{"families":{"1001":"yes"}}})",
                                replaced(whole, "\"1005\": true", "\"1005\": 1"), "zsh: warning\n" + whole, whole + whole}) {
    CAPTURE(text.substr(0, 60));
    CHECK(thrown([&] { (void)parse_probe(text); }).id() == "probe-unreadable");
  }
}

TEST_CASE("JSON that nests as deep as memory goes does not overflow the stack") {
  for (const std::string unit : {"[", "{\"a\":"}) {
    std::string deep;
    while (deep.size() < 4u << 20) {
      deep += unit;
    }
    const std::string closed = unit == "[" ? std::string(2u << 20, '[') + std::string(2u << 20, ']') : deep;
    for (const auto& text : {deep, closed, "{\"device\":{\"families\":{}},\"problems\":" + closed + "}"}) {
      CHECK_THROWS_AS((void)parse_probe(text), Error);
      CHECK(!receipt_defect(text, 1).empty());
      CHECK_FALSE(parse_arm(text, "deep.json"));
    }
  }
  CHECK(json_text("{\"a\":\"[[\\\"[\"}").size() == 13);
  CHECK(json_text(std::string(64, '[')).size() == 64);
  CHECK(json_text(std::string(65, '[')).empty());
}

TEST_CASE("a number that is none counts as zero and so falls short") {
  const auto answers =
      parse_probe(replaced(captured("unlocked"), "\"max_threadgroup_memory\": 65536", "\"max_threadgroup_memory\": -65536"));
  CHECK(answers.threadgroup_memory == 0);
  CHECK(lines(shortfalls({parse_probe(captured("stock")), answers}, tested)) == "threadgroup memory is 0 bytes, not 65536\n");
}

TEST_CASE("R23: a guest that answers as before is no success, each missing family by name") {
  ProbePair answers = pair();
  answers.unlocked = answers.stock;
  CHECK(lines(shortfalls(answers, tested)) ==
        "family 1006 is still refused\nfamily 1007 is still refused\nfamily 1008 is still refused\nfamily 1009 is still refused\n"
        "threadgroup memory is 32768 bytes, not 65536\n");
}

TEST_CASE("a library that stayed stock says why") {
  ProbePair answers = pair();
  answers.unlocked =
      parse_probe(replaced(captured("stock"), "\"receipt\": null", R"("receipt": {"outcome": "stock", "reason": "not-paravirtual"})"));
  CHECK(answers.unlocked.stock_reason == "not-paravirtual");
  CHECK(shortfalls(answers, tested).back() == "the library stayed stock: not-paravirtual");
}

TEST_CASE("a hole below the ceiling is seen though the highest family is there") {
  ProbePair answers = pair();
  answers.unlocked.families[1007] = false;
  CHECK(answers.unlocked.highest_apple == 1009);
  CHECK(lines(shortfalls(answers, tested)) == "family 1007 is still refused\n");
}

TEST_CASE("R28: Metal 3 that comes up with the unlock is worse than none") {
  ProbePair answers = pair();
  answers.unlocked.families[5001] = true;
  const auto found = lines(shortfalls(answers, tested));
  CHECK(found.find("family 5001 is claimed") == 0);
  CHECK(found.find("objects that the guest cannot make") != std::string::npos);
  answers.stock.families[5001] = true;
  CHECK(shortfalls(answers, tested).empty());
}

TEST_CASE("families above the ceiling, and those that got lost") {
  ProbePair answers = pair();
  answers.unlocked.families[1010] = true;
  CHECK(lines(shortfalls(answers, tested)) == "family 1010 is claimed, which the profile does not promise\n");
  answers = pair();
  answers.unlocked.families[2002] = false;
  answers.unlocked.families.erase(3001);
  CHECK(lines(shortfalls(answers, tested)) == "family 2002 is still refused\nfamily 3001 is still refused\n");
  answers = pair();
  const Profile lower{"lower", 1007, 65536, 0};
  CHECK(lines(shortfalls(answers, lower)) ==
        "family 1008 is claimed, which the profile does not promise\nfamily 1009 is claimed, which the profile does not promise\n");
}

TEST_CASE("families that only the unlocked answer knows do not slip through") {
  ProbePair answers = pair();
  answers.stock.families.erase(5002);
  answers.unlocked.families[5002] = true;
  CHECK(lines(shortfalls(answers, tested)).find("family 5002 is claimed") == 0);
}

TEST_CASE("threadgroup memory is raised, never lowered, and exactly as promised") {
  ProbePair answers = pair();
  CHECK(lines(shortfalls(answers, {"m", 1009, 0, 0})) == "threadgroup memory is 65536 bytes, not 32768\n");
  answers.stock.threadgroup_memory = 131072;
  CHECK(lines(shortfalls(answers, tested)) == "threadgroup memory is 65536 bytes, not 131072\n");
}

TEST_CASE("the probe's own problems are shortfalls") {
  ProbePair answers = pair();
  answers.unlocked.problems = {"the receipt is of another process"};
  CHECK(lines(shortfalls(answers, tested)) == "the probe says: the receipt is of another process\n");
}

TEST_CASE("a working set that the profile raises must be there") {
  ProbePair answers = pair();
  CHECK(lines(shortfalls(answers, {"w", 1009, 65536, 20'000'000'000})) == "working set is 11453246122 bytes, not 20000000000\n");
  answers.unlocked.working_set = 20'000'000'000;
  CHECK(shortfalls(answers, {"w", 1009, 65536, 20'000'000'000}).empty());
  answers.stock.working_set = 30'000'000'000;
  CHECK(lines(shortfalls(answers, {"w", 1009, 65536, 20'000'000'000})) == "working set is 20000000000 bytes, not 30000000000\n");
}
