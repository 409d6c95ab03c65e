#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "remote/guest.hpp"

namespace lumelift {

/// One thing to copy. `to` is relative to the destination and begins with the name of what the user named.
struct CopyItem {
  PathKind kind = PathKind::file;  ///< file, folder or link
  std::string from;                ///< absolute, on the side it comes from
  std::string to;
  std::string target;      ///< of a link, as it is written
  std::uint64_t size = 0;  ///< bytes; of a file of this Mac
  unsigned mode = 0644;    ///< permission bits; of a file of this Mac
};

/// Files and folders of this Mac, folders walked, parents before what is in them. A link that is named itself is
/// followed; one inside a folder stays a link. Throws Error "file-unreadable", "copy-link-escapes" (a link that leads
/// out of what is copied), "copy-special-file", "copy-name-twice"; usage.
[[nodiscard]] std::vector<CopyItem> copy_items(const std::vector<std::string>& sources);

/// The same for what was found in a guest below `folder`, which is copied as `name`.
[[nodiscard]] std::vector<CopyItem> copy_items(const std::string& folder, const std::string& name,
                                               const std::vector<Guest::Entry>& entries);

/// True when a link that stands at `place` (relative to the copied folder's own place) and says `target` leads to
/// somewhere inside of that folder.
[[nodiscard]] bool stays_inside(const std::string& place, const std::string& target);

}  // namespace lumelift
