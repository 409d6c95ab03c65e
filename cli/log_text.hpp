#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lumelift {

/// "90s", "15m", "2h", "3d", in seconds; nothing when it is none of these, zero, or more than ten years.
[[nodiscard]] std::optional<std::int64_t> duration_from(std::string_view text);

/// The moment that a log line begins with, in seconds since 1970: "2026-11-29T13:04:07", also with a blank for the T, in
/// brackets, with a fraction, and with "Z", "+01:00" or "+0100"; without a zone it is `offset` seconds east of UTC.
[[nodiscard]] std::optional<std::int64_t> moment_of(std::string_view line, std::int64_t offset);

/// The lines since `cutoff`. A line without a moment belongs to the one before it; a text without any is judged as a whole by
/// when it was `changed_at`. Pure.
[[nodiscard]] std::string lines_since(std::string_view text, std::int64_t cutoff, std::int64_t changed_at, std::int64_t offset);

}  // namespace lumelift
