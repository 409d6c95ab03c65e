#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lumelift {

/// What ggml's Metal backend wrote to standard error when it met the device: the only place where a stock and an unlocked
/// run of the same binary differ by more than speed. A field is absent where the line was absent. A plain value.
struct Banner {
  std::string device;         ///< "Apple M1 Ultra", "Apple Paravirtual device"
  std::optional<int> apple;   ///< highest Apple family, 1007 for Apple7
  std::optional<int> common;  ///< highest Common family
  std::optional<int> metal;   ///< highest Metal family; absent when Metal3 is refused
  std::optional<bool> simdgroup_reduction;
  std::optional<bool> simdgroup_matrix;
  std::optional<bool> bfloat;
  std::optional<double> working_set_mb;  ///< decimal megabytes
  bool debug_build = false;              ///< the binary says that asserts or debugging are compiled in

  bool operator==(const Banner&) const = default;

  /// Something about a device was found at all.
  [[nodiscard]] bool present() const { return apple || simdgroup_reduction || simdgroup_matrix || bfloat; }
  /// Family Apple7 or above and all three properties true: the fast kernels were chosen.
  [[nodiscard]] bool fast_path() const;
  /// Families and properties are the same, whatever the timing and memory lines say.
  [[nodiscard]] bool same_answers(const Banner& other) const;
  /// A family that no profile of ours may show, and that no shipping GPU has: the hook was too broad.
  [[nodiscard]] bool over_broad() const;
  /// "Apple5, reduction no, matrix no, bfloat no".
  [[nodiscard]] std::string summary() const;
};

/// Reads the standard error of llama-bench of any version; whatever stands before a known phrase on a line is ignored, and
/// so are unknown lines. Never throws.
[[nodiscard]] Banner parse_banner(std::string_view stderr_text);

}  // namespace lumelift
