#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "cli/evidence.hpp"

namespace lumelift {

inline constexpr std::size_t evidence_file_cap = 64u << 20;  ///< bytes of one file
inline constexpr std::size_t evidence_count_cap = 20'000;    ///< files of one bundle

/// What follows from raw/ and the limits alone; packing writes it, verifying compares it.
struct Derived {
  Bundle bundle;
  std::string results_csv, metadata_json;
};

/// Throws Error for an unreadable folder or an environment.json of the wrong shape.
[[nodiscard]] Derived derive_evidence(const std::filesystem::path& raw, const Limits& limits);

struct FolderListing {
  std::vector<std::filesystem::path> files;  ///< regular files, relative, sorted
  std::vector<std::string> others;           ///< links, devices and the like
};
/// Throws Error "evidence-folder" (usage) if it is no folder or holds too many files.
[[nodiscard]] FolderListing list_folder(const std::filesystem::path& folder);

}  // namespace lumelift
