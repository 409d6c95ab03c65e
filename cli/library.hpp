#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.hpp"
#include "cli/plan.hpp"
#include "shim/macho.hpp"

namespace lumelift {

/// Where the injected library comes from. Only our own writes receipts and keeps itself from children.
enum class LibraryOrigin { own, published, accepted };
/// "own", "published", "accepted".
[[nodiscard]] std::string_view name_of(LibraryOrigin origin);

/// One slice of it and the file that it was taken from.
struct LibrarySlice {
  Cpu cpu = Cpu::other;
  std::string sha256;  ///< of the slice's own bytes
  std::string file, file_sha256;
  bool operator==(const LibrarySlice&) const = default;
};

/// The library that goes into the guest, as one file of this Mac under the name that it has there.
struct ChosenLibrary {
  Source source;
  LibraryOrigin origin = LibraryOrigin::own;
  std::vector<LibrarySlice> slices;
};

/// Our own (`own`), or what the user brought: each file is a published release by its SHA-256, or has its SHA-256 among
/// `options.accepted`; all of them are whole Mach-O libraries for macOS with intact page hashes, and one has arm64. Several are
/// joined into one universal file in `state_dir`/libraries, named by its hash. Throws Error "library-unknown" (names the
/// hash), "library-invalid", "file-unreadable", "library-option" (a hash that no file has); usage.
[[nodiscard]] ChosenLibrary choose_library(const LibraryOptions& options, const Source& own, const std::filesystem::path& state_dir);

/// One universal file out of the slices of the files: each slice's bytes unchanged, aligned to 16 KiB, lowest CPU number
/// first; equal input gives equal bytes. One file with one slice stays as it is. Pure. Throws Error "library-invalid" (usage)
/// for two slices of one CPU, or a file that is no Mach-O.
[[nodiscard]] std::string join_slices(const std::vector<std::string>& contents);

/// One JSON object for reports.
[[nodiscard]] std::string to_json(const ChosenLibrary& library);

}  // namespace lumelift
