#pragma once

#include <sys/stat.h>

#include <string>

namespace lumelift::sys {

/// One word that is another one when a file was written to or replaced: size, times of writing and of change in
/// nanoseconds, inode and device.
[[nodiscard]] std::string stamp(const struct ::stat& about);

}  // namespace lumelift::sys
