#include <doctest/doctest.h>

#include <random>

#include "host/sys/error.hpp"
#include "host/sys/process.hpp"
#include "remote/guest.hpp"

using namespace lumelift;

namespace {

std::string random_word(std::mt19937& source) {
  // Half of the words lean on what shells treat as special.
  static constexpr std::string_view special = "'\"\\$`*?[]{}()<>|&;!#~= \t\n\r-%^@:,./\x01\x7f\x1b";
  const auto length = source() % 24;
  const bool lean = source() % 2 == 0;
  std::string word;
  for (std::size_t i = 0; i < length; ++i) {
    word += lean ? special[source() % special.size()] : static_cast<char>(1 + source() % 255);
  }
  return word;
}

}  // namespace

TEST_CASE("R16: quote() gives back every word in every shell a guest may have") {
  std::mt19937 source(20261129);
  constexpr int batches = 20, words_per_batch = 500;
  for (int batch = 0; batch < batches; ++batch) {
    std::vector<std::string> words;
    std::string expected;
    for (int i = 0; i < words_per_batch; ++i) {
      words.push_back(random_word(source));
      expected += words.back() + '\n' + "<end>\n";
    }
    const auto line = "printf '%s\\n<end>\\n' " + quote(words);
    for (const auto* shell : {"zsh", "bash", "dash"}) {
      const auto outcome = sys::run({.argv = {shell, "-c", line}}, sys::Deadline::in(std::chrono::seconds(60)));
      INFO(shell, outcome.err);
      REQUIRE(outcome.ok());
      REQUIRE(outcome.out == expected);
    }
  }
}

TEST_CASE("quote() is plain to read and refuses what no command line can carry") {
  CHECK(quote("") == "''");
  CHECK(quote("a b") == "'a b'");
  CHECK(quote("it's") == "'it'\\''s'");
  CHECK(quote(std::vector<std::string>{"a", "", "b"}) == "'a' '' 'b'");
  CHECK(quote(std::vector<std::string>{}).empty());
  CHECK_THROWS_AS((void)quote(std::string_view("a\0b", 3)), Error);
}
