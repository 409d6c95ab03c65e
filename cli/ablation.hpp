#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lumelift {

/// What one of the four combinations of host preference and library showed.
struct AblationArm {
  bool preference = false, library = false;
  std::map<std::string, std::string> answers;  ///< what the probe was told: "Apple family" → "5"; equal text, equal answer
  std::map<std::string, double> figures;       ///< what the command achieved: "pp512" in tokens/s, "seconds"
  std::string ending;                          ///< how the command ended; empty without one
  bool operator==(const AblationArm&) const = default;
};

/// Which of the two levers changes something. `both`: each of them does, in some position of the other.
enum class Lever { neither, preference, library, both };
/// "neither", "preference", "library", "both".
[[nodiscard]] std::string_view name_of(Lever lever);

/// For each answer and each figure that every arm has, the lever that it moves by. `arms` are the four combinations, in any
/// order. Figures count as equal while the larger is less than `material` above the smaller (0.1: ten per cent). Pure.
struct Levers {
  std::map<std::string, Lever> answers, figures;
  std::vector<std::string> incomplete;  ///< shown by some arms only
};
[[nodiscard]] Levers levers(const std::vector<AblationArm>& arms, double material);

/// All of them together: the one lever that matters, for answers and for figures.
[[nodiscard]] Lever overall(const std::map<std::string, Lever>& of);

}  // namespace lumelift
