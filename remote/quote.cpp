#include <algorithm>

#include "host/sys/error.hpp"
#include "remote/guest.hpp"

namespace lumelift {

std::string quote(std::string_view word) {
  if (word.find('\0') != std::string_view::npos) {
    throw Error(ErrorKind::usage, "unquotable", "a word for the guest's shell holds a NUL byte, which no command can carry");
  }
  std::string quoted = "'";
  for (const char letter : word) {
    if (letter == '\'') {
      quoted += "'\\''";
    } else {
      quoted += letter;
    }
  }
  return quoted += '\'';
}

std::string quote(const std::vector<std::string>& words) {
  std::string line;
  for (const auto& word : words) {
    if (!line.empty()) {
      line += ' ';
    }
    line += quote(word);
  }
  return line;
}

std::string without_case(std::string_view path) {
  std::string out(path);
  std::transform(out.begin(), out.end(), out.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return out;
}

}  // namespace lumelift
