#pragma once

#include <string>

namespace lumelift {

/// One JSON object: this program's version, the compiler, and the version of every library that is linked or compiled
/// in.
[[nodiscard]] std::string versions_json(const std::string& own);

}  // namespace lumelift
