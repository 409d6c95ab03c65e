#include "cli/live_lines.hpp"

#include <fmt/format.h>

#include "host/sys/terminal.hpp"

namespace lumelift {
namespace {

constexpr sys::Milliseconds redraw{100};
constexpr int standard_error = 2;

/// As much of the text as fits, by characters: a line that wraps could not be redrawn in place.
std::string first_columns(const std::string& text, std::size_t columns) {
  std::size_t at = 0;
  for (std::size_t seen = 0; at < text.size() && text[at] != '\n'; ++at) {
    const bool begins = (static_cast<unsigned char>(text[at]) & 0xc0) != 0x80;
    if (begins && ++seen > columns) {
      break;
    }
  }
  return text.substr(0, at);
}

std::string up(std::size_t lines) {
  return fmt::format("\x1b[{}A\r\x1b[J", lines);
}

}  // namespace

void LiveLines::show(const std::vector<std::string>& lines) {
  if (!console_.stderr_is_terminal() || (shown_ > 0 && since_.elapsed() < redraw)) {
    return;
  }
  const auto width = static_cast<std::size_t>(sys::window_size(standard_error).value_or(sys::WindowSize{}).columns);
  std::string out = shown_ > 0 ? up(shown_) : "";
  for (const auto& line : lines) {
    out += first_columns(cleaned(line), width - 1) + "\n";
  }
  console_.pass(out, Console::Stream::err);
  shown_ = lines.size();
  since_ = {};
}

void LiveLines::clear() {
  if (shown_ > 0) {
    console_.pass(up(shown_), Console::Stream::err);
  }
  shown_ = 0;
}

}  // namespace lumelift
