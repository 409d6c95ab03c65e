#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace lumelift {

/// Order statistics of one series of rates. Medians and ranges only: a mean lets one stalled repetition speak for all, and
/// llama-bench's own deviation of times wraps around in 64 bits.
struct Summary {
  std::size_t count = 0;
  double median = 0, min = 0, max = 0;

  /// (max - min) / median, 0.05 for five per cent.
  [[nodiscard]] double spread() const { return median > 0 ? (max - min) / median : 0; }
  bool operator==(const Summary&) const = default;
};

/// `rates` must not be empty.
[[nodiscard]] Summary summarise(std::span<const double> rates);

/// A ratio of medians with its 95 % interval.
struct Ratio {
  double value = 0, low = 0, high = 0;
  bool operator==(const Ratio&) const = default;
};

/// Ratio of the medians of two series (neither empty). The interval is the percentile bootstrap: both series are drawn from
/// with replacement, 10,000 times, and the 2.5th and 97.5th percentile of the ratios are its ends. Percentile rather than BCa,
/// because BCa estimates its acceleration by leaving one sample out, and a median then takes only two or three values, so
/// the correction would be noise. The generator is our own with a fixed seed, and the samples are sorted first: equal samples
/// give the same interval on every machine, in whatever order they were measured. With three samples it is little more
/// than the range; that is what three samples can say.
[[nodiscard]] Ratio median_ratio(std::span<const double> numerator, std::span<const double> denominator);

enum class Verdict {
  faster,        ///< the whole interval lies above 1, and beyond what counts as material
  slower,        ///< the whole interval lies below 1, likewise
  unchanged,     ///< the whole interval lies within the material limit around 1: shown to be no change
  inconclusive,  ///< neither: more or calmer samples are needed
};

/// `material` is the smallest change that is worth a word, 0.05 for five per cent.
[[nodiscard]] Verdict judge(const Ratio& ratio, double material);
/// "faster", "slower", "no material change", "inconclusive".
[[nodiscard]] std::string_view verdict_text(Verdict verdict);

/// The one sample that makes a series look unsteady.
struct Outlier {
  std::size_t index = 0;  ///< from 0, in run order
  double rate = 0;
  double spread_without = 0;
};

/// The sample whose removal at least halves the spread, if one alone does; needs four samples or more.
[[nodiscard]] std::optional<Outlier> lone_outlier(std::span<const double> rates);

/// `value` at six significant digits, the resolution of llama-bench's own `samples_ts`.
[[nodiscard]] double six_digits(double value);

}  // namespace lumelift
