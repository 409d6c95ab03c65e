#include "cli/log_text.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>

namespace lumelift {
namespace {

constexpr std::int64_t longest_s = std::int64_t{3653} * 24 * 3600;

/// Exactly `digits` decimal digits at `at`.
std::optional<int> digits_at(std::string_view text, std::size_t at, std::size_t digits) {
  if (at + digits > text.size()) {
    return std::nullopt;
  }
  int value = 0;
  for (const char c : text.substr(at, digits)) {
    if (c < '0' || c > '9') {
      return std::nullopt;
    }
    value = value * 10 + (c - '0');
  }
  return value;
}

/// "Z", "+01:00", "+0100" at `at`, behind a fraction and a blank; seconds east of UTC.
std::optional<std::int64_t> zone_at(std::string_view text, std::size_t at) {
  if (at < text.size() && (text[at] == '.' || text[at] == ',')) {
    ++at;
    while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
      ++at;
    }
  }
  if (at < text.size() && text[at] == 'Z') {
    return 0;
  }
  if (at < text.size() && text[at] == ' ') {
    ++at;
  }
  if (at >= text.size() || (text[at] != '+' && text[at] != '-')) {
    return std::nullopt;
  }
  const auto hours = digits_at(text, at + 1, 2);
  const bool colon = at + 3 < text.size() && text[at + 3] == ':';
  const auto minutes = digits_at(text, at + 3 + (colon ? 1 : 0), 2);
  if (!hours || !minutes) {
    return std::nullopt;
  }
  return (*hours * 60 + *minutes) * 60 * (text[at] == '-' ? -1 : 1);
}

}  // namespace

std::optional<std::int64_t> duration_from(std::string_view text) {
  if (text.size() < 2) {
    return std::nullopt;
  }
  constexpr std::string_view units = "smhd";
  constexpr std::int64_t lengths[] = {1, 60, 3600, 86400};
  const auto unit = units.find(text.back());
  std::int64_t count = 0;
  text.remove_suffix(1);
  const auto [last, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (unit == units.npos || error != std::errc{} || last != text.data() + text.size() || count <= 0 || count > longest_s / lengths[unit]) {
    return std::nullopt;
  }
  return count * lengths[unit];
}

std::optional<std::int64_t> moment_of(std::string_view line, std::int64_t offset) {
  if (line.starts_with('[')) {
    line.remove_prefix(1);
  }
  constexpr std::size_t length = 19;
  if (line.size() < length || line[4] != '-' || line[7] != '-' || (line[10] != 'T' && line[10] != ' ') || line[13] != ':' ||
      line[16] != ':') {
    return std::nullopt;
  }
  const auto year = digits_at(line, 0, 4), month = digits_at(line, 5, 2), day = digits_at(line, 8, 2);
  const auto hour = digits_at(line, 11, 2), minute = digits_at(line, 14, 2), second = digits_at(line, 17, 2);
  if (!year || !month || !day || !hour || !minute || !second || *hour > 23 || *minute > 59 || *second > 60) {
    return std::nullopt;
  }
  const std::chrono::year_month_day date{std::chrono::year(*year), std::chrono::month(static_cast<unsigned>(*month)),
                                         std::chrono::day(static_cast<unsigned>(*day))};
  if (!date.ok()) {
    return std::nullopt;
  }
  const std::int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  return days * 86400 + *hour * 3600 + *minute * 60 + *second - zone_at(line, length).value_or(offset);
}

std::string lines_since(std::string_view text, std::int64_t cutoff, std::int64_t changed_at, std::int64_t offset) {
  std::string out;
  bool dated = false, wanted = false;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find('\n', at), text.size() - 1) + 1;
    const std::string_view line = text.substr(at, end - at);
    if (const auto moment = moment_of(line, offset)) {
      dated = true;
      wanted = *moment >= cutoff;
    }
    if (wanted) {
      out += line;
    }
    at = end;
  }
  if (dated) {
    return out;
  }
  return changed_at >= cutoff ? std::string(text) : std::string();
}

}  // namespace lumelift
