#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/engine.hpp"
#include "cli/unlock_input.hpp"

namespace lumelift {

/// The share of one unlock: what is to be on it, whether the VM is started with it, and where the guest has it. It is a
/// folder of our own with clones of, or links to, exactly the files asked for, so that a guest sees nothing beside them.
class UnlockShare {
 public:
  /// Decides what goes on it: large files that are copied (with `transfer: auto` only from 64 MiB in all on, and where clones or
  /// links are possible), and what stays there. Throws Error "share-other-volume", "share-refused-to-agents"; usage.
  UnlockShare(const UnlockInput& input, const std::filesystem::path& state_dir);

  /// What a start of the VM takes over of its shares: none of ours that is gone or used up.
  void forget_used(Vm& vm) const;
  /// Adds the staging, and the share to the start of the VM that the plan holds anyway. Without such a start there is none.
  void add_to(Plan& plan);
  /// Looks for it in the guest, some seconds long. Throws Error "share-needs-restart" or "share-not-mounted" where something is
  /// to stay on it.
  void find(Guest& guest, const Vm& vm, Console& console);
  /// Throws the same where `transfer: share` is asked for and the plan sends a large file.
  void require_for(const Plan& guest_plan) const;
  /// By source: where the guest copies large files from.
  [[nodiscard]] SharedSources sources() const;
  /// What a person should know of files that stay on the share.
  [[nodiscard]] std::vector<std::string> remarks() const;
  /// Once everything is copied: nothing but what stays is left on it.
  void settle() const;

 private:
  [[nodiscard]] bool is_ours(const SharedDir& dir) const;
  [[nodiscard]] std::optional<std::filesystem::path> standing(const Vm& vm) const;
  [[nodiscard]] Error unavailable() const;

  std::filesystem::path root_;
  TransferWay way_ = TransferWay::automatic;
  std::string label_;
  StageShare stage_;
  bool stays_ = false;                ///< some file stays on it
  bool started_ = false;              ///< the plan starts the VM with it
  std::optional<std::string> place_;  ///< in the guest
};

}  // namespace lumelift
