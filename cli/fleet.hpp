#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/yaml_reader.hpp"
#include "host/lume.hpp"

namespace lumelift {

/// A command of the user's, run on this Mac around a stop of a VM: words, no shell. Empty: none.
using Hook = std::vector<std::string>;

/// What a fleet file wants of one VM, all variables filled in and all paths resolved.
struct FleetVm {
  std::string name;                ///< as lume stores it
  std::string place;               ///< "fleet.yaml:12:5" of its entry
  std::string profile = "tested";  ///< name or path of a file
  std::vector<std::filesystem::path> workloads;
  std::optional<std::string> user;  ///< login: what is absent comes from the command line
  std::optional<int> port;
  std::optional<std::filesystem::path> key, password_file;
  int timeout_s = 180;                  ///< from starting the VM until its guest must answer
  std::string host_preference = "set";  ///< set, keep
  Hook before_stop, after_start;
  int hook_timeout_s = 3600;
};

/// A Mac of the fleet, for the inventory and for `--on`.
struct FleetHost {
  std::string name;
  std::string address;  ///< empty: this Mac
  std::optional<std::string> user;
  std::optional<int> port;
  std::string lumelift = "lumelift";  ///< the program there
  std::optional<int> guest_limit;
};

/// A fleet file with the files that it includes. What stands in an including file wins over what it includes: its entries come
/// first, its variables and defaults count. Read whole and checked when loaded; holds no state of the world.
/// Throws Error (usage) "fleet-invalid" with file, line and column, "file-unreadable".
class Fleet {
 public:
  /// `home` is what "~/" means.
  [[nodiscard]] static Fleet load(const std::filesystem::path& file, const std::filesystem::path& home);

  [[nodiscard]] const std::vector<FleetHost>& hosts() const { return hosts_; }
  /// The host that is meant by `on`, or, when that is empty, the only one, or the only one without an address; nothing for a
  /// file without hosts. Throws Error "fleet-host-unknown", "fleet-host-needed"; usage.
  [[nodiscard]] std::optional<FleetHost> host(const std::string& on) const;
  /// macOS guests that may run at a time: of the host, of the file, or Apple's two.
  [[nodiscard]] int guest_limit(const std::optional<FleetHost>& host) const;

  /// The VMs of `listed` that an entry for this host names or matches, in the order of the entries. An entry with the VM's
  /// exact name counts before patterns, the first pattern before later ones. `unmatched` gets the places of patterns that match
  /// nothing. Throws "vm-unknown" (usage) for a name that is not listed.
  [[nodiscard]] std::vector<FleetVm> vms(const std::string& host, const std::vector<Vm>& listed, std::vector<std::string>& unmatched) const;
  /// The names of VMs that stand in the file for this host, not those that only a pattern covers.
  [[nodiscard]] std::vector<std::string> named_vms(const std::string& host) const;

  /// SHA-256 over all files that were read.
  [[nodiscard]] const std::string& digest() const { return digest_; }

 private:
  /// A value with the folder that relative paths in it start from.
  struct Setting {
    YamlValue value;
    std::filesystem::path base;
  };
  using Settings = std::map<std::string, Setting>;
  struct Entry {
    YamlValue at;
    std::string name, match, host;
    Settings settings, variables;
  };
  class Reader;
  [[nodiscard]] FleetVm resolve(const Entry& entry, const std::string& name, const std::string& host) const;
  [[nodiscard]] bool is_for(const Entry& entry, const std::string& host) const { return entry.host.empty() || entry.host == host; }

  std::filesystem::path home_;
  std::vector<FleetHost> hosts_;
  std::vector<Entry> entries_;
  Settings defaults_, variables_;
  std::optional<int> guest_limit_;
  std::string digest_;
};

}  // namespace lumelift
