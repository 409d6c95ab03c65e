#include "shim/policy.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <string>

#include "shim/text.hpp"
#include "shim/verdict.hpp"

using namespace lumelift::shim;

namespace {

Settings tested() {
  Settings settings;
  settings.ceiling = "1009";
  settings.program = "llama-server";
  return settings;
}

Reason reason_of(const Settings& settings) {
  return read_policy(settings).reason;
}

/// What no number of ours looks like, however lenient parsers elsewhere are.
constexpr const char* kMalformed[] = {
    "",
    " ",
    " 1009",
    "1009 ",
    "\t1009",
    "1009\n",
    "+1009",
    "-1009",
    "-1",
    "--1009",
    "0x3f1",
    "0X3F1",
    "0b1111",
    "0o1761",
    "01009",
    "00",
    "0001009",
    "1009.0",
    "1009,",
    "1,009",
    "1_009",
    "1009u",
    "1009L",
    "1e3",
    "1009e0",
    "nan",
    "inf",
    "true",
    "yes",
    "Apple9",
    "1009abc",
    "abc1009",
    "\"1009\"",
    "'1009'",
    "$1009",
    "1009;",
    "1009 1007",
    "\xd9\xa1",
    "\xef\xbc\x91",
    "1009\x01",
    "18446744073709551616",
    "99999999999999999999999",
    "1009%",
    "1 009",
    "(1009)",
    "1009/1",
    "#1009",
    "NULL",
    "-0",
    "+0",
};

std::string removed(const char* list, size_t expected) {
  char buffer[256];
  std::strcpy(buffer, list);
  CHECK(remove_entries(buffer, "liblumelift-metal.dylib") == expected);
  return buffer;
}

std::string quoted(const char* text) {
  char buffer[256];
  Text out(buffer);
  out.quoted(text);
  CHECK(out.complete());
  return {out.data(), out.size()};
}

Answers answers(int64_t highest, uint64_t threadgroup_memory = 32768) {
  Answers out;
  out.device = out.paravirtual = true;
  out.threadgroup_memory = threadgroup_memory;
  for (size_t i = 0; i < kFamilyCount; ++i)
    if (kFamilies[i] <= highest || (kFamilies[i] >= 2001 && kFamilies[i] <= 3003)) out.families |= 1U << i;
  return out;
}

Exit status(const Answers& given, Expectation expectation = {}) {
  Judgement judgement = judge(given, expectation);
  return exit_status(given, expectation, judgement);
}

}  // namespace

TEST_CASE("policy: every malformed value of every setting leaves the process stock") {
  for (const char* text : kMalformed) {
    CAPTURE(text);
    Settings settings = tested();
    settings.ceiling = text;
    CHECK(reason_of(settings) == Reason::ceiling_malformed);
    settings = tested();
    settings.threadgroup_memory = text;
    CHECK(reason_of(settings) == Reason::threadgroup_malformed);
    settings = tested();
    settings.working_set = text;
    CHECK(reason_of(settings) == Reason::working_set_malformed);
    settings = tested();
    settings.inherit = text;
    CHECK(reason_of(settings) == Reason::inherit_malformed);
    settings = tested();
    settings.verbose = text;
    CHECK(reason_of(settings) == Reason::verbose_malformed);
    CHECK_FALSE(read_policy(settings).needs_hooks());
  }
}

TEST_CASE("policy: a stock policy changes no answer, whatever else was set") {
  Settings settings = tested();
  settings.threadgroup_memory = "65536";
  settings.working_set = "99999999999";
  settings.trace = "/tmp/trace";
  for (const char* ceiling : {"0", "1000", "1010", "2001", "5001", "1", "x", "18446744073709551615"}) {
    CAPTURE(ceiling);
    settings.ceiling = ceiling;
    const Policy policy = read_policy(settings);
    CHECK_FALSE(policy.raises());
    for (const int64_t family : kFamilies) CHECK_FALSE(policy.family(family, false));
    CHECK(policy.threadgroup(32768) == 32768);
    CHECK(policy.working(1) == 1);
    CHECK(policy.trace == (std::strcmp(ceiling, "0") == 0));  // tracing needs a valid configuration
  }
}

TEST_CASE("policy: the ceiling is 1001 to 1009 and raises Apple families only") {
  for (int64_t ceiling = 1001; ceiling <= 1009; ++ceiling) {
    Settings settings = tested();
    const std::string text = std::to_string(ceiling);
    settings.ceiling = text.c_str();
    const Policy policy = read_policy(settings);
    REQUIRE(policy.raises());
    for (int64_t family = -5; family < 6000; ++family) {
      CHECK(policy.family(family, true));
      CHECK(policy.family(family, false) == (family >= 1001 && family <= ceiling));
    }
    CHECK_FALSE(policy.family(INT64_MAX, false));
    CHECK_FALSE(policy.family(INT64_MIN, false));
  }
  for (const char* text : {"1000", "1010", "1", "1011", "2001", "5001", "10090"}) {
    Settings settings = tested();
    settings.ceiling = text;
    CHECK(reason_of(settings) == Reason::ceiling_out_of_range);
  }
}

