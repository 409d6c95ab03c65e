#pragma once

#include <map>
#include <string>
#include <string_view>

#include "host/host.hpp"

namespace lumelift {

/// The values of the dictionary in an XML property list, as `defaults export` prints it: strictly that subset of XML. Containers,
/// data, dates and numbers beyond 64 bits become a PrefContainer with a digest of their text. Throws Error
/// "preference-unreadable" with the position of what it does not understand. Never recurses deeper than 64.
[[nodiscard]] std::map<std::string, PrefValue> read_property_list(std::string_view text);

}  // namespace lumelift
