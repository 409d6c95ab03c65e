#pragma once

#include <string>
#include <vector>

#include "remote/guest.hpp"

namespace lumelift {

/// What stands at a path itself (a symbolic link is not followed), without reading or hashing it.
struct PathEntry {
  PathKind kind = PathKind::absent;
  unsigned mode = 0;   ///< permission bits with setuid, setgid and sticky
  std::string target;  ///< of a symbolic link
  bool operator==(const PathEntry&) const = default;
};

/// One round trip. Throws what Session throws, "guest-unreadable", "guest-path-unsafe".
[[nodiscard]] PathEntry entry_at(Session& session, const std::string& path);

/// The files that the process has mapped, its libraries among them, as lsof names them, else vmmap; empty when neither knows
/// the process. Throws what Session throws.
[[nodiscard]] std::vector<std::string> mapped_files(Session& session, int pid);

/// The processes that listen on this TCP port. Throws what Session throws.
[[nodiscard]] std::vector<int> listeners(Session& session, int port);

// Readers of what those tools print. Pure.
[[nodiscard]] std::vector<std::string> parse_lsof(std::string_view text);
[[nodiscard]] std::vector<std::string> parse_vmmap(std::string_view text);

}  // namespace lumelift
