#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "host/sys/time.hpp"

namespace lumelift {

enum class Power { stopped, running };
[[nodiscard]] const char* shown(Power power);

struct SharedDir {
  std::string host_path, tag;
  bool read_only = true;
  bool operator==(const SharedDir&) const = default;
};

/// A VM as `lume` describes it. A hint: "running" says that a process lives, not that the guest answers.
struct Vm {
  std::string name;    ///< as lume stores it: "a_b" for "a:b"
  std::string os;      ///< "macOS" or "linux"
  std::string status;  ///< raw: "stopped", "running", "provisioning", "provisioning (stale)", "pulling", …
  std::optional<std::string> address;
  std::optional<bool> ssh_available;  ///< lume's own guess; never decided upon
  std::string storage;                ///< locationName
  std::optional<std::string> network;
  std::vector<SharedDir> shared_dirs;
  std::uint64_t cpus = 0, memory = 0, disk_total = 0;  ///< bytes for the latter two
  bool operator==(const Vm&) const = default;

  /// Nothing for a status that is neither stopped nor running.
  [[nodiscard]] std::optional<Power> power() const;
};

/// How a VM is started: what it ran with before.
struct StartOptions {
  std::string storage;
  std::optional<std::string> network;
  std::vector<SharedDir> shared_dirs;
  bool operator==(const StartOptions&) const = default;
};
[[nodiscard]] StartOptions start_options(const Vm& vm);

/// Drives the `lume` command; hides its text, versions and warts (log lines around JSON, arrays of one, nulls). No state
/// between calls. Every call has its own time limit and names the command when it ends without an answer.
/// Throws Error: "lume-missing", "lume-too-old" (< 0.5.0), "lume-no-answer", "lume-failed", "lume-unreadable" (output holds
/// no VM), "vm-name-invalid", "vm-unknown", "vm-not-ready" (neither stopped nor running), "vm-limit" (two macOS guests run
/// already), "vm-locked" (runs in another process), "vm-start-failed" (with the new lines of the VM's log), "vm-stop-failed".
/// What lume prints is quoted in messages with VNC passwords masked.
class Lume {
 public:
  /// `home` is where lume keeps its logs: the user's HOME; the account's home folder when empty.
  explicit Lume(std::filesystem::path home = {}) : home_(std::move(home)) {}

  /// "0.5.3". Throws "lume-missing" or "lume-too-old".
  [[nodiscard]] std::string version() const;

  /// Why `name` cannot be a VM's name (empty, over 255 bytes, '/', leading '-', "..", control bytes); nothing when it can.
  [[nodiscard]] static std::optional<std::string> bad_name(const std::string& name);
  /// "a:b" → "a_b", as lume stores it.
  [[nodiscard]] static std::string stored_name(const std::string& name);

  /// Nothing for an unknown VM. Exact name after stored_name(); never a prefix.
  [[nodiscard]] std::optional<Vm> find(const std::string& name) const;
  /// The same, but "unknown" is asked again until `patience` ends: right after a stop lume misses a VM for a moment.
  [[nodiscard]] std::optional<Vm> find(const std::string& name, const sys::Deadline& patience) const;
  [[nodiscard]] std::vector<Vm> list() const;

  /// Starts headless and detached, then waits until lume lists the VM as running twice. Running already is success. Never starts an unknown
  /// name (lume would download an image). Only what the VM's log gained since the call counts as its reason for failing. A locked VM is
  /// tried again for three seconds.
  void start(const std::string& name, const StartOptions& options, const sys::Deadline& deadline) const;
  /// Pulls the plug (up to 12 s), then waits until lume lists the VM as stopped twice. Stopped already is success.
  void stop(const std::string& name, const std::string& storage, const sys::Deadline& deadline) const;
  /// Waits until lume lists the VM as stopped on two reads; false at the deadline.
  [[nodiscard]] bool wait_stopped(const std::string& name, const sys::Deadline& deadline) const;

 private:
  void start_once(const std::string& name, const StartOptions& options, const sys::Deadline& deadline) const;

  std::filesystem::path home_;
};

}  // namespace lumelift
