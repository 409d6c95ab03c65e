#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "cli/profile.hpp"
#include "host/host.hpp"
#include "host/journal.hpp"
#include "host/lume.hpp"
#include "remote/guest.hpp"

namespace lumelift {

/// One change each, carrying both sides: a step is its own undo record. Holds no handle, secret or code.
struct SetPower {
  Power before, after;
  StartOptions start;  ///< how the VM ran before, for either direction
  bool operator==(const SetPower&) const = default;
};
struct SetPreference {
  PrefKey key;
  PrefValue before, after;
  bool operator==(const SetPreference&) const = default;
};
/// Makes a folder that was absent. On undo it is removed when empty, or `with_content` where everything in it is made by
/// what we installed (logs, receipts).
struct MakeFolder {
  std::string path;
  unsigned mode = 0755;
  bool with_content = false;
  bool operator==(const MakeFolder&) const = default;
};
struct PutFile {
  std::string path;
  std::filesystem::path source;  ///< host file; empty when `content` is what goes there
  std::optional<FileState> before;
  FileState after;      ///< no SHA-256 yet for a large file whose hash is computed while it is sent
  std::string content;  ///< never recorded: it may hold what a user wants to keep to himself
  bool operator==(const PutFile&) const = default;
};
/// Puts one line into a text file that belongs to somebody else, such as authorized_keys; the undo takes out just that line.
struct AddLine {
  std::string path, line;
  bool new_file = false;  ///< there was no file: the undo removes it when nothing else is in it
  bool operator==(const AddLine&) const = default;
};
enum class AgentState { disabled, unloaded, loaded };
struct SetAgent {
  std::string domain, label, plist;
  AgentState before, after;
  bool operator==(const SetAgent&) const = default;
};
/// Makes a folder of this Mac with clones of files, or links to them, for a VM to be started with; the undo removes it. An item
/// without a source is an empty file.
struct StageShare {
  struct Item {
    std::filesystem::path source;
    std::string name;  ///< below the folder
    bool operator==(const Item&) const = default;
  };
  std::string folder;
  std::vector<Item> items;
  bool operator==(const StageShare&) const = default;
};
using Step = std::variant<SetPower, SetPreference, MakeFolder, PutFile, AddLine, SetAgent, StageShare>;

/// True for steps that need the guest to answer.
[[nodiscard]] bool in_guest(const Step& step);
/// One line for a person: "put ~/x (34 kB)", "host preference … absent → true".
[[nodiscard]] std::string described(const Step& step);
/// The same of taking it back: "remove ~/x", "host preference … true → absent".
[[nodiscard]] std::string described_undo(const Step& step);
/// One JSON object, and back. from_json throws Error "journal-unreadable".
[[nodiscard]] std::string to_json(const Step& step);
[[nodiscard]] Step step_from_json(const std::string& body);
[[nodiscard]] std::string to_json(const PrefValue& value);
[[nodiscard]] PrefValue pref_from_json(const std::string& body);

/// Ordered steps for one VM. Equal inputs give equal plans.
struct Plan {
  std::string vm;
  std::vector<Step> steps;
  std::vector<std::string> notes;  ///< what a reader should know: why a restart, what will not take effect yet
  bool operator==(const Plan&) const = default;
};

enum class Restart { automatic, always, never };

/// What was seen of the host side.
struct HostView {
  Vm vm;
  PrefValue preference;
  std::vector<Claim> claims;                     ///< on the preference, of all VMs
  std::optional<std::int64_t> running_since;     ///< seconds of sys::up_seconds(); from the guest's uptime
  std::optional<std::int64_t> preference_since;  ///< the same: when it was set, as far as it was in this start of the Mac
};

/// Preference, restart, start. Throws Error "vm-not-ready" (busy) for a status that is neither stopped nor running, and
/// "preference-foreign" (usage) for a container value that we could not put back.
[[nodiscard]] Plan plan_host(const HostView& view, Restart restart, bool set_preference);

/// A host file on its way to the guest.
struct Source {
  std::filesystem::path file;
  std::string to;  ///< as in FileCopy
  FileState state;
  Delivery delivery = Delivery::copy;
  bool operator==(const Source&) const = default;
};

/// What is to stand in the guest: a pure function of its inputs.
struct GuestGoal {
  struct Folder {
    std::string path;
    unsigned mode;
    bool with_content;
  };
  struct File {
    std::string path;
    std::filesystem::path source;
    std::string content;
    FileState state;
  };
  struct Agent {
    std::string domain, label, plist, receipt;
    std::vector<std::string> command;
    std::string stdout_log, stderr_log;
    Readiness ready;  ///< its command's paths absolute
  };
  std::vector<Folder> folders;  ///< parents first
  std::vector<File> files;      ///< the agents' plists last, in the order of `agents`
  std::vector<Agent> agents;
  std::string library, probe, probe_receipt;  ///< absolute guest paths
  bool receipts = true;                       ///< the library writes them; one that a user brought does not

  /// All paths, folders first: what has to be looked at.
  [[nodiscard]] std::vector<std::string> paths() const;
};
/// `kit` are library and probe, `sources` the workload's files. Throws Error "workload-invalid", "agent-invalid".
[[nodiscard]] GuestGoal guest_goal(const Profile& profile, const std::optional<Workload>& workload, const std::vector<Source>& kit,
                                   const std::vector<Source>& sources, const GuestFacts& facts, std::string_view agent_skeleton);

/// `seen` in the order of goal.paths(); `agents` in the order of goal.agents, as launchd sees the labels. A changed file of the
/// workload restarts all of its agents, a changed plist only its own. Throws Error "guest-path-unsafe" where something
/// else than a file or folder is in the way, "agent-label-taken" when the label was loaded from another plist,
/// "agent-folder-unsafe" for LaunchAgents of another owner or writable by others.
[[nodiscard]] Plan plan_guest(const std::string& vm, const GuestGoal& goal, const std::vector<PathSeen>& seen,
                              const std::vector<AgentSeen>& agents, const GuestFacts& facts);

/// What has to be done so that `key`, a line of authorized_keys, stands in the guest; nothing when it does. `ssh_folder` is what stands
/// at ~/.ssh. Throws Error "guest-path-unsafe".
[[nodiscard]] std::vector<Step> plan_key(const std::string& home, const std::string& key, const PathSeen& ssh_folder, LineSeen line);
[[nodiscard]] std::string authorized_keys(const std::string& home);

/// The guest folder that holds everything of ours.
[[nodiscard]] std::string guest_root(const std::string& home);

}  // namespace lumelift