TEST_CASE("policy: absent and zero are two reasons to be stock, and may be traced") {
  Settings settings;
  CHECK(reason_of(settings) == Reason::ceiling_absent);
  CHECK_FALSE(read_policy(settings).needs_hooks());
  settings.trace = "/tmp/t";
  CHECK(read_policy(settings).needs_hooks());
  CHECK_FALSE(read_policy(settings).raises());
  settings.ceiling = "0";
  CHECK(reason_of(settings) == Reason::ceiling_zero);
  CHECK(read_policy(settings).trace);
  settings.threadgroup_memory = "-1";
  CHECK(reason_of(settings) == Reason::threadgroup_malformed);
  CHECK_FALSE(read_policy(settings).needs_hooks());
}

TEST_CASE("policy: sizes raise only, 65536 where threadgroup memory is absent, 0 as reported") {
  Settings settings = tested();
  CHECK(read_policy(settings).threadgroup(32768) == 65536);
  CHECK(read_policy(settings).threadgroup(70000) == 70000);
  CHECK(read_policy(settings).working(123) == 123);
  settings.threadgroup_memory = "0";
  CHECK(read_policy(settings).threadgroup(32768) == 32768);
  settings.threadgroup_memory = "49152";
  settings.working_set = "12000000000";
  CHECK(read_policy(settings).threadgroup(32768) == 49152);
  CHECK(read_policy(settings).working(11453000000) == 12000000000);
  CHECK(read_policy(settings).working(13000000000) == 13000000000);
  settings.threadgroup_memory = "1048577";
  CHECK(reason_of(settings) == Reason::threadgroup_out_of_range);
  settings.threadgroup_memory = "18446744073709551615";
  CHECK(reason_of(settings) == Reason::threadgroup_out_of_range);
  settings.threadgroup_memory = nullptr;
  settings.working_set = "1125899906842625";
  CHECK(reason_of(settings) == Reason::working_set_out_of_range);
}

TEST_CASE("policy: LUMELIFT_ONLY names programs exactly") {
  Settings settings = tested();
  for (const char* list : {"llama-server", "a,llama-server", "llama-server,b", "a,b c,llama-server"}) {
    CAPTURE(list);
    settings.only = list;
    CHECK(read_policy(settings).raises());
  }
  for (const char* list : {"llama", "llama-server2", "LLAMA-SERVER", " llama-server", "llama-server ", "a,b"}) {
    CAPTURE(list);
    settings.only = list;
    settings.ceiling = "nonsense";  // not this program's business
    CHECK(reason_of(settings) == Reason::program_not_listed);
  }
  for (const char* list : {"", ",", "llama-server,", ",llama-server", "a,,llama-server", "/bin/llama-server"}) {
    CAPTURE(list);
    settings = tested();
    settings.only = list;
    CHECK(reason_of(settings) == Reason::only_malformed);
  }
  settings = tested();
  settings.only = "other";
  settings.trace = "/tmp/t";
  settings.verbose = "1";
  CHECK_FALSE(read_policy(settings).needs_hooks());
  CHECK_FALSE(read_policy(settings).verbose);
}

TEST_CASE("policy: switches, empty paths, and verbosity that survives other mistakes") {
  Settings settings = tested();
  CHECK(read_policy(settings).inherit);
  settings.inherit = "0";
  CHECK_FALSE(read_policy(settings).inherit);
  settings.inherit = "2";
  CHECK(reason_of(settings) == Reason::inherit_malformed);
  settings = tested();
  settings.receipt = "";
  CHECK(reason_of(settings) == Reason::receipt_malformed);
  settings = tested();
  settings.trace = "";
  CHECK(reason_of(settings) == Reason::trace_malformed);
  settings = tested();
  settings.verbose = "1";
  settings.ceiling = "x";
  CHECK(read_policy(settings).verbose);
  CHECK(std::string(reason_id(Reason::ceiling_malformed)) == "ceiling-malformed");
}

TEST_CASE("policy: our entry leaves an insert list and the others stay in order") {
  CHECK(removed("/a/liblumelift-metal.dylib", 1) == "");
  CHECK(removed("liblumelift-metal.dylib", 1) == "");
  CHECK(removed("/x.dylib:/a/liblumelift-metal.dylib:/y.dylib", 1) == "/x.dylib:/y.dylib");
  CHECK(removed("/a/liblumelift-metal.dylib:/y.dylib", 1) == "/y.dylib");
  CHECK(removed("/x.dylib:/a/liblumelift-metal.dylib:/b/liblumelift-metal.dylib", 2) == "/x.dylib");
  CHECK(removed("/x.dylib:/liblumelift-metal.dylib/other", 0) == "/x.dylib:/liblumelift-metal.dylib/other");
  CHECK(removed("/my-liblumelift-metal.dylib", 0) == "/my-liblumelift-metal.dylib");
  CHECK(removed("", 0) == "");
}

