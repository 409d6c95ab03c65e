#include "cli/banner.hpp"

#include <charconv>

#include <fmt/format.h>

namespace lumelift {
namespace {

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

/// What follows `phrase` on the line, or nothing.
std::optional<std::string_view> after(std::string_view line, std::string_view phrase) {
  const auto at = line.find(phrase);
  if (at == std::string_view::npos) return std::nullopt;
  return line.substr(at + phrase.size());
}

/// "simdgroup reduction   = true"; builds of 2024 say "simdgroup reduction support   = true".
void read_flag(std::string_view line, std::string_view phrase, std::optional<bool>& flag) {
  auto rest = after(line, phrase);
  if (!rest) return;
  const auto equals = rest->find('=');
  if (equals == std::string_view::npos) return;
  const auto between = trimmed(rest->substr(0, equals));
  if (!between.empty() && between != "support") return;
  const auto value = trimmed(rest->substr(equals + 1));
  if (value == "true") flag = true;
  if (value == "false") flag = false;
}

void read_family(std::string_view line, Banner& banner) {
  const auto rest = after(line, "GPU family: MTLGPUFamily");
  if (!rest) return;
  const auto open = rest->find('(');
  if (open == std::string_view::npos) return;
  int number = 0;
  const auto digits = rest->substr(open + 1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc{} || end == digits.data() + digits.size() || *end != ')') return;
  if (rest->starts_with("Apple")) banner.apple = number;
  if (rest->starts_with("Common")) banner.common = number;
  if (rest->starts_with("Metal")) banner.metal = number;
}

/// Three forms over the years: "Apple X", "MTL0", "MTL0 (Apple X)".
void read_name(std::string_view line, Banner& banner) {
  const auto rest = after(line, "GPU name:");
  if (!rest) return;
  auto name = trimmed(*rest);
  const auto open = name.find('(');
  if (name.starts_with("MTL") && open != std::string_view::npos && name.ends_with(')')) {
    name = name.substr(open + 1, name.size() - open - 2);
  }
  banner.device = name;
}

void read_working_set(std::string_view line, Banner& banner) {
  const auto rest = after(line, "recommendedMaxWorkingSetSize");
  if (!rest) return;
  const auto equals = rest->find('=');
  if (equals == std::string_view::npos) return;
  const auto value = trimmed(rest->substr(equals + 1));
  // strtod is locale-dependent and from_chars for doubles is missing in Apple's library up to Xcode 16: two integers do.
  unsigned long long whole = 0;
  const auto [dot, error] = std::from_chars(value.data(), value.data() + value.size(), whole);
  if (error != std::errc{}) return;
  double fraction = 0, scale = 0.1;
  if (dot != value.data() + value.size() && *dot == '.') {
    for (const char* at = dot + 1; at != value.data() + value.size() && *at >= '0' && *at <= '9'; ++at) {
      fraction += (*at - '0') * scale;
      scale /= 10;
    }
  }
  banner.working_set_mb = static_cast<double>(whole) + fraction;
}

const char* yes_no(const std::optional<bool>& flag) {
  return flag ? (*flag ? "yes" : "no") : "?";
}

}  // namespace

bool Banner::fast_path() const {
  return apple.value_or(0) >= 1007 && simdgroup_reduction.value_or(false) && simdgroup_matrix.value_or(false) && bfloat.value_or(false);
}

bool Banner::same_answers(const Banner& other) const {
  return apple == other.apple && common == other.common && metal == other.metal && simdgroup_reduction == other.simdgroup_reduction &&
         simdgroup_matrix == other.simdgroup_matrix && bfloat == other.bfloat;
}

bool Banner::over_broad() const {
  return apple.value_or(0) > 1010 || common.value_or(0) > 3003;
}

std::string Banner::summary() const {
  std::string text = apple ? fmt::format("Apple{}", *apple - 1000) : "no Apple family";
  if (metal) text += fmt::format(", Metal{}", *metal - 4998);
  return text + fmt::format(", reduction {}, matrix {}, bfloat {}", yes_no(simdgroup_reduction), yes_no(simdgroup_matrix), yes_no(bfloat));
}

Banner parse_banner(std::string_view stderr_text) {
  Banner banner;
  while (!stderr_text.empty()) {
    const auto end = stderr_text.find('\n');
    const auto line = stderr_text.substr(0, end);
    stderr_text.remove_prefix(end == std::string_view::npos ? stderr_text.size() : end + 1);
    read_name(line, banner);
    read_family(line, banner);
    read_flag(line, "simdgroup reduction", banner.simdgroup_reduction);
    read_flag(line, "simdgroup matrix mul.", banner.simdgroup_matrix);
    read_flag(line, "has bfloat", banner.bfloat);
    read_working_set(line, banner);
    if (line.find("asserts enabled") != std::string_view::npos || line.find("debug build") != std::string_view::npos) {
      banner.debug_build = true;
    }
  }
  return banner;
}

}  // namespace lumelift
