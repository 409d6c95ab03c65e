#include "shim/verdict.hpp"

namespace lumelift::shim {
namespace {

uint32_t bit_of(int64_t family) {
  for (size_t i = 0; i < kFamilyCount; ++i)
    if (kFamilies[i] == family) return uint32_t{1} << i;
  return 0;
}

bool has_hole(const Answers& answers) {
  for (int64_t family = kApple1; family < answers.highest_apple(); ++family)
    if (!answers.family(family)) return true;
  return false;
}

}  // namespace

bool Answers::family(int64_t value) const noexcept {
  return (families & bit_of(value)) != 0;
}

int64_t Answers::highest_apple() const noexcept {
  int64_t highest = 0;
  for (size_t i = 0; i < kFamilyCount; ++i)
    if ((families >> i & 1) != 0 && kFamilies[i] < 2000) highest = kFamilies[i];
  return highest;
}

const char* verdict_name(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::stock:
      return "stock";
    case Verdict::unlocked:
      return "unlocked";
    case Verdict::physical:
      return "physical";
    case Verdict::no_device:
      return "no-device";
    case Verdict::over_broad:
      return "over-broad";
  }
  return "";
}

Judgement judge(const Answers& answers, const Expectation& expectation) noexcept {
  Judgement result;
  if (!answers.device) {
    result.problem("no Metal device: neither the default device nor the list of devices has one");
    return result;
  }
  if (!answers.paravirtual) {
    result.verdict = Verdict::physical;
    return result;
  }
  const int64_t ceiling = expectation.ceiling != 0 ? expectation.ceiling : kHighestCeiling;
  // A guest that reports more by itself than a low ceiling asks for is no fault of the profile.
  if (answers.highest_apple() > ceiling && answers.highest_apple() > kStockFamily)
    result.problem("an Apple family above the ceiling is answered with yes");
  if (answers.family(5001)) result.problem("Metal 3 is claimed: programs would use objects that this device cannot make");
  if (answers.family(5002)) result.problem("Metal 4 is claimed: programs would use objects that this device cannot make");
  if (answers.beyond != 0) result.problem("families that do not exist are answered with yes");
  if (has_hole(answers)) result.problem("an Apple family below the highest one is answered with no");
  if (result.count != 0)
    result.verdict = Verdict::over_broad;
  else
    result.verdict = answers.highest_apple() > kStockFamily ? Verdict::unlocked : Verdict::stock;
  return result;
}

bool holds(const Answers& answers, const Expectation& expectation, Judgement& judgement) noexcept {
  if (expectation.kind == Expectation::Kind::stock) {
    if (judgement.verdict == Verdict::unlocked) judgement.problem("expected stock answers, but families are raised");
    return judgement.verdict == Verdict::stock || judgement.verdict == Verdict::physical;
  }
  if (judgement.verdict == Verdict::stock) judgement.problem("expected raised answers, but they are those of a stock guest");
  if (judgement.verdict != Verdict::unlocked) return false;
  bool good = true;
  if (expectation.ceiling != 0 && answers.highest_apple() != expectation.ceiling) {
    judgement.problem("the highest Apple family is not the ceiling");
    good = false;
  }
  if (answers.threadgroup_memory < expectation.threadgroup_memory) {
    judgement.problem("threadgroup memory is below what was expected");
    good = false;
  }
  return good;
}

Exit exit_status(const Answers& answers, const Expectation& expectation, Judgement& judgement) noexcept {
  if (judgement.verdict == Verdict::no_device) return Exit::no_device;
  if (judgement.verdict == Verdict::over_broad) return Exit::over_broad;
  if (expectation.kind != Expectation::Kind::nothing) return holds(answers, expectation, judgement) ? Exit::stock : Exit::not_as_expected;
  switch (judgement.verdict) {
    case Verdict::unlocked:
      return Exit::unlocked;
    case Verdict::physical:
      return Exit::physical;
    default:
      return Exit::stock;
  }
}

const char* self_test() noexcept {
  struct Case {
    const char* name;
    int64_t highest;
    uint32_t more;     // families besides Apple1 up to `highest`
    uint32_t missing;  // families taken out again
    uint32_t beyond;
    uint64_t threadgroup_memory;
    Expectation::Kind kind;
    Exit expected;
  };
  using Kind = Expectation::Kind;
  const Case cases[] = {
      {"a good unlock passes", 1009, 0, 0, 0, 65536, Kind::unlocked, Exit::stock},
      {"a stock guest passes as stock", 1005, 0, 0, 0, 32768, Kind::stock, Exit::stock},
      {"stock answers", 1005, 0, 0, 0, 32768, Kind::unlocked, Exit::not_as_expected},
      {"raised answers where stock is expected", 1009, 0, 0, 0, 65536, Kind::stock, Exit::not_as_expected},
      {"a family short of the ceiling", 1008, 0, 0, 0, 65536, Kind::unlocked, Exit::not_as_expected},
      {"too little threadgroup memory", 1009, 0, 0, 0, 32768, Kind::unlocked, Exit::not_as_expected},
      {"a family above the ceiling", 1010, 0, 0, 0, 65536, Kind::unlocked, Exit::over_broad},
      {"Metal 3", 1009, bit_of(5001), 0, 0, 65536, Kind::unlocked, Exit::over_broad},
      {"Metal 4", 1009, bit_of(5002), 0, 0, 65536, Kind::unlocked, Exit::over_broad},
      {"a family that does not exist", 1009, 0, 0, 1, 65536, Kind::unlocked, Exit::over_broad},
      {"a hole", 1009, 0, bit_of(1006), 0, 65536, Kind::unlocked, Exit::over_broad},
  };
  for (const Case& c : cases) {
    Answers answers;
    answers.device = answers.paravirtual = true;
    for (int64_t family = kApple1; family <= c.highest; ++family) answers.families |= bit_of(family);
    answers.families = (answers.families | c.more) & ~c.missing;
    answers.beyond = c.beyond;
    answers.threadgroup_memory = c.threadgroup_memory;
    Expectation expectation;
    expectation.kind = c.kind;
    if (c.kind == Kind::unlocked) expectation = {c.kind, 1009, 65536};
    Judgement judgement = judge(answers, expectation);
    if (exit_status(answers, expectation, judgement) != c.expected) return c.name;
  }
  const Answers nothing{};
  Judgement judgement = judge(nothing, {});
  return exit_status(nothing, {}, judgement) == Exit::no_device ? nullptr : "no device";
}

}  // namespace lumelift::shim
