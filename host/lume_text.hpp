#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "host/lume.hpp"

namespace lumelift::lume_text {

/// The VMs in what lume printed: the first line that begins a JSON value which is a VM object or an array of them, whatever
/// log lines stand around it. An empty vector for `[]` and for no output; nothing when there is output without such a value.
[[nodiscard]] std::optional<std::vector<Vm>> vms_in(std::string_view output);

/// "0.5.3" out of the output of `lume --version`.
[[nodiscard]] std::optional<std::string> version_in(std::string_view output);
/// Compares number by number; what follows the third counts for nothing.
[[nodiscard]] bool at_least(std::string_view version, std::string_view minimum);

/// "Virtual machine not found", "Virtual machine not running": the two errors that are answers.
[[nodiscard]] bool says_not_found(std::string_view text);
[[nodiscard]] bool says_not_running(std::string_view text);

/// Why a VM did not start, as its log tells it.
enum class StartFailure { none, limit, locked, keychain, display, other };
[[nodiscard]] StartFailure start_failure_in(std::string_view log);

/// What `lume run --detach` printed.
struct Detached {
  std::optional<int> pid;
  std::optional<std::string> log;
};
[[nodiscard]] Detached detached_in(std::string_view output);

/// The end of `text` for a message, the password in a VNC address masked.
[[nodiscard]] std::string quoted(std::string_view text);

}  // namespace lumelift::lume_text
