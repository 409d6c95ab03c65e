#pragma once

#include <string>
#include <string_view>

namespace lumelift {

/// The end of foreign text, at most 400 bytes and without blank edges: what goes into a message. Console makes it fit for a
/// terminal.
[[nodiscard]] std::string excerpt(std::string_view text);

}  // namespace lumelift
