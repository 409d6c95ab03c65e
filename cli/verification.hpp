#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/operation.hpp"

namespace lumelift {

/// One thing that was asserted of a VM.
struct Check {
  std::string id;  ///< stable: "guest-build", "agent-receipt", …
  bool passed = false;
  std::string evidence;  ///< what was seen, in one line
  bool operator==(const Check&) const = default;
};

/// What a process must show to count as unlocked. Pure. `booted_at`: when its guest was booted, by the guest's clock, as the receipt's time
/// is.
struct ProcessSeen {
  int pid = 0;
  std::string receipt;              ///< text of the library's receipt; foreign
  std::vector<std::string> mapped;  ///< files that it has mapped
};
[[nodiscard]] std::vector<Check> check_process(const ProcessSeen& seen, const std::string& name, const std::string& library,
                                               std::int64_t booted_at);

/// What the last committed unlock of the VM proved, out of its report. Throws Error "journal-unreadable".
struct Proven {
  std::optional<Profile> profile;
  std::string os, build;  ///< of the guest
  bool receipts = true;   ///< the library writes them; one that a user brought does not
};
[[nodiscard]] Proven proven_by(const std::vector<RunRecord>& runs);

/// Looks at everything that an unlock of this VM promised: journal, preference, boot, guest build, files, answers, and each
/// workload by launchd, receipt and mapped libraries. Changes nothing but the probe's own receipt. Throws what GuestLink
/// and the guest's tools throw, for a guest that cannot be looked at.
[[nodiscard]] std::vector<Check> verify_vm(Operation& operation);

/// Puts a stock process of its own before the same process check, which must refuse it for what it saw. Its Check passed when it did.
[[nodiscard]] std::vector<Check> self_test(Operation& operation);

}  // namespace lumelift
