#include "cli/ablation.hpp"

#include <algorithm>
#include <set>
#include <string_view>

namespace lumelift {
namespace {

Lever joined(bool preference, bool library) {
  return preference && library ? Lever::both : preference ? Lever::preference : library ? Lever::library : Lever::neither;
}

/// Compares along both axes of the square.
template <class Member, class Differs>
void judge(const std::vector<AblationArm>& arms, Member member, Differs differs, std::map<std::string, Lever>& out,
           std::vector<std::string>& incomplete) {
  std::set<std::string> names;
  for (const auto& arm : arms) {
    for (const auto& [name, value] : arm.*member) {
      names.insert(name);
    }
  }
  for (const auto& name : names) {
    if (std::any_of(arms.begin(), arms.end(), [&](const AblationArm& arm) { return !(arm.*member).contains(name); })) {
      incomplete.push_back(name);
      continue;
    }
    bool by_preference = false, by_library = false;
    for (const auto& a : arms) {
      for (const auto& b : arms) {
        const bool differ = differs((a.*member).at(name), (b.*member).at(name));
        by_preference = by_preference || (a.library == b.library && a.preference != b.preference && differ);
        by_library = by_library || (a.preference == b.preference && a.library != b.library && differ);
      }
    }
    out[name] = joined(by_preference, by_library);
  }
}

}  // namespace

std::string_view name_of(Lever lever) {
  static constexpr std::string_view names[] = {"neither", "preference", "library", "both"};
  return names[static_cast<std::size_t>(lever)];
}

Levers levers(const std::vector<AblationArm>& arms, double material) {
  Levers out;
  judge(
      arms, &AblationArm::answers, [](const std::string& a, const std::string& b) { return a != b; }, out.answers, out.incomplete);
  judge(
      arms, &AblationArm::figures, [&](double a, double b) { return std::max(a, b) > std::min(a, b) * (1 + material); }, out.figures,
      out.incomplete);
  return out;
}

Lever overall(const std::map<std::string, Lever>& of) {
  bool preference = false, library = false;
  for (const auto& [name, lever] : of) {
    preference = preference || lever == Lever::preference || lever == Lever::both;
    library = library || lever == Lever::library || lever == Lever::both;
  }
  return joined(preference, library);
}

}  // namespace lumelift
