#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "remote/manifest.hpp"
#include "remote/session.hpp"
#include "remote/transfer.hpp"

namespace lumelift {

/// One word for any shell the guest may have (zsh, bash, dash): single quotes, each ' as '\''. The only way foreign text gets
/// into a command line. Throws Error "unquotable" for a NUL byte.
[[nodiscard]] std::string quote(std::string_view word);
[[nodiscard]] std::string quote(const std::vector<std::string>& words);  ///< joined by blanks

/// A path with its ASCII letters in one case: on a Mac's disk, as it is made by default, equal ones are one name.
[[nodiscard]] std::string without_case(std::string_view path);

/// What was seen of a macOS guest.
struct GuestFacts {
  std::string user, home, shell;
  unsigned uid = 0;
  std::string os, build;                         ///< "26.5.2", "25F84"
  std::string model, chip;                       ///< hw.model "VirtualMac2,1", brand string "Apple M1 Ultra (Virtual)"
  std::string identity;                          ///< IOPlatformUUID, else kern.uuid: changes when the VM is cloned or recreated
  std::uint64_t memory = 0;                      ///< bytes
  std::optional<std::uint64_t> disk_free;        ///< bytes available on the home volume; nothing when df gave no figure
  std::int64_t booted_at = 0;                    ///< kern.boottime: seconds since 1970, by the guest's own clock; 0 when it does not tell
  std::int64_t up_seconds = 0;                   ///< since then, by the same clock
  std::optional<bool> sip;                       ///< System Integrity Protection; nothing when csrutil says neither
  bool gui_domain = false, user_domain = false;  ///< launchctl knows gui/UID, user/UID
  bool operator==(const GuestFacts&) const = default;

  /// The domain that agents go to: "gui/501" where it exists, else "user/501".
  [[nodiscard]] std::string domain() const;
};

/// What launchd says of one label in one domain. A label that is not known there is `unloaded`.
struct AgentSeen {
  bool loaded = false;
  bool disabled = false;  ///< a disabled override stands in the domain
  std::string path;       ///< of the plist it was loaded from
  std::optional<int> pid;
  std::optional<int> last_exit;
  std::string last_exit_text;  ///< "78: EX_CONFIG", "signal Killed: 9"; empty when it never ended
  bool held_back = false;      ///< launchd will start it again, but not yet: it ended too soon after its last start
  int runs = 0;                ///< starts since it was loaded
  std::vector<std::pair<std::string, std::string>> environment;

  /// "last exit code 78: EX_CONFIG", "last ended by signal Killed: 9", "never ended".
  [[nodiscard]] std::string last_end() const;
};

/// A label as launchd had it, and the time since then.
struct AgentGlimpse {
  AgentSeen seen;
  sys::Stopwatch since;
};

/// The file kinds that matter at a path.
enum class PathKind { absent, file, folder, link, other };
struct PathSeen {
  PathKind kind = PathKind::absent;
  std::optional<FileState> file;  ///< for PathKind::file; nothing when it cannot be read
  unsigned mode = 0;
  unsigned owner = 0;  ///< uid
  bool operator==(const PathSeen&) const = default;
};

/// Whether a line stands in a text file.
enum class LineSeen { no_file, missing, present };

/// What stands at some paths by the guest's stat, and what the manifest knows of it.
struct Recalled {
  std::string home;
  std::vector<PathSeen> seen;       ///< `file->sha256` is empty where nothing is known
  std::vector<std::string> stamps;  ///< as in Manifest::Entry; empty where no file stands
  Manifest manifest;
};

/// macOS knowledge on top of one authenticated Session: facts, files, launchd, probe. Absolute tool paths, no GNU flags, every
/// argument through quote(). Not durable beyond what each call says. Throws what Session throws, and: "guest-unreadable"
/// (an answer that cannot be understood, quoted and capped), "guest-tool-failed", "guest-path-unsafe", "guest-read-only",
/// "guest-folder-not-empty" (incomplete), "program-unusable" (usage), and for launchd each truth its own id:
/// "agent-plist-refused", "agent-domain-missing" (125, 112), "agent-disabled" (119), "agent-not-loaded" (0 or 5 with nothing
/// there), "agent-exits" (loads and ends at once; with status), "agent-path-unopenable" (78), "agent-still-loaded".
class Guest {
 public:
  explicit Guest(Session& session) : session_(session) {}

  /// One round trip.
  [[nodiscard]] GuestFacts facts(const sys::Deadline& deadline);

