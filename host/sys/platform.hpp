#pragma once

#include <filesystem>

namespace lumelift::sys {

/// Where only a name or a folder differs between the two systems. Calls that differ are behind functions of host/sys.
#ifdef __APPLE__
inline constexpr bool on_macos = true;
#else
inline constexpr bool on_macos = false;
#endif

/// The file that this process runs, links resolved; the place from which installed files are found. Empty where the system does not tell.
[[nodiscard]] std::filesystem::path executable_path();

}  // namespace lumelift::sys
