#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "cli/console.hpp"
#include "tests/unit/scratch.hpp"

using namespace lumelift;
using namespace lumelift::test;

namespace {

/// What a console wrote to standard output and standard error while `body` used it.
struct Streams {
  std::string out, err;
};
Streams written(const Console::Options& options, const std::function<void(Console&)>& body) {
  const Scratch scratch;
  const int keep[2] = {::dup(1), ::dup(2)};
  std::fflush(stdout);
  for (const int fd : {1, 2}) {
    const int file = ::open((scratch.path() / std::to_string(fd)).c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
    ::dup2(file, fd);
    ::close(file);
  }
  {
    Console console(options);
    body(console);
  }
  for (const int fd : {1, 2}) {
    ::dup2(keep[fd - 1], fd);
    ::close(keep[fd - 1]);
  }
  return {slurp(scratch.path() / "1"), slurp(scratch.path() / "2")};
}

bool fit_for_a_terminal(const std::string& text) {
  for (const unsigned char c : text) {
    if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f) {
      return false;
    }
  }
  // Throws on invalid UTF-8.
  return !nlohmann::json(text).dump().empty();
}

}  // namespace

TEST_CASE("plain text, newlines and tabs pass unchanged") {
  for (const std::string& text :
       std::vector<std::string>{"", "a", "a\n\tb\n", "grün · 日本語 · 🙂 · e\xcc\x81", "~ !\"#$%&'()*+,-./"}) {
    CHECK(cleaned(text) == text);
  }
}

TEST_CASE("control characters, escapes and marks that reorder a line become visible") {
  CHECK(cleaned("\x1b[31mred\x1b[0m") == "\\x1b[31mred\\x1b[0m");
  CHECK(cleaned("\x1b]0;title\x07") == "\\x1b]0;title\\x07");
  CHECK(cleaned("a\rb") == "a\\x0db");
  CHECK(cleaned("a\r\nb\r\n") == "a\nb\n");
  CHECK(cleaned("a\r\r\nb") == "a\\x0d\nb");
  CHECK(cleaned("end\r") == "end\\x0d");
  CHECK(cleaned("a\bb\x7f\v") == "a\\x08b\\x7f\\x0b");
  CHECK(cleaned(std::string_view("a\0b", 3)) == "a\\x00b");
  CHECK(cleaned("\xc2\x9b"
                "31m \xc2\x85") == "\\u009b31m \\u0085");
  CHECK(cleaned("\xe2\x80\xae"
                "cod.exe \xe2\x81\xa6 \xe2\x80\x8f") == "\\u202ecod.exe \\u2066 \\u200f");
  CHECK(cleaned("a\xe2\x80\xa8"
                "b\xe2\x80\xa9") == "a\\u2028b\\u2029");
}

TEST_CASE("invalid UTF-8 becomes visible byte by byte") {
  CHECK(cleaned("\xff\xfe") == "\\xff\\xfe");
  CHECK(cleaned("a\x80") == "a\\x80");
  CHECK(cleaned("\xc0\xaf") == "\\xc0\\xaf");
  CHECK(cleaned("\xe0\x80\xaf") == "\\xe0\\x80\\xaf");
  CHECK(cleaned("\xed\xa0\x80") == "\\xed\\xa0\\x80");
  CHECK(cleaned("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");
  CHECK(cleaned("\xf5\x80\x80\x80").starts_with("\\xf5"));
  CHECK(cleaned("\xe2\x82") == "\\xe2\\x82");
  CHECK(cleaned("\xe2\x82\xac\xe2") == "€\\xe2");
}

TEST_CASE("whatever comes in, what goes out is fit for a terminal") {
  unsigned state = 1;
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (int i = 0; i < 40; ++i) {
      state = state * 1664525 + 1013904223;
      text += static_cast<char>(state >> 24);
    }
    REQUIRE(fit_for_a_terminal(cleaned(text)));
    REQUIRE(fit_for_a_terminal(cleaned(text, 20)));
  }
}

TEST_CASE("foreign text is cut at the cap, at a character's edge, and says so") {
  CHECK(cleaned("abcdef", 6) == "abcdef");
  CHECK(cleaned("abcdefg", 6) == "abcdef [cut]");
  CHECK(cleaned("€€€", 3) == "€ [cut]");
  CHECK(cleaned("ab€€", 3) == "ab€ [cut]");
  CHECK(cleaned(std::string(1u << 20, 'x')).size() == (64u << 10) + 6);
  CHECK(cleaned("x", 0) == " [cut]");
  CHECK(cleaned("", 0).empty());
}

