#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>

namespace lumelift {

/// A value of a kind that nobody here asks for: an array, a dictionary, a date, data, a real number.
struct OtherValue {
  bool operator==(const OtherValue&) const = default;
};
using PropertyValue = std::variant<bool, std::int64_t, std::string, OtherValue>;

/// The outermost dictionary of a property list; of nested values only that they are there.
using PropertyDict = std::map<std::string, PropertyValue, std::less<>>;

/// Reads the XML form (entitlements, Info.plist). Bounded in time by the length of the text and in depth by 64. Throws
/// Error "plist-unreadable" (usage), which says so when the text is a binary property list.
[[nodiscard]] PropertyDict parse_plist_xml(std::string_view text);

/// Reads the DER form of entitlements (without the blob header). Throws Error "macho-damaged" (usage).
[[nodiscard]] PropertyDict parse_entitlements_der(std::span<const std::byte> bytes);

}  // namespace lumelift
