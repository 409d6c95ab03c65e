#include "cli/ablation.hpp"

#include <doctest/doctest.h>

using namespace lumelift;

namespace {

/// Figures in the order off/off, off/on, on/off, on/on (preference/library).
std::vector<AblationArm> square(const std::vector<double>& figures) {
  std::vector<AblationArm> out;
  for (std::size_t i = 0; i < 4; ++i) {
    out.push_back({i >= 2, i % 2 == 1, {{"answer", std::to_string(figures[i])}}, {{"pp512", figures[i]}}, "exit status 0"});
  }
  return out;
}

}  // namespace

TEST_CASE("the lever is the one along which something changes") {
  struct Case {
    std::vector<double> figures;
    Lever lever;
  };
  for (const Case& c :
       {Case{{10, 10, 10, 10}, Lever::neither}, Case{{10, 50, 10, 50}, Lever::library}, Case{{10, 10, 50, 50}, Lever::preference},
        Case{{10, 50, 30, 90}, Lever::both}, Case{{10, 10, 10, 90}, Lever::both}, Case{{10, 90, 90, 90}, Lever::both}}) {
    auto arms = square(c.figures);
    const Levers found = levers(arms, 0.1);
    CHECK(found.figures.at("pp512") == c.lever);
    CHECK(found.answers.at("answer") == c.lever);
    CHECK(overall(found.figures) == c.lever);
    std::swap(arms[0], arms[3]);
    CHECK(levers(arms, 0.1).figures.at("pp512") == c.lever);
  }
}

TEST_CASE("small differences of figures are noise, of answers they are not") {
  const Levers found = levers(square({100, 109, 100, 100}), 0.1);
  CHECK(found.figures.at("pp512") == Lever::neither);
  CHECK(found.answers.at("answer") == Lever::both);
}

TEST_CASE("what only some arms show is named and decides nothing") {
  auto arms = square({10, 50, 10, 50});
  arms[2].figures.clear();
  const Levers found = levers(arms, 0.1);
  CHECK(found.figures.empty());
  CHECK(found.incomplete == std::vector<std::string>{"pp512"});
  CHECK(overall({}) == Lever::neither);
}

TEST_CASE("several things together: the union of their levers") {
  CHECK(overall({{"a", Lever::library}, {"b", Lever::neither}}) == Lever::library);
  CHECK(overall({{"a", Lever::library}, {"b", Lever::preference}}) == Lever::both);
}
