#pragma once

#include <string>

namespace lumelift {

/// Of the SQLite that is in use, "3.40.1".
[[nodiscard]] std::string sqlite_version();

}  // namespace lumelift