  /// What stands at each absolute path, in order; one round trip for all, hashing in the guest.
  [[nodiscard]] std::vector<PathSeen> look(const std::vector<std::string>& paths, const sys::Deadline& deadline);
  /// As look(), without reading any file: what a checksum is known of, unchanged in size, times and inode, comes from the
  /// manifest, and other files have an empty one. "~/x" is a path in the guest user's home, which is told too.
  [[nodiscard]] Recalled recall(const std::vector<std::string>& paths, const sys::Deadline& deadline);
  /// Replaces the manifest, and makes its folder where there is none. What another lumelift has noted meanwhile is lost: that
  /// costs time only.
  void keep(const Manifest& manifest);
  /// Makes one folder whose parent exists, with exactly `mode`.
  void make_folder(const std::string& path, unsigned mode);
  /// The same for several, in order, in one round trip: a parent stands before what is in it.
  struct NewFolder {
    std::string path;
    unsigned mode;
  };
  void make_folders(const std::vector<NewFolder>& folders);
  /// Removes a folder: only when empty, or with all that is in it. Refuses a link. Absent already is success.
  enum class Remove { empty_only, with_content };
  void remove_folder(const std::string& path, Remove how);
  /// Makes symbolic links, in one round trip; one that stands there already gets the new target, anything else is refused. How
  /// many differed; a dry run only counts them.
  struct NewLink {
    std::string path, target;
  };
  std::size_t make_links(const std::vector<NewLink>& links, bool dry_run = false);
  /// Where the share with a file of that name in it is mounted in the guest; asked again until the deadline, since a guest mounts
  /// its shares some time after its start. Nothing when there is none.
  [[nodiscard]] std::optional<std::string> share_with(const std::string& marker, const sys::Deadline& deadline);
  /// Sets permission bits.
  void set_mode(const std::string& path, unsigned mode);
  /// What is below a folder, depth first, links not followed.
  struct Entry {
    PathKind kind;
    std::string path, target;
  };
  [[nodiscard]] std::vector<Entry> walk(const std::string& folder, const sys::Deadline& deadline);
  /// Removes a file or link; absent already is success.
  void remove_file(const std::string& path);
  /// One line of a text file whose folder exists; what else is in it keeps its bytes. add_line() puts it first, in a new file of mode
  /// 0600 where there is none. remove_line() takes one such line out, wherever it stands by now; absent already is success.
  [[nodiscard]] LineSeen line_in(const std::string& path, const std::string& line);
  void add_line(const std::string& path, const std::string& line);
  enum class EmptyFile { keep, remove };
  void remove_line(const std::string& path, const std::string& line, EmptyFile empty);
  /// True when the quarantine attribute is on the file.
  [[nodiscard]] bool quarantined(const std::string& path);

  /// launchd.
  [[nodiscard]] AgentSeen agent(const std::string& domain, const std::string& label);
  /// The same, and after it the content of a file of at most 64 KiB (nothing when there is none); one round trip.
  [[nodiscard]] std::pair<AgentSeen, std::optional<std::string>> agent_and_file(const std::string& domain, const std::string& label,
                                                                                const std::string& path);
  /// As agent(), while the guest's plutil checks a plist before anything is written. Throws "agent-plist-refused".
  [[nodiscard]] AgentSeen lint_and_agent(std::string_view plist, const std::string& domain, const std::string& label);
  /// Loads the plist and looks until the label is there, as returned; decides status 5, 37, 119, 125 by looking, never by number alone.
  AgentGlimpse bootstrap(const std::string& domain, const std::string& label, const std::string& plist, const sys::Deadline& deadline);
  /// Unloads and waits until launchd no longer knows the label. Unknown already is success.
  void bootout(const std::string& domain, const std::string& label, const sys::Deadline& deadline);
  void enable(const std::string& domain, const std::string& label);
  void disable(const std::string& domain, const std::string& label);

  /// Runs a program directly, with exactly these variables added at the last exec ("env -u … NAME=… program"), so that
  /// nothing in between can strip DYLD names.
  [[nodiscard]] ExecResult run_program(const std::vector<std::string>& argv,
                                       const std::vector<std::pair<std::string, std::string>>& environment, const sys::Deadline& deadline,
                                       const ExecOptions& options = {});

  /// Flushes disks and asks the guest to shut down: sudo without a password, else with `password` on standard input, else
  /// by the login window's event. Returns how ("sudo shutdown"), or nothing when the guest would not; the reason is in `why`.
  [[nodiscard]] std::optional<std::string> shut_down(const std::optional<sys::Secret>& password, std::string& why);

 private:
  Session& session_;
};

}  // namespace lumelift
