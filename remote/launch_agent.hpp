#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lumelift {

/// A LaunchAgent as the plist is to say it. All paths absolute.
struct AgentSpec {
  std::string label;
  std::vector<std::string> arguments;  ///< [0] is the program
  std::vector<std::pair<std::string, std::string>> environment;
  std::string working_directory;
  std::string stdout_path, stderr_path;
  bool keep_alive = false;
  bool any_session = false;  ///< for user/UID: LimitLoadToSessionType of Aqua and Background
};

/// The plist's text: `skeleton` (templates/agent.plist) with its @KEYS@ filled in. Pure. Escapes every value; values are
/// strings where launchd wants strings. Throws Error "agent-invalid" (usage) that names the value: control bytes other than
/// tab and newline, invalid UTF-8, an empty program, a relative path, a label outside [A-Za-z0-9._-].
[[nodiscard]] std::string render_agent(std::string_view skeleton, const AgentSpec& spec);

}  // namespace lumelift
