#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lumelift {

/// What the injected library is to answer. Valid ever after parsing.
struct Profile {
  std::string name;
  int apple_family_max = 1009;                 ///< 1001 to 1009
  std::uint64_t threadgroup_memory = 65536;    ///< bytes; 0: as the device reports
  std::uint64_t working_set = 0;               ///< bytes; 0: as the device reports
  bool operator==(const Profile&) const = default;
};

/// Reads a profile file, or the one of that name in `templates`/profiles. A name has no '/' and no ".yaml".
/// Throws Error "profile-invalid", "profile-unknown" (lists those there are), "file-unreadable"; all usage.
[[nodiscard]] Profile load_profile(const std::string& name_or_file, const std::filesystem::path& templates);

/// The library's variables for this profile, in a fixed order, as the published names say them.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> profile_environment(const Profile& profile);

/// One file or folder of the host to be copied. Relative destinations lie in the workload's own folder in the guest.
struct FileCopy {
  std::filesystem::path from;
  std::string to;  ///< relative, or absolute, or "~/…"
  bool operator==(const FileCopy&) const = default;
};

/// A program to run in the guest as a LaunchAgent with the library in it.
struct Workload {
  std::string name;                     ///< [a-z0-9-]: names the folder in the guest
  std::string label;                    ///< "io.lumelift.NAME" unless given
  std::string executable;               ///< absolute or "~/…" in the guest; relative: in the workload's folder
  std::vector<FileCopy> files;          ///< includes the executable's host file when it is copied
  std::vector<std::string> arguments;   ///< without the program; a leading "~/" means the guest's home
  std::vector<std::pair<std::string, std::string>> environment;
  std::string working_directory;        ///< empty: the workload's folder
  std::string stdout_log, stderr_log;   ///< empty: lumelift's own log folder
  bool keep_alive = false;
  bool inherit = false;                 ///< children get the library too
  bool operator==(const Workload&) const = default;
};

/// Reads and validates a workload file; host paths in it are relative to the file's folder, and must exist.
/// Throws Error "workload-invalid", "file-unreadable"; all usage.
[[nodiscard]] Workload load_workload(const std::filesystem::path& file);

}  // namespace lumelift
