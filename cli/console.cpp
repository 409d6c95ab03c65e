#include "cli/console.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <system_error>

#include "cli/error_json.hpp"
#include "cli/next_step.hpp"
#include "host/sys/time.hpp"

namespace lumelift {
namespace {

constexpr std::size_t verb_column = 10;      // "  copy      …"
constexpr std::int64_t bar_after_ms = 1000;  // a copy that is over sooner shows no bar
constexpr std::int64_t bar_every_ms = 100;

const char* code_of(Style style) {
  switch (style) {
    case Style::good:
      return "\x1b[32m";
    case Style::warn:
      return "\x1b[33m";
    case Style::bad:
      return "\x1b[31m";
    case Style::dim:
      return "\x1b[2m";
    case Style::bold:
      return "\x1b[1m";
    case Style::plain:
      break;
  }
  return "";
}

std::string painted(std::string_view text, Style style, bool color) {
  if (!color || style == Style::plain) {
    return std::string(text);
  }
  return fmt::format("{}{}\x1b[0m", code_of(style), text);
}

/// The whole text, in spite of a signal or a reader that is slow. Returns 0, or the errno of what stands in the way.
int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n >= 0) {
      text.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      pollfd room{fd, POLLOUT, 0};
      ::poll(&room, 1, -1);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

Error output_error(const char* stream, int code) {
  return code == EPIPE ? Error(ErrorKind::failed, "output-closed", fmt::format("nobody reads standard {} any more", stream))
                       : Error(ErrorKind::failed, "output-unwritable",
                               fmt::format("standard {} cannot be written: {}", stream, std::generic_category().message(code)));
}

std::int64_t now_ms() {
  static const sys::Stopwatch since_start;
  return since_start.elapsed().count();
}

}  // namespace

std::string error_object(const Error& error, int status) {
  const nlohmann::json object = {
      {"id", error.id()}, {"status", status}, {"message", error.message()}, {"details", error.details()}, {"fix", next_step(error)}};
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string interrupted_object(const std::string& next_step) {
  return error_object(Error(ErrorKind::failed, "interrupted", "a signal ended the command").fix(next_step), interrupted_status);
}

Console::Console(Options options) : options_(options) {
  out_tty_ = ::isatty(STDOUT_FILENO) == 1;
  err_tty_ = ::isatty(STDERR_FILENO) == 1;
  const bool forced = options_.color == ColorMode::always;
  const bool wanted = options_.color == ColorMode::automatic && !options_.no_color_env;
  out_color_ = forced || (wanted && out_tty_);
  err_color_ = forced || (wanted && err_tty_);
}

std::string Console::styled(std::string_view text, Style style) const {
  return painted(text, style, out_color_);
}

void Console::result(std::string_view text) {
  end_progress();
  // Colour that we put in ourselves survives: foreign text is cleaned where it enters a line, escapes never come from it.
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t escape = text.find("\x1b[", at);
    const std::size_t end = escape == std::string_view::npos ? std::string_view::npos : text.find('m', escape);
    if (!out_color_ || end == std::string_view::npos || end - escape > 5) {
      out += cleaned(text.substr(at), std::string::npos / 2);
      break;
    }
    out += cleaned(text.substr(at, escape - at), std::string::npos / 2);
    out += text.substr(escape, end + 1 - escape);
    at = end + 1;
  }
  if (out.empty() || out.back() != '\n') {
    out += '\n';
  }
  answer(out);
}

void Console::result_json(std::string_view object) {
  end_progress();
  answered_ = true;
  answer(std::string(object) + "\n");
}

void Console::answer(std::string_view text) {
  // Behind a gap nothing would make sense.
  if (lost_ == 0) {
    lost_ = write_all(STDOUT_FILENO, text);
  }
}

int Console::finish(int status, Purpose purpose) {
  const bool unwanted = lost_ == EPIPE || lost_ == EBADF;
  if (lost_ == 0 || loss_told_ || (unwanted && purpose == Purpose::act)) {
    return status;
  }
  loss_told_ = true;
  Error error = output_error("output", lost_);
  if (purpose == Purpose::act && status == 0) {
    error.note("only the result is lost: what was asked for is done");
  }
  complain(error);
  return status == 0 ? exit_status(error.kind()) : status;
}

void Console::pass(std::string_view bytes, Stream stream) {
  end_progress();
  if (const int code = write_all(stream == Stream::out ? STDOUT_FILENO : STDERR_FILENO, bytes); code != 0) {
    loss_told_ = true;
    throw output_error(stream == Stream::out ? "output" : "error", code);
  }
}

void Console::line(std::string_view text) {
  end_progress();
  write_all(STDERR_FILENO, std::string(text) + "\n");
}

void Console::step(std::string_view verb, std::string_view text) {
  if (options_.verbosity < 0) {
    return;
  }
  line(fmt::format("  {}{}", painted(fmt::format("{:<{}}", cleaned(verb), verb_column), Style::dim, err_color_), cleaned(text)));
}

void Console::say(std::string_view text) {
  if (options_.verbosity >= 0) {
    line(cleaned(text));
  }
}

void Console::warn(std::string_view text) {
  line(painted("warning: ", Style::warn, err_color_) + cleaned(text));
}

void Console::detail(std::string_view text) {
  if (options_.verbosity > 0) {
    line(painted("  . " + cleaned(text), Style::dim, err_color_));
  }
}

void Console::complain(const Error& error) {
  std::string text = painted(fmt::format("error[{}]: ", error.id()), Style::bad, err_color_) + cleaned(error.message());
  for (const auto& detail : error.details()) {
    text += "\n  " + cleaned(detail);
  }
  line(text + "\n  " + painted("next: ", Style::bold, err_color_) + cleaned(next_step(error)));
}

void Console::error(const Error& error) {
  complain(error);
  if (options_.json) {
    result_json(fmt::format("{{\"error\":{}}}", error_object(error, exit_status(error.kind()))));
  }
}

void Console::interrupted() {
  if (options_.json && !answered_) {
    result_json(fmt::format("{{\"error\":{}}}", interrupted_object("see: lumelift status")));
  }
}

void Console::progress(std::string_view what, std::uint64_t done, std::uint64_t total) {
  if (!err_tty_ || options_.verbosity < 0) {
    return;
  }
  const std::int64_t now = now_ms();
  if (bar_started_ms_ == 0) {
    bar_started_ms_ = now;
  }
  const std::int64_t spent = now - bar_started_ms_;
  if (spent < bar_after_ms || (done < total && now - bar_drawn_ms_ < bar_every_ms)) {
    return;
  }
  bar_drawn_ms_ = now;
  const double rate = static_cast<double>(done) * 1000 / static_cast<double>(spent);
  const double left = rate > 0 ? static_cast<double>(total - done) / rate : 0;
  constexpr std::size_t width = 24;
  const std::size_t filled = total > 0 ? static_cast<std::size_t>(width * done / total) : width;
  write_all(STDERR_FILENO, fmt::format("\r\x1b[K  {:<{}}{} [{:#<{}}{:.<{}}] {} of {}  {}/s  {:.0f} s left", "copy", verb_column,
                                       cleaned(what, 60), "", filled, "", width - filled, shown_bytes(done), shown_bytes(total),
                                       shown_bytes(static_cast<std::uint64_t>(rate)), left));
  bar_shown_ = true;
}

void Console::end_progress() {
  if (bar_shown_) {
    write_all(STDERR_FILENO, "\r\x1b[K");
  }
  bar_shown_ = false;
  bar_started_ms_ = bar_drawn_ms_ = 0;
}

}  // namespace lumelift
