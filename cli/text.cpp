#include <fmt/format.h>

#include <algorithm>

#include "cli/console.hpp"

namespace lumelift {
namespace {

/// Length of the well-formed UTF-8 sequence at `at`, or 0. Overlong forms, surrogates and values above U+10FFFF are refused.
std::size_t sequence_length(std::string_view text, std::size_t at, char32_t& code) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  if (first < 0x80) {
    code = first;
    return 1;
  }
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc2 ? 2 : 0;
  if (length == 0 || first > 0xf4 || at + length > text.size()) {
    return 0;
  }
  code = first & (0xff >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) {
      return 0;
    }
    code = (code << 6) | (byte(at + i) & 0x3f);
  }
  constexpr char32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < smallest[length] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) {
    return 0;
  }
  return length;
}

/// Controls, and the marks that reorder a line of text on the screen.
bool unsafe(char32_t code) {
  if (code == '\n' || code == '\t') {
    return false;
  }
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069) ||
         code == 0x200e || code == 0x200f || code == 0x2028 || code == 0x2029;
}

std::size_t display_width(std::string_view text) {
  std::size_t width = 0;
  bool escape = false;
  for (const char c : text) {
    if (c == '\x1b') {
      escape = true;
    }
    // Our own colour sequences end with 'm'; continuation bytes add no column.
    if (!escape && (static_cast<unsigned char>(c) & 0xc0) != 0x80) {
      ++width;
    }
    if (escape && c == 'm') {
      escape = false;
    }
  }
  return width;
}

}  // namespace

std::string cleaned(std::string_view text, std::size_t cap) {
  std::string out;
  out.reserve(std::min(text.size(), cap));
  for (std::size_t at = 0; at < text.size();) {
    if (out.size() >= cap) {
      return out + " [cut]";
    }
    char32_t code = 0;
    const std::size_t length = sequence_length(text, at, code);
    if (length == 0) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[at]));
      ++at;
      continue;
    }
    if (code == '\r' && at + 1 < text.size() && text[at + 1] == '\n') {
      ++at;
      continue;
    }
    if (unsafe(code)) {
      out += code < 0x80 ? fmt::format("\\x{:02x}", static_cast<unsigned>(code)) : fmt::format("\\u{:04x}", static_cast<unsigned>(code));
    } else {
      out += text.substr(at, length);
    }
    at += length;
  }
  return out;
}

std::string table(const std::vector<std::vector<std::string>>& rows, const std::vector<std::size_t>& right) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], display_width(row[i]));
    }
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - display_width(row[i]), ' ');
      const bool to_the_right = std::find(right.begin(), right.end(), i) != right.end();
      if (to_the_right) {
        line += padding;
      }
      line += row[i];
      if (i + 1 < row.size()) {
        line += to_the_right ? "  " : padding + "  ";
      }
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string shown_bytes(std::uint64_t bytes) {
  if (bytes < 1000) {
    return fmt::format("{} B", bytes);
  }
  constexpr const char* units[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
  double value = static_cast<double>(bytes) / 1000;
  std::size_t unit = 0;
  while (value >= 999.5 && unit + 1 < std::size(units)) {
    value /= 1000;
    ++unit;
  }
  return value < 9.95 && unit > 0 ? fmt::format("{:.1f} {}", value, units[unit]) : fmt::format("{:.0f} {}", value, units[unit]);
}

}  // namespace lumelift
