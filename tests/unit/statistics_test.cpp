#include "cli/statistics.hpp"

#include <doctest/doctest.h>

#include <vector>

using namespace lumelift;

TEST_CASE("a summary is made of order statistics") {
  const std::vector<double> odd{3, 1, 2}, even{4, 1, 2, 3}, one{7};
  CHECK(summarise(odd) == Summary{3, 2, 1, 3});
  CHECK(summarise(even) == Summary{4, 2.5, 1, 4});
  CHECK(summarise(one) == Summary{1, 7, 7, 7});
  CHECK(summarise(odd).spread() == doctest::Approx(1.0));
  CHECK(summarise(one).spread() == 0);
}

TEST_CASE("the interval holds the ratio, is repeatable, and does not depend on the order of the samples") {
  const std::vector<double> fast{206.1, 205.9, 191.3, 214.0, 206.6, 207.0}, slow{12.6, 12.7, 8.6, 12.5, 12.8, 12.63};
  const auto ratio = median_ratio(fast, slow);
  CHECK(ratio.low <= ratio.value);
  CHECK(ratio.value <= ratio.high);
  CHECK(ratio.low > 1);
  CHECK(median_ratio(fast, slow) == ratio);
  CHECK(median_ratio(std::vector<double>(fast.rbegin(), fast.rend()), std::vector<double>(slow.rbegin(), slow.rend())) == ratio);
}

TEST_CASE("the interval is pinned, so that another generator or seed is noticed") {
  const std::vector<double> a{10, 11, 12, 13, 14}, b{5, 5.5, 6};
  const auto ratio = median_ratio(a, b);
  CHECK(ratio.value == doctest::Approx(12 / 5.5));
  CHECK(ratio.low == doctest::Approx(10 / 6.0).epsilon(0.1));
  CHECK(ratio.high == doctest::Approx(14 / 5.0).epsilon(0.1));
}

TEST_CASE("equal constant series have an interval of no width") {
  const std::vector<double> same(10, 42.0);
  CHECK(median_ratio(same, same) == Ratio{1, 1, 1});
}

TEST_CASE("the rank shortcut for long series gives what drawing gives") {
  // 200 samples are drawn, 202 take the shortcut; the two intervals must agree closely.
  std::vector<double> drawn, shortcut;
  for (int i = 0; i < 200; ++i) drawn.push_back(1000 + i);
  for (int i = 0; i < 202; ++i) shortcut.push_back(1000 + i * 199.0 / 201);
  const std::vector<double> unit{1};
  const auto by_drawing = median_ratio(drawn, unit), by_rank = median_ratio(shortcut, unit);
  CHECK(by_rank.low == doctest::Approx(by_drawing.low).epsilon(0.003));
  CHECK(by_rank.high == doctest::Approx(by_drawing.high).epsilon(0.003));
  CHECK(by_drawing.low < by_drawing.value);
}

TEST_CASE("verdicts") {
  CHECK(judge({11.08, 11.0, 11.2}, 0.05) == Verdict::faster);
  CHECK(judge({0.8, 0.7, 0.9}, 0.05) == Verdict::slower);
  CHECK(judge({1.0054, 0.99, 1.017}, 0.05) == Verdict::unchanged);
  CHECK(judge({0.9929, 0.9916, 0.9965}, 0.05) == Verdict::unchanged);
  CHECK(judge({1.1, 0.9, 1.3}, 0.05) == Verdict::inconclusive);
  CHECK(judge({1.04, 1.01, 1.08}, 0.05) == Verdict::inconclusive);
  CHECK(verdict_text(Verdict::unchanged) == "no material change");
}

TEST_CASE("one stalled sample is named, a generally unsteady series is not") {
  const std::vector<double> stalled{12.6, 12.7, 12.5, 12.8, 8.6}, unsteady{10, 12, 14, 16, 18}, few{1, 2, 3};
  const auto outlier = lone_outlier(stalled);
  REQUIRE(outlier);
  CHECK(outlier->index == 4);
  CHECK(outlier->rate == 8.6);
  CHECK(outlier->spread_without == doctest::Approx(0.3 / 12.65));
  CHECK_FALSE(lone_outlier(unsteady));
  CHECK_FALSE(lone_outlier(few));
}

TEST_CASE("six significant digits") {
  CHECK(six_digits(433.53898123) == 433.539);
  CHECK(six_digits(12.63070389) == 12.6307);
  CHECK(six_digits(4871.99044) == 4871.99);
  CHECK(six_digits(1234567.8) == 1234570);
  CHECK(six_digits(0.00123456789) == 0.00123457);
  CHECK(six_digits(999999.96) == 1000000);
}
