#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "remote/session.hpp"

namespace lumelift {

/// Who else is logged in by SSH: "lume (ttys000), pid 512". Empty when only we are. One round trip. Throws what Session throws,
/// and "guest-tool-failed".
[[nodiscard]] std::vector<std::string> other_ssh_sessions(Session& session);

/// The same out of "self PID" and the lines of `ps -axo pid=,ppid=,command=` after it; nothing when the text has no "self". Pure.
[[nodiscard]] std::optional<std::vector<std::string>> parse_sessions(std::string_view text);

}  // namespace lumelift
