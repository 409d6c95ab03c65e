#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "host/sys/fd.hpp"
#include "host/sys/time.hpp"

namespace lumelift::sys {

namespace fs = std::filesystem;

/// Whole content of a regular file of at most `cap` bytes. Throws Error "file-unreadable" (usage) naming path and reason
/// (missing, folder, FIFO, too large, permission).
[[nodiscard]] std::string read_file(const fs::path& path, std::size_t cap);

/// What a log has beyond `from` bytes, at most its last `cap` bytes; all of it when it became shorter than that, nothing when
/// it cannot be read.
[[nodiscard]] std::string read_tail(const fs::path& path, std::uint64_t from, std::size_t cap);

/// Replaces `path` durably: temporary file beside it, fsync, rename, fsync of the folder. Mode as given. Throws Error
/// "file-unwritable".
void write_file(const fs::path& path, std::string_view content, unsigned mode);

/// Makes `path` with missing parents, mode 0700, and checks that it is a real folder owned by us and not writable by
/// others. Throws Error "state-folder-unusable" with the reason and the fix.
void ensure_private_folder(const fs::path& path);

/// An flock on a close-on-exec descriptor: gone with the process, however it ends. The file's content (who, since when,
/// doing what) only informs.
class FileLock {
 public:
  /// Waits up to `deadline`; throws Error "lock-held" (busy) that names the holder and since when.
  FileLock(const fs::path& path, std::string_view purpose, const Deadline& deadline);
  FileLock(FileLock&&) noexcept = default;
  FileLock& operator=(FileLock&&) noexcept = default;

  /// The holder's own words while the lock is held by anybody, else nothing. Never blocks.
  [[nodiscard]] static std::optional<std::string> holder(const fs::path& path);

 private:
  Fd fd_;
};

}  // namespace lumelift::sys
