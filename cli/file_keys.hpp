#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lumelift {

/// One key of a file that people write. Readers check names and bounds against it, and the JSON Schemas are made of it.
struct FileKey {
  enum class Type {
    version,  ///< the number `most`
    string,   ///< never a plain number, boolean or null
    text,     ///< as string, but a plain number is taken as it is written
    number,   ///< whole, from `least` to `most`
    boolean,
    texts,    ///< list of text, at least `least` of them
    strings,  ///< list of string
    map,      ///< names to text
    object,   ///< keys of its own
    objects,  ///< list of objects
    string_or_object,
  };
  enum class Need { optional, required, one_of };  ///< one_of: of the keys that are marked so, exactly one is there
  std::string_view name;
  Type type;
  Need need;
  std::string_view text;
  std::uint64_t least = 0, most = 0;  ///< bounds of a number; most bytes of a string, 0: any
  std::string_view pattern = {};      ///< a string, or a map's names, match it as a whole (ECMAScript); read by editors alone
  std::span<const FileKey> keys = {};
};

/// One kind of file.
struct FileFormat {
  std::string_view name, title;
  std::span<const FileKey> keys;
  std::string_view instead = {};  ///< a list of objects that may stand in place of those keys of it that the file has too
};
[[nodiscard]] const FileFormat& profile_format();
[[nodiscard]] const FileFormat& workload_format();
[[nodiscard]] const FileFormat& settings_format();
[[nodiscard]] const FileFormat& fleet_format();
[[nodiscard]] std::span<const FileFormat> file_formats();

/// The key of that name, which must be there.
[[nodiscard]] const FileKey& key_of(std::span<const FileKey> keys, std::string_view name);

/// JSON Schema (2020-12) of a format, for editors: indented, ends with a newline.
[[nodiscard]] std::string json_schema(const FileFormat& format);

}  // namespace lumelift
