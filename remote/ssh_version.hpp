#pragma once

#include <string>

namespace lumelift {

/// Of the libssh2 that is in use, "1.10.0".
[[nodiscard]] std::string ssh_version();

}  // namespace lumelift
