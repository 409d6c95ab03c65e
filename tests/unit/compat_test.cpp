#include "cli/compat.hpp"

#include <doctest/doctest.h>

#include "host/sys/error.hpp"
#include "tests/unit/scratch.hpp"

using namespace lumelift;

namespace {

CompatKey key(const char* workload = "tinyllama (llama.cpp)") {
  return {"Apple M4 Max", "25G71", "26.5.2", "25F84", "aaaa", "minimal", workload};
}

CompatRecord record(Outcome outcome) {
  return {key(), outcome, "bundle", 1'790'000'000};
}

}  // namespace

TEST_CASE("an empty book knows what was published, and nothing else") {
  test::Scratch scratch;
  const auto book = CompatBook::load(scratch.path() / "state");
  CHECK(book.records().empty());
  CHECK(book.standing(key()) == Standing::untested);
  CHECK(book.standing({"Apple M1 Ultra", "", "26.5.2", "25F84", "", "tested", ""}) == Standing::published);
  CHECK(book.standing({"Apple M1 Ultra", "", "26.5", "", "", "tested", ""}) == Standing::published);
  CHECK(book.standing({"Apple M1 Ultra", "", "26.50", "", "", "tested", ""}) == Standing::untested);
  CHECK(book.standing({"Apple M1 Ultra", "", "26.5.2", "", "", "minimal", ""}) == Standing::untested);
  CHECK(book.standing({"Apple M1", "", "26.5.2", "", "", "tested", ""}) == Standing::untested);
}

TEST_CASE("what was recorded comes back, and the last word counts") {
  test::Scratch scratch;
  const auto state = scratch.path() / "state";
  CompatBook::add(state, record(Outcome::verified));
  CHECK(CompatBook::load(state).records() == std::vector<CompatRecord>{record(Outcome::verified)});
  CHECK(CompatBook::load(state).standing(key()) == Standing::proven_here);
  CHECK(CompatBook::load(state).standing(key("another")) == Standing::untested);
  CompatBook::add(state, record(Outcome::failing));
  CHECK(CompatBook::load(state).records().size() == 1);
  CHECK(CompatBook::load(state).standing(key()) == Standing::failing);
  CHECK(test::mode_of(state / "compat.json") == 0600);
}

TEST_CASE("the unlock alone is proven by a workload that works, and not refuted by one that does not") {
  test::Scratch scratch;
  CompatBook::add(scratch.path() / "s", record(Outcome::failing));
  CHECK(CompatBook::load(scratch.path() / "s").standing(key("")) == Standing::untested);
  CompatBook::add(scratch.path() / "s", {key("other"), Outcome::verified, "bundle", 0});
  CHECK(CompatBook::load(scratch.path() / "s").standing(key("")) == Standing::proven_here);
  CHECK(CompatBook::load(scratch.path() / "s").standing(key("third")) == Standing::untested);
}

TEST_CASE("an unlock without a benchmark is no proof") {
  test::Scratch scratch;
  CompatBook::add(scratch.path() / "s", record(Outcome::reported_only));
  CHECK(CompatBook::load(scratch.path() / "s").standing(key()) == Standing::unlocked_here);
  CompatBook::add(scratch.path() / "s", {key("other"), Outcome::verified, "bundle", 0});
  CHECK(CompatBook::load(scratch.path() / "s").standing(key()) == Standing::unlocked_here);
  CHECK(CompatBook::load(scratch.path() / "s").standing(key("")) == Standing::proven_here);
}

TEST_CASE("what shows nothing takes no proof away") {
  test::Scratch scratch;
  CompatBook::add(scratch.path() / "s", record(Outcome::verified));
  CompatBook::add(scratch.path() / "s", record(Outcome::reported_only));
  CHECK(CompatBook::load(scratch.path() / "s").records() == std::vector<CompatRecord>{record(Outcome::verified)});
  CompatBook::add(scratch.path() / "s", record(Outcome::failing));
  CompatBook::add(scratch.path() / "s", record(Outcome::reported_only));
  CHECK(CompatBook::load(scratch.path() / "s").standing(key()) == Standing::unlocked_here);
}

TEST_CASE("a report is recorded workload by workload") {
  const auto outcome = [](std::optional<Verdict> pp, std::optional<Verdict> tg) {
    WorkloadReport workload;
    workload.name = "w";
    for (const auto& verdict : {pp, tg}) {
      TestReport test;
      if (verdict) {
        test.comparisons.push_back({Role::stock, {}, *verdict});
      }
      workload.tests.push_back(test);
    }
    const auto records = compat_records({{}, {workload}, {}}, key(""), "proof", 5);
    REQUIRE(records.size() == 1);
    CHECK(records[0].key == key("w"));
    CHECK(records[0].recorded_at == 5);
    return records[0].outcome;
  };
  CHECK(outcome(Verdict::faster, Verdict::unchanged) == Outcome::verified);
  CHECK(outcome(Verdict::faster, Verdict::slower) == Outcome::failing);
  CHECK(outcome(Verdict::inconclusive, std::nullopt) == Outcome::reported_only);
}

TEST_CASE("a changed build or library makes a record stale, an unknown one does not") {
  test::Scratch scratch;
  CompatBook::add(scratch.path() / "s", record(Outcome::verified));
  const auto book = CompatBook::load(scratch.path() / "s");
  for (const auto member : {&CompatKey::host_build, &CompatKey::guest_build, &CompatKey::guest_os, &CompatKey::library_sha256}) {
    auto now = key();
    now.*member = "changed";
    CHECK(book.standing(now) == Standing::stale);
    CHECK(CompatBook::stale(book.records()[0], now));
    now.*member = "";
    CHECK(book.standing(now) == Standing::proven_here);
  }
  auto elsewhere = key();
  elsewhere.chip = "Apple M1";
  CHECK(book.standing(elsewhere) == Standing::untested);
}

TEST_CASE("an older proof is outweighed by one for the builds of today") {
  test::Scratch scratch;
  CompatBook::add(scratch.path() / "s", record(Outcome::failing));
  auto newer = record(Outcome::verified);
  newer.key.guest_build = "25F99";
  CompatBook::add(scratch.path() / "s", newer);
  const auto book = CompatBook::load(scratch.path() / "s");
  CHECK(book.records().size() == 2);
  CHECK(book.standing(newer.key) == Standing::proven_here);
  CHECK(book.standing(key()) == Standing::failing);
}

TEST_CASE("forgetting") {
  test::Scratch scratch;
  const auto state = scratch.path() / "s";
  CompatBook::add(state, record(Outcome::verified));
  CompatBook::add(state, {key("other"), Outcome::reported_only, "", 0});
  CHECK(CompatBook::forget(state, "nothing of the kind") == 0);
  CHECK(CompatBook::forget(state, "other") == 1);
  CHECK(CompatBook::forget(state, "") == 1);
  CHECK(CompatBook::load(state).records().empty());
}

TEST_CASE("a damaged or newer book is an error, and is not overwritten") {
  test::Scratch scratch;
  const auto state = scratch.path() / "s";
  CompatBook::add(state, record(Outcome::verified));
  const auto whole = test::slurp(state / "compat.json");
  for (const auto& text : {whole.substr(0, whole.size() / 2), std::string("[]"), std::string("{\"records\":[{}]}"),
                           std::string("{\"schema_version\":2,\"records\":[]}")}) {
    scratch.write("s/compat.json", text, 0600);
    CHECK_THROWS_AS((void)CompatBook::load(state), Error);
    CHECK_THROWS_AS(CompatBook::add(state, record(Outcome::verified)), Error);
    CHECK(test::slurp(state / "compat.json") == text);
  }
}

TEST_CASE("outcomes have names that come back") {
  for (const auto outcome : {Outcome::verified, Outcome::reported_only, Outcome::failing}) {
    CHECK(outcome_of(outcome_text(outcome)) == outcome);
  }
  CHECK_FALSE(outcome_of("splendid"));
}
