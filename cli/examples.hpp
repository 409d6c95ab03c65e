#pragma once

#include <string>
#include <string_view>

namespace lumelift {

/// Lines to try for a command, shown by --help, man pages and the manual; each behind `indent`, without a last newline.
/// Empty for a name without any.
[[nodiscard]] std::string examples_of(std::string_view command, std::string_view indent = "");

}  // namespace lumelift
