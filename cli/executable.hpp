#pragma once

#include <filesystem>

namespace lumelift {

/// The file that this process runs, links resolved; the place from which installed files are found.
[[nodiscard]] std::filesystem::path executable_path();

}  // namespace lumelift
