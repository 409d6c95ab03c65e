#pragma once

#include <string_view>

namespace lumelift {

/// Foreign text on its way to the JSON reader: itself, or nothing when its brackets nest deeper than 64. Copying or printing
/// such a value would take one stack frame per level, and a guest can send millions of them.
[[nodiscard]] std::string_view json_text(std::string_view text);

}  // namespace lumelift
