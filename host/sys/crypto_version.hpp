#pragma once

#include <string>

namespace lumelift::sys {

/// Name and version of the library that hashes, "OpenSSL 3.0.17 …".
[[nodiscard]] std::string crypto_version();

}  // namespace lumelift::sys