TEST_CASE("policy: type encodings are compared without their offsets") {
  CHECK(same_types("B24@0:8q16", "B@:q"));
  CHECK(same_types("c24@0:8q16", "B@:q"));
  CHECK(same_types("Q16@0:8", "Q@:"));
  CHECK(same_types("v16@0:8", "v@:"));
  for (const char* wrong : {"", "B", "B24@0:8", "B24@0:8Q16", "i24@0:8q16", "B24@0:8q16q24", "B24@0:8@16", "^B24@0:8q16"})
    CHECK_FALSE(same_types(wrong, "B@:q"));
  CHECK_FALSE(same_types(nullptr, "B@:q"));
}

TEST_CASE("text: JSON strings are valid whatever the bytes, and nothing is written past the end") {
  CHECK(quoted("plain") == "\"plain\"");
  CHECK(quoted(nullptr) == "null");
  CHECK(quoted("a\"b\\c\n\x7f") == R"("a\"b\\c\u000a\u007f")");
  CHECK(quoted("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80") == "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"");
  CHECK(quoted("\xff") == "\"\\ufffd\"");
  CHECK(quoted("\xc3") == "\"\\ufffd\"");
  CHECK(quoted("\xed\xa0\x80") == "\"\\ufffd\\ufffd\\ufffd\"");
  CHECK(quoted("\xc0\x80") == "\"\\ufffd\\ufffd\"");
  char small[5] = {0, 0, 0, 0, '!'};
  Text text(small, 4);
  text.put("abcdef");
  CHECK_FALSE(text.complete());
  CHECK(std::string(text.c_str()) == "abc");
  CHECK(small[4] == '!');
  char number[64];
  Text digits(number);
  digits.signed_number(INT64_MIN).put(' ').number(UINT64_MAX).put(' ').padded(42, 6).put(' ').padded(0, 3);
  CHECK(std::string(digits.c_str()) == "-9223372036854775808 18446744073709551615 000042 000");
}

TEST_CASE("verdict: stock, unlocked, physical, none") {
  CHECK(status(Answers{}) == Exit::no_device);
  CHECK(status(answers(1005)) == Exit::stock);
  CHECK(status(answers(1009, 65536)) == Exit::unlocked);
  Answers mac = answers(1009);
  mac.paravirtual = false;
  mac.families |= 1U << 15;  // Metal 3
  CHECK(status(mac) == Exit::physical);
  CHECK(status(mac, {Expectation::Kind::unlocked, 0, 0}) == Exit::not_as_expected);
  CHECK(status(mac, {Expectation::Kind::stock, 0, 0}) == Exit::stock);
}

TEST_CASE("verdict: R28 a profile that is too broad is a failure, whatever was expected") {
  for (const auto kind : {Expectation::Kind::nothing, Expectation::Kind::stock, Expectation::Kind::unlocked}) {
    Answers metal3 = answers(1009);
    metal3.families |= 1U << 15;
    CHECK(status(metal3, {kind, 1009, 0}) == Exit::over_broad);
    CHECK(status(answers(1010), {kind, 0, 0}) == Exit::over_broad);
    CHECK(status(answers(1009), {kind, 1007, 0}) == Exit::over_broad);
    Answers all = answers(1009);
    all.beyond = 1U << 10;  // 1021
    CHECK(status(all, {kind, 1009, 0}) == Exit::over_broad);
  }
}

TEST_CASE("verdict: R117 a hole below the highest family is a failure") {
  Answers hole = answers(1007);
  hole.families &= ~(1U << 5);  // 1006
  CHECK(status(hole) == Exit::over_broad);
}

TEST_CASE("verdict: the ceiling must be reached exactly, memory at least") {
  CHECK(status(answers(1007), {Expectation::Kind::unlocked, 1007, 0}) == Exit::stock);
  CHECK(status(answers(1007), {Expectation::Kind::unlocked, 1009, 0}) == Exit::not_as_expected);
  CHECK(status(answers(1009, 32768), {Expectation::Kind::unlocked, 1009, 65536}) == Exit::not_as_expected);
  CHECK(status(answers(1009, 65536), {Expectation::Kind::unlocked, 1009, 65536}) == Exit::stock);
  CHECK(status(answers(1009), {Expectation::Kind::stock, 0, 0}) == Exit::not_as_expected);
  CHECK(status(answers(1005), {Expectation::Kind::unlocked, 0, 0}) == Exit::not_as_expected);
  CHECK(self_test() == nullptr);
}
