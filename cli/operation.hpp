#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "cli/engine.hpp"
#include "cli/kit.hpp"
#include "cli/link.hpp"
#include "cli/proof.hpp"

namespace lumelift {

/// What every command on one VM begins with: input checked, VM found, journal open, this VM's lock held, an unfinished run
/// taken back first. Lives as long as the command. Throws Error before anything is touched: "vm-name-invalid",
/// "vm-unknown", "vm-not-macos", "wrong-user", "lock-held", and what Lume, Host and Journal throw.
class Operation {
 public:
  enum class Touch { nothing, world };
  /// Missing::allowed: a VM that lume no longer knows but the journal does; only what is outside of it can be undone.
  enum class Missing { refused, allowed };
  Operation(Context& context, const TargetOptions& target, const std::string& command, Touch touch, Missing missing = Missing::refused);

  /// Undoes what a crash or an incomplete rollback left of this VM's runs. Under Touch::nothing only says so.
  void finish_former();
  /// Undoes `runs` in spite of signals, under a deadline of its own, and says what happened. A VM that is off is started for
  /// what is to be undone in its guest, unless `restart` is never, and stopped again.
  UndoReport undo(const std::vector<RunRecord>& runs, Restart restart);
  /// Undoes everything this run did after `error`, which becomes ErrorKind::incomplete when something is left.
  void take_back(RunId run, Error& error);
  /// The same after a signal; the exit status: 130, or 3 when something is left.
  [[nodiscard]] int take_back_interrupted(RunId run);

  [[nodiscard]] Vm vm() const;  ///< looked up again where it may have changed since the start
  [[nodiscard]] RunRecord record(RunId run) const;

  Context& context;
  const std::string command;
  Host host;
  Lume lume;
  std::string lume_version;
  Vm found;  ///< as seen at the start; status "gone" when lume no longer knows it
  std::unique_ptr<Journal> journal;
  std::optional<sys::FileLock> lock;
  std::unique_ptr<GuestLink> link;
  std::unique_ptr<Engine> engine;

 private:
  /// As a run of its own; false when the VM is not off, or does not start.
  bool start_for_guest_work();

  Touch touch_;
  bool may_have_moved_ = false;  ///< something happened since `found` was seen
};

/// "auto", "always", "never".
[[nodiscard]] Restart restart_from(const std::string& word);

/// One line for a person on stderr for each part of what an undo did.
void tell(Console& console, const UndoReport& report);

/// When the guest was booted, and when a claimed resource got its value, both on sys::up_seconds(): the clock may have been set
/// in between. Nothing for what is unknown or was before this start of the Mac.
[[nodiscard]] std::int64_t booted_up(const GuestFacts& facts);
[[nodiscard]] std::optional<std::int64_t> claimed_up(const Claim& claim);

}  // namespace lumelift
