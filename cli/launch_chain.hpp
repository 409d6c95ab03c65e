#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lumelift {

enum class EntryKind { missing, file, folder, symlink, other };

/// What is at a path itself (a symbolic link is not followed).
struct PathLook {
  EntryKind kind = EntryKind::missing;
  unsigned mode = 0;   ///< permission bits with setuid and setgid
  std::string target;  ///< of a symbolic link
};

/// How files are seen: those of this host, those of a guest, or a set that is about to be copied. `read` returns a
/// whole file and throws Error when it cannot.
struct FileView {
  std::function<PathLook(const std::string& path)> look;
  std::function<std::string(const std::string& path)> read;
};

/// The files of this host, up to 2 GiB each.
[[nodiscard]] FileView host_files();

/// One hop between what the user names and the program that does the work.
struct ChainLink {
  enum class Role {
    symlink,
    bundle,  ///< folder NAME.app
    script,  ///< text file with an interpreter line
    tool,    ///< starts what follows in its arguments: env, nohup
    shell,   ///< reads the script in front of it, and may end in what follows
    stub,    ///< Mach-O program that starts another one, as python3 of a framework does
    program,
  };
  Role role = Role::program;
  std::string path;
  unsigned mode = 0;
  bool system = false;  ///< part of macOS, by its path: protected while SIP is on
  bool operator==(const ChainLink&) const = default;
};

/// From what the user names to the program, in order. The last link is the program unless `open_end` says why it is
/// unknown.
struct LaunchChain {
  std::vector<ChainLink> links;
  std::string open_end;
  [[nodiscard]] bool found() const { return open_end.empty() && !links.empty(); }
  [[nodiscard]] const ChainLink& program() const { return links.back(); }
};

/// Whether the path belongs to macOS itself (/bin, /sbin, /usr but /usr/local, /System).
[[nodiscard]] bool is_system_path(std::string_view path);

/// Follows links, bundles, interpreter lines, env, nohup and their like, and shell scripts that end in exec. Files of
/// macOS are judged by their path and not read. `argv[0]` is absolute or found in the usual folders. Ends after 16
/// hops. Throws nothing of its own; what `view` throws ends up in `open_end`.
[[nodiscard]] LaunchChain follow(std::vector<std::string> argv, const FileView& view);

/// The argument vector that a shell script ends with (`exec PROGRAM …`), as far as it can be told without running it;
/// empty when it cannot. `path` stands for $0.
[[nodiscard]] std::vector<std::string> exec_target(std::string_view script, const std::string& path);

}  // namespace lumelift
