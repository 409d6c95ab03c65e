#pragma once

#include "shim/policy.hpp"

namespace lumelift::shim {

/// What a stock guest reports. No Apple-silicon Mac of macOS 13 or later is below family 7 or without Metal 3.
inline constexpr int64_t kStockFamily = 1005;

/// Families that no guest and no Mac of today has: whoever answers yes here answers yes to everything.
inline constexpr int64_t kBeyond[] = {1011, 1012, 1013, 1014, 1015, 1016, 1017, 1018, 1019, 1020, 1021, 2003,
                                      3004, 3005, 3006, 3007, 3008, 5003, 5004, 5005, 5006, 5007, 5008};
inline constexpr size_t kBeyondCount = sizeof kBeyond / sizeof kBeyond[0];

/// What was answered, reduced to what a verdict needs.
struct Answers {
  bool device = false;
  bool paravirtual = false;
  uint32_t families = 0;            // bit i: kFamilies[i]
  uint32_t beyond = 0;              // bit i: kBeyond[i]
  uint64_t threadgroup_memory = 0;  // bytes

  [[nodiscard]] bool family(int64_t value) const noexcept;
  [[nodiscard]] int64_t highest_apple() const noexcept;  // 0: none
};

/// `unlocked` speaks of the answers, not of their cause; the cause is in the library's receipt.
enum class Verdict : uint8_t { stock, unlocked, physical, no_device, over_broad };

/// What the caller says must be true. 0 means not given.
struct Expectation {
  enum class Kind : uint8_t { nothing, stock, unlocked } kind = Kind::nothing;
  int64_t ceiling = 0;
  uint64_t threadgroup_memory = 0;  // bytes
};

/// The exit statuses of the probe.
enum class Exit : int {
  stock = 0,      // also: what --expect asked for
  no_device = 1,  // right after a boot: try again after some seconds
  usage = 2,
  not_as_expected = 3,
  over_broad = 4,  // Metal 3 or 4, a family above the ceiling, or a hole below the highest
  functional_failure = 5,
  self_test_failure = 6,
  unlocked = 10,
  physical = 11,  // not a paravirtual device
};

/// Problems are static texts, at most kMostProblems of them.
inline constexpr size_t kMostProblems = 8;
struct Judgement {
  Verdict verdict = Verdict::no_device;
  const char* problems[kMostProblems] = {};
  size_t count = 0;

  void problem(const char* text) noexcept {
    if (count < kMostProblems) problems[count++] = text;
  }
};

[[nodiscard]] const char* verdict_name(Verdict verdict) noexcept;
[[nodiscard]] Judgement judge(const Answers& answers, const Expectation& expectation) noexcept;
[[nodiscard]] bool holds(const Answers& answers, const Expectation& expectation, Judgement& judgement) noexcept;
[[nodiscard]] Exit exit_status(const Answers& answers, const Expectation& expectation, Judgement& judgement) noexcept;

/// Changes answers in each way that an assertion must notice and asks it. Null when it noticed all, otherwise the name
/// of the change that went unnoticed.
[[nodiscard]] const char* self_test() noexcept;

}  // namespace lumelift::shim
