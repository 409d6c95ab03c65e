#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/console.hpp"
#include "cli/plan.hpp"
#include "cli/proof.hpp"
#include "host/sys/time.hpp"

namespace lumelift {

/// All that one unlock learned. Looks nothing up.
struct UnlockReport {
  std::string vm, lume;
  HostFacts host;
  std::optional<GuestFacts> guest;
  Profile profile;
  std::string goal, kit;  ///< see cli/unlock_input: what is wanted, told apart without its guest
  PrefValue preference_before, preference;
  std::vector<Step> steps;  ///< what was changed; empty: nothing had to be
  std::vector<GuestGoal::File> files;
  std::optional<ProbePair> probes;
  struct Agent {
    GuestGoal::Agent goal;
    AgentProof proof;
    [[nodiscard]] std::string line() const;
  };
  std::vector<Agent> agents;
  std::string library;   ///< JSON: where it comes from, its slices and their hashes; from cli/library
  std::string standing;  ///< "This combination is …"; from cli/compat
  std::vector<std::string> warnings;
  sys::Milliseconds total{0}, vm_time{0};  ///< vm_time: stopping and booting the VM, part of total
  int connections = 0;                     ///< SSH connections made

  [[nodiscard]] std::string headline() const;
  [[nodiscard]] std::string probe_line() const;
  /// The result for a person, and as one JSON object.
  [[nodiscard]] std::string text(const Console& console) const;
  [[nodiscard]] std::string json() const;
};

/// The plan as text or JSON, on stdout. `guest_known` tells whether the guest's part is in it, `promises` that another profile goes on
/// record, even where nothing else changes.
void print_plan(Console& console, const Plan& plan, bool guest_known, bool promises);

}  // namespace lumelift
