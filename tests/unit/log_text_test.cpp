#include "cli/log_text.hpp"

#include <doctest/doctest.h>

#include "host/sys/error.hpp"
#include "remote/log.hpp"

using namespace lumelift;

TEST_CASE("durations") {
  CHECK(duration_from("90s") == 90);
  CHECK(duration_from("15m") == 900);
  CHECK(duration_from("2h") == 7200);
  CHECK(duration_from("3d") == 259200);
  for (const char* text : {"", "s", "0s", "-1s", "1", "1w", "1.5h", " 1s", "1s ", "999999999999999999999s", "9223372036854775807d"}) {
    CHECK_FALSE(duration_from(text));
  }
}

TEST_CASE("the moment that a line begins with") {
  CHECK(moment_of("1970-01-01T00:00:10Z x", 3600) == 10);
  CHECK(moment_of("[1970-01-01 00:00:10.123] x", 0) == 10);
  CHECK(moment_of("1970-01-01 01:00:10 x", 3600) == 10);
  CHECK(moment_of("1970-01-01T01:00:10+01:00", 0) == 10);
  CHECK(moment_of("1970-01-01T01:00:10,5 +0100", 0) == 10);
  CHECK(moment_of("1969-12-31T23:00:10-0100", 0) == 10);
  CHECK(moment_of("2026-11-29T13:04:07Z", 0) == 1795957447);
  for (const char* text :
       {"", "x", "2026-13-01T00:00:00", "2026-02-30T00:00:00", "2026-11-29T25:00:00Z", "2026-11-29 13:04", "2026/11/29 13:04:07"}) {
    CHECK_FALSE(moment_of(text, 0));
  }
}

TEST_CASE("a line without a moment belongs to the one before it") {
  const std::string text = "no date\n1970-01-01T00:00:05Z old\n  more of it\n1970-01-01T00:00:20Z new\n  more of that\nlast without end";
  CHECK(lines_since(text, 10, 0, 0) == "1970-01-01T00:00:20Z new\n  more of that\nlast without end");
  CHECK(lines_since(text, 30, 100, 0).empty());
  CHECK(lines_since("a\nb\n", 10, 20, 0) == "a\nb\n");
  CHECK(lines_since("a\nb\n", 10, 5, 0).empty());
  CHECK(lines_since("", 10, 20, 0).empty());
}

TEST_CASE("the guest's clock") {
  CHECK(parse_clock("1764422000 +0130\n").offset == 5400);
  CHECK(parse_clock("1764422000 -0800\n").offset == -28800);
  CHECK(parse_clock("1764422000 -0800\n").now == 1764422000);
  for (const char* text : {"", "x", "1 +1\n", "1764422000 0100\n", "1764422000 +0100"}) {
    CHECK_THROWS_AS(static_cast<void>(parse_clock(text)), Error);
  }
}
