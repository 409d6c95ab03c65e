#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lumelift {

/// Names of the profiles in `templates`/profiles, sorted; none when there is no such folder.
[[nodiscard]] std::vector<std::string> profile_names(const std::filesystem::path& templates);

}  // namespace lumelift
