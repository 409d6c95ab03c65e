#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "host/sys/excerpt.hpp"
#include "remote/session.hpp"

namespace lumelift {

/// What a script of ours printed between its two marker lines, and how it ended.
struct ScriptAnswer {
  std::string body;
  int status = 0;
  std::string err;

  [[nodiscard]] bool ok() const { return status == 0; }
};

/// The command line that runs `script` in the guest's /bin/sh, with $1 … set to `arguments`. Every word is quoted, so the
/// login shell, its aliases and options have no say; the output is framed, so what start files print does not matter.
[[nodiscard]] std::string script_command(std::string_view script, const std::vector<std::string>& arguments);

/// The script's text within its frame, for a /bin/sh that reads it from standard input: no limit of length.
[[nodiscard]] std::string framed(std::string_view script);

/// Cuts out what stands between the marker lines. Pure. Nothing when they are not there.
[[nodiscard]] std::optional<ScriptAnswer> unframe(std::string_view out);

/// Runs a script. Throws what Session throws, "guest-lost" when the connection ended under it, and "guest-unreadable" when
/// no frame came back. `what` completes "cannot …".
[[nodiscard]] ScriptAnswer run_script(Session& session, std::string_view what, std::string_view script,
                                      const std::vector<std::string>& arguments, const sys::Deadline& deadline,
                                      const ExecOptions& options = {});
/// The same for text without arguments and of any length.
[[nodiscard]] ScriptAnswer run_long_script(Session& session, std::string_view what, std::string_view script, const sys::Deadline& deadline);
/// For scripts whose background jobs answer side by side: `tell KEY TEXT` prints one record with the text on one line, so that it
/// is one write and no other can come between. A Mac's /bin/sh is bash, which writes line by line, and at most 1 KiB at once.
inline constexpr std::string_view tell_function = R"sh(tell() (
  key=$1 mark=$(printf '\035')
  set -f
  IFS='
'
  set -- $2
  IFS=$mark
  printf '%s\037%.900s\036' "$key" "$*"
)
)sh";
/// The lines of such a text again, without the empty ones.
[[nodiscard]] std::string unflattened(std::string_view text);
/// Reads the answer out of a finished command.
[[nodiscard]] ScriptAnswer script_answer(std::string_view what, const ExecResult& result);

/// "/a/b" and nothing else: absolute, no empty, "." or ".." part, no NUL. Throws Error "guest-path-unsafe" (usage).
void require_plain_path(const std::string& path);
/// The folders on the way to `path` that are ours alone (below ~/.local/share/lumelift), outermost first.
[[nodiscard]] std::vector<std::string> own_folders_above(const std::string& path);

}  // namespace lumelift
