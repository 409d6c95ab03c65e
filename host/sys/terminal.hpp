#pragma once

#include <signal.h>
#include <termios.h>

#include <optional>
#include <string>
#include <vector>

#include "host/sys/fd.hpp"

namespace lumelift::sys {

struct WindowSize {
  int columns = 80, rows = 24;
  bool operator==(const WindowSize&) const = default;
};

/// The size of the terminal behind `fd`; nothing when it is none or does not know.
[[nodiscard]] std::optional<WindowSize> window_size(int fd);

/// Hands every key of a terminal on as it is, control keys included, while it is alive. Puts the former settings back.
class RawTerminal {
 public:
  /// Does nothing where `fd` is no terminal.
  explicit RawTerminal(int fd);
  ~RawTerminal();
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

 private:
  int fd_;
  std::optional<::termios> before_;
};

/// While it is alive, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 and SIGWINCH are news to be passed on, not a reason to end. Puts
/// the former handlers back. One at a time.
class SignalRelay {
 public:
  SignalRelay();
  ~SignalRelay();
  SignalRelay(const SignalRelay&) = delete;
  SignalRelay& operator=(const SignalRelay&) = delete;

  /// Readable when take() has something, for poll().
  [[nodiscard]] int fd() const { return pipe_.read.get(); }
  /// The signals since the last call, in order.
  [[nodiscard]] std::vector<int> take();

 private:
  struct Former {
    int signal;
    struct ::sigaction action;
  };
  Pipe pipe_;
  std::vector<Former> former_;
};

/// "INT" for SIGINT, as kill(1) and SSH write it; nothing for what has no portable name. And back.
[[nodiscard]] std::optional<std::string> signal_name(int signal);
[[nodiscard]] std::optional<int> signal_number(const std::string& name);

}  // namespace lumelift::sys
