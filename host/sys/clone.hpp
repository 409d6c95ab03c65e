#pragma once

#include <filesystem>

namespace lumelift::sys {

/// Lets `target`, which must not exist, hold the content of the regular file `source` (links followed) without copying a byte: a clone
/// with the same time of writing where the file system has them, else a hard link. Throws Error "file-unwritable" when it can be neither.
void clone_or_link(const std::filesystem::path& source, const std::filesystem::path& target);

/// Whether the two lie on one file system, as clones and hard links need; false for what cannot be looked at.
[[nodiscard]] bool one_file_system(const std::filesystem::path& one, const std::filesystem::path& other);

}  // namespace lumelift::sys
