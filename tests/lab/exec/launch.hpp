#pragma once

#include <string>
#include <vector>

namespace lab::exec {

using Strings = std::vector<std::string>;

/// How the host starts what a guest asked to start: the file, arguments and environment for the real execve, or the
/// error number that the guest sees. `error` 86 is "Bad CPU type in executable", which Linux has no number for.
struct Launch {
  int error = 0;
  std::string file;
  Strings argv;
  Strings envp;
};

/// The lab's own variables (LAB_*, and LD_PRELOAD, which is kept as LAB_PRELOAD), remembered from the first call on,
/// so that a guest that empties the environment of a child does not leave the lab by that.
class LabEnvironment {
 public:
  static const LabEnvironment& instance();
  /// The value of one variable, or `fallback`.
  [[nodiscard]] std::string get(const std::string& name, const std::string& fallback = "") const;
  /// Adds what `envp` lacks.
  void complete(Strings& envp) const;

 private:
  LabEnvironment();
  Strings entries_;
};

/// Takes the lab's variables out of this process's own environment; for machrun, whose program should not see them.
void hide_lab_variables();

/// The rules of a Mac for starting `path`: tools of the system come from LAB_GUEST_ROOT and lose DYLD_* while SIP is
/// on; Mach-O files run in machrun; scripts run in the guest's interpreter. Reads files, changes nothing.
[[nodiscard]] Launch plan(const std::string& path, Strings argv, Strings envp);

/// The same for a bare name that is looked up in this process's PATH, as execvp does.
[[nodiscard]] Launch plan_search(const std::string& name, const Strings& argv, const Strings& envp);

/// Where a path under /bin, /sbin, /usr/bin, /usr/sbin or /usr/libexec is in this guest; other paths as they are.
[[nodiscard]] std::string guest_path(const std::string& path);

[[nodiscard]] Strings to_strings(char* const* list);
/// Pointers into `list`, null at the end; valid while `list` is.
[[nodiscard]] std::vector<char*> to_pointers(const Strings& list);

inline constexpr int kBadCpuType = 86;

}  // namespace lab::exec
