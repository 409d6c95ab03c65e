#include "host/sys/excerpt.hpp"

namespace lumelift {

std::string excerpt(std::string_view text) {
  constexpr std::string_view blanks(" \t\r\n\0", 5);
  constexpr std::size_t cap = 400;
  const auto last = text.find_last_not_of(blanks);
  if (last == std::string_view::npos) return "(no text)";
  text = text.substr(0, last + 1);
  text.remove_prefix(text.find_first_not_of(blanks));
  if (text.size() <= cap) return std::string(text);
  std::size_t start = text.size() - cap;
  // Not into the middle of a character.
  while (start < text.size() && (static_cast<unsigned char>(text[start]) & 0xc0) == 0x80) ++start;
  return "…" + std::string(text.substr(start));
}

}  // namespace lumelift
