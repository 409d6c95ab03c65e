#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "remote/session.hpp"

namespace lumelift {

/// A piece of a file that grows.
struct LogPiece {
  std::uint64_t from = 0, size = 0;  ///< where the piece begins; how long the file is
  std::int64_t changed_at = 0;       ///< seconds since 1970, by the guest's clock
  std::string text;                  ///< at most what was asked for; foreign
};

/// Reads up to `most` bytes: behind `from`, or the file's end where `from` is absent. A file that is shorter than `from` was
/// rotated and is read from its start. Nothing when there is no such file. Throws what Session throws, "guest-unreadable".
[[nodiscard]] std::optional<LogPiece> read_log(Session& session, const std::string& path, std::optional<std::uint64_t> from,
                                               std::uint64_t most);

/// Moves a log's content to "PATH.1" and what was there to "PATH.2" and so on, `keep` of them; the log itself is emptied in place,
/// since launchd keeps it open and appends. What is printed between the copy and the emptying is lost. Only logs of at least
/// `least` bytes; says whether it was done. Throws what Session throws, "log-not-rotated" when the guest could not.
[[nodiscard]] bool rotate_log(Session& session, const std::string& path, std::uint64_t least, int keep);

/// The guest's clock.
struct GuestClock {
  std::int64_t now = 0;     ///< seconds since 1970
  std::int64_t offset = 0;  ///< seconds east of UTC
};
[[nodiscard]] GuestClock guest_clock(Session& session);
/// "1764422000 +0100". Pure. Throws Error "guest-unreadable".
[[nodiscard]] GuestClock parse_clock(std::string_view text);

}  // namespace lumelift
