#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "host/sys/terminal.hpp"
#include "host/sys/time.hpp"

namespace lumelift {

/// A terminal for the remote command. It merges the two streams.
struct TerminalRequest {
  std::string type = "xterm";  ///< TERM
  sys::WindowSize size;
};

/// How a remote command talks with whoever started it.
struct Interaction {
  int input = -1;  ///< descriptor whose bytes are forwarded until its end; -1: none, the command sees end-of-file
  /// Called with each piece as it comes. May throw, which ends the command's channel.
  std::function<void(std::string_view piece, bool is_err)> on_output = {};
  std::optional<TerminalRequest> terminal = {};
  int wake = -1;                   ///< descriptor: when it is readable, on_wake is called
  sys::Milliseconds every{1'000};  ///< and at least this often
  /// May use the Session for short commands of its own. Returns the new size of the terminal when that has changed.
  std::function<std::optional<sys::WindowSize>()> on_wake = {};
};

}  // namespace lumelift
