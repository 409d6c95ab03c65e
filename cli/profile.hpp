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
  int apple_family_max = 1009;               ///< 1001 to 1009
  std::uint64_t threadgroup_memory = 65536;  ///< bytes; 0: as the device reports
  std::uint64_t working_set = 0;             ///< bytes; 0: as the device reports
  bool operator==(const Profile&) const = default;
};

/// Reads a profile file, or the one of that name in `templates`/profiles. A name has no '/' and no ".yaml".
/// Throws Error "profile-invalid", "profile-unknown" (lists those there are), "file-unreadable"; all usage.
[[nodiscard]] Profile load_profile(const std::string& name_or_file, const std::filesystem::path& templates);

/// The library's variables for this profile, in a fixed order, as the published names say them.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> profile_environment(const Profile& profile);

/// How large files of a workload reach its guest: over SSH, or from a folder of this Mac that the VM is started with.
enum class TransferWay { automatic, share, ssh };
/// What becomes of a file: a copy stands in the guest, or it stays here and the guest reads it from a share.
enum class Delivery { copy, share };

/// One file or folder of the host to be copied. Relative destinations lie in the workload's own folder in the guest.
struct FileCopy {
  std::filesystem::path from;
  std::string to;  ///< relative, or absolute, or "~/…"
  Delivery delivery = Delivery::copy;
  bool operator==(const FileCopy&) const = default;
};

/// How it is known that a program has started up. At most one of the three is given.
struct Readiness {
  std::optional<int> port;           ///< the program itself listens on this TCP port of the guest
  std::string log;                   ///< text that one of its two logs holds since it was started
  std::vector<std::string> command;  ///< of the guest; ready when it ends with 0
  int within_s = 60;                 ///< seconds from the start; then it counts as failed
  [[nodiscard]] bool wanted() const { return port || !log.empty() || !command.empty(); }
  bool operator==(const Readiness&) const = default;
};

/// A program to run in the guest as a LaunchAgent with the library in it.
struct WorkloadAgent {
  std::string name;                    ///< names its logs and receipt; empty for the only agent of a workload
  std::string label;                   ///< "io.lumelift.WORKLOAD" or "io.lumelift.WORKLOAD.NAME" unless given
  std::string executable;              ///< absolute or "~/…" in the guest; relative: in the workload's folder
  std::vector<std::string> arguments;  ///< without the program; a leading "~/" means the guest's home
  std::vector<std::pair<std::string, std::string>> environment;
  std::string working_directory;       ///< empty: the workload's folder
  std::string stdout_log, stderr_log;  ///< empty: lumelift's own log folder
  bool keep_alive = false;
  bool inherit = false;  ///< children get the library too
  Readiness ready;
  bool operator==(const WorkloadAgent&) const = default;
};

/// Files for one folder of the guest, and the programs that run from it: one, or several with names.
struct Workload {
  std::string name;                   ///< [a-z0-9-]: names the folder in the guest
  std::vector<FileCopy> files;        ///< includes the programs' host files where they are copied
  std::vector<WorkloadAgent> agents;  ///< labels and names are distinct
  TransferWay transfer = TransferWay::automatic;
  bool operator==(const Workload&) const = default;
};

/// Reads and validates a workload file; host paths in it are relative to the file's folder, and must exist.
/// Throws Error "workload-invalid", "file-unreadable"; all usage.
[[nodiscard]] Workload load_workload(const std::filesystem::path& file);

}  // namespace lumelift
