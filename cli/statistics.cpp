#include "cli/statistics.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

namespace lumelift {
namespace {

constexpr std::size_t resamples = 10'000;
constexpr std::uint64_t seed = 0x6c756d656c696674;  // "lumelift"
/// Above this many samples a resample's median is found from the distribution of its rank.
constexpr std::size_t draw_limit = 200;

std::vector<double> sorted(std::span<const double> rates) {
  std::vector<double> values(rates.begin(), rates.end());
  std::sort(values.begin(), values.end());
  return values;
}

double middle(std::span<const double> ordered) {
  const auto half = ordered.size() / 2;
  return ordered.size() % 2 ? ordered[half] : (ordered[half - 1] + ordered[half]) / 2;
}

/// SplitMix64. The standard library's distributions differ between implementations; this does not.
class Generator {
 public:
  explicit Generator(std::uint64_t start) : state_(start) {}

  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15;
    auto z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  std::size_t below(std::size_t limit) {
    // Multiply-shift on the upper half; the bias for limits of our size is under 1e-7.
    return static_cast<std::size_t>(((next() >> 32) * limit) >> 32);
  }

 private:
  std::uint64_t state_;
};

double resampled_median(std::span<const double> ordered, std::vector<std::size_t>& drawn, Generator& random) {
  const auto count = ordered.size();
  if (count > draw_limit) {
    // The rank at which the median of a resample falls is, for large counts, binomial (count, 1/2): as many ones as there
    // are in `count` random bits. Beyond 4,096 that is a bell curve, so those many bits are stretched to the count. The same
    // interval as drawing `count` samples, at a hundredth of the time.
    const auto bits = std::min<std::size_t>(count, 4096);
    std::size_t ones = 0, left = bits;
    for (; left >= 64; left -= 64) ones += static_cast<std::size_t>(std::popcount(random.next()));
    if (left > 0) ones += static_cast<std::size_t>(std::popcount(random.next() >> (64 - left)));
    const auto half_bits = static_cast<double>(bits) / 2, half = static_cast<double>(count) / 2;
    const auto stretch = std::sqrt(half / half_bits);
    const auto rank = static_cast<std::size_t>(std::max(0.0, half + (static_cast<double>(ones) - half_bits) * stretch));
    return ordered[std::min(rank, count - 1)];
  }
  drawn.resize(count);
  for (auto& index : drawn) index = random.below(count);
  const auto half = drawn.begin() + static_cast<std::ptrdiff_t>(count / 2);
  std::nth_element(drawn.begin(), half, drawn.end());
  if (count % 2) return ordered[*half];
  return (ordered[*std::max_element(drawn.begin(), half)] + ordered[*half]) / 2;
}

}  // namespace

Summary summarise(std::span<const double> rates) {
  const auto ordered = sorted(rates);
  return {ordered.size(), middle(ordered), ordered.front(), ordered.back()};
}

Ratio median_ratio(std::span<const double> numerator, std::span<const double> denominator) {
  const auto above = sorted(numerator), below = sorted(denominator);
  Generator random(seed);
  std::vector<std::size_t> drawn;
  std::vector<double> ratios(resamples);
  for (auto& ratio : ratios) {
    const auto top = resampled_median(above, drawn, random);
    ratio = top / resampled_median(below, drawn, random);
  }
  std::sort(ratios.begin(), ratios.end());
  return {middle(above) / middle(below), ratios[resamples / 40], ratios[resamples - 1 - resamples / 40]};
}

Verdict judge(const Ratio& ratio, double material) {
  if (ratio.low >= 1 - material && ratio.high <= 1 + material) return Verdict::unchanged;
  if (ratio.low > 1 && ratio.value > 1 + material) return Verdict::faster;
  if (ratio.high < 1 && ratio.value < 1 - material) return Verdict::slower;
  return Verdict::inconclusive;
}

std::string_view verdict_text(Verdict verdict) {
  switch (verdict) {
    case Verdict::faster:
      return "faster";
    case Verdict::slower:
      return "slower";
    case Verdict::unchanged:
      return "no material change";
    case Verdict::inconclusive:
      break;
  }
  return "inconclusive";
}

std::optional<Outlier> lone_outlier(std::span<const double> rates) {
  if (rates.size() < 4) return std::nullopt;
  const auto whole = summarise(rates);
  // Only an end of the range can widen it.
  const auto further = whole.median - whole.min > whole.max - whole.median ? whole.min : whole.max;
  const auto at = std::find(rates.begin(), rates.end(), further) - rates.begin();
  std::vector<double> rest(rates.begin(), rates.end());
  rest.erase(rest.begin() + at);
  const auto without = summarise(rest).spread();
  if (without > whole.spread() / 2) return std::nullopt;
  return Outlier{static_cast<std::size_t>(at), further, without};
}

double six_digits(double value) {
  if (!(value > 0) || !std::isfinite(value)) return value;
  const auto exponent = 5 - static_cast<int>(std::floor(std::log10(value)));
  // Multiply or divide by an exact power of ten, so that the result is the double nearest to the six-digit decimal.
  const auto scale = std::pow(10.0, std::abs(exponent));
  return exponent >= 0 ? std::nearbyint(value * scale) / scale : std::nearbyint(value / scale) * scale;
}

}  // namespace lumelift