TEST_CASE("a table is aligned by what is seen, not by bytes") {
  CHECK(table({{"a", "bb", "c"}, {"ää", "b", "cc"}}) == "a   bb  c\nää  b   cc\n");
  CHECK(table({{"\x1b[31mred\x1b[0m", "x"}, {"plain", "y"}}) == "\x1b[31mred\x1b[0m    x\nplain  y\n");
  CHECK(table({{"a", "1"}, {"b", "100"}}, {1}) == "a    1\nb  100\n");
  CHECK(table({{"1", "a"}, {"100", "b"}}, {0}) == "  1  a\n100  b\n");
  CHECK(table({{"a", ""}, {"bb", "x"}}) == "a\nbb  x\n");
  CHECK(table({{"a"}, {"b", "c", "d"}, {}}) == "a\nb  c  d\n\n");
  CHECK(table({}).empty());
}

TEST_CASE("sizes as people say them") {
  const std::vector<std::pair<std::uint64_t, std::string>> cases = {{0, "0 B"},
                                                                    {999, "999 B"},
                                                                    {1000, "1 kB"},
                                                                    {1499, "1 kB"},
                                                                    {33'800, "34 kB"},
                                                                    {999'499, "999 kB"},
                                                                    {999'500, "1.0 MB"},
                                                                    {5'240'000, "5.2 MB"},
                                                                    {9'940'000, "9.9 MB"},
                                                                    {9'950'000, "10 MB"},
                                                                    {668'000'000, "668 MB"},
                                                                    {1'200'000'000, "1.2 GB"},
                                                                    {4'294'967'296, "4.3 GB"},
                                                                    {~0ull, "18 EB"}};
  for (const auto& [bytes, text] : cases) {
    CHECK(shown_bytes(bytes) == text);
  }
}

TEST_CASE("standard output carries the result and nothing else") {
  const auto talk = [](Console& console) {
    console.say("saying");
    console.step("copy", "file");
    console.warn("careful");
    console.detail("detail");
    console.progress("x", 1, 2);
    console.end_progress();
    console.result("result");
  };
  const auto usual = written({}, talk);
  CHECK(usual.out == "result\n");
  CHECK(usual.err.find("saying\n") != std::string::npos);
  CHECK(usual.err.find("  copy      file\n") != std::string::npos);
  CHECK(usual.err.find("careful") != std::string::npos);
  CHECK(usual.err.find("detail") == std::string::npos);
  CHECK(usual.err.find('\x1b') == std::string::npos);
  CHECK(written({.verbosity = 1}, talk).err.find("detail") != std::string::npos);
  const auto quiet = written({.verbosity = -1}, talk);
  CHECK(quiet.out == "result\n");
  CHECK(quiet.err.find("saying") == std::string::npos);
  CHECK(quiet.err.find("file") == std::string::npos);
  CHECK(quiet.err.find("careful") != std::string::npos);
}

TEST_CASE("colour is for terminals, unless it is asked for; NO_COLOR does not overrule a demand") {
  const auto styled = [](const Console::Options& options) {
    return written(options, [](Console& console) { console.result(console.styled("good", Style::good) + " rest"); }).out;
  };
  CHECK(styled({}) == "good rest\n");
  CHECK(styled({.color = ColorMode::never}) == "good rest\n");
  CHECK(styled({.color = ColorMode::always}) == "\x1b[32mgood\x1b[0m rest\n");
  CHECK(styled({.color = ColorMode::always, .no_color_env = true}) == "\x1b[32mgood\x1b[0m rest\n");
  CHECK(styled({.no_color_env = true}) == "good rest\n");
}

TEST_CASE("an error in full, and as one object for a program; foreign text in it does no harm") {
  const Error error = Error(ErrorKind::busy, "vm-not-ready", "'\x1b[2Jx' is busy").note("one").note("two\xff").fix("wait");
  const auto text = written({}, [&](Console& console) { console.error(error); });
  CHECK(text.out.empty());
  CHECK(text.err == "error[vm-not-ready]: '\\x1b[2Jx' is busy\n  one\n  two\\xff\n  next: wait\n");
  const auto object = nlohmann::json::parse(written({.json = true}, [&](Console& console) { console.error(error); }).out).at("error");
  CHECK(object.at("id") == "vm-not-ready");
  CHECK(object.at("status") == 4);
  CHECK(object.at("message") == "'\x1b[2Jx' is busy");
  CHECK(object.at("details").size() == 2);
  CHECK(object.at("fix") == "wait");
}

TEST_CASE("escapes in a result are foreign unless colour is on and they are ours") {
  const auto out = [](const Console::Options& options, const std::string& text) {
    return written(options, [&](Console& console) { console.result(text); }).out;
  };
  CHECK(out({}, "\x1b[31mx\x1b[0m") == "\\x1b[31mx\\x1b[0m\n");
  CHECK(out({.color = ColorMode::always}, "\x1b[2Jx") == "\\x1b[2Jx\n");
  CHECK(out({.color = ColorMode::always}, "\x1b]0;t\x07 \x1b[32mx\x1b[0m") == "\\x1b]0;t\\x07 \x1b[32mx\x1b[0m\n");
}
