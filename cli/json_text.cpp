#include "cli/json_text.hpp"

namespace lumelift {

std::string_view json_text(std::string_view text) {
  constexpr int deepest = 64;
  int depth = 0;
  bool in_string = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string) {
      if (c == '\\') {
        ++at;
      }
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > deepest) {
        return {};
      }
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return text;
}

}  // namespace lumelift
