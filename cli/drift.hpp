#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/link.hpp"
#include "cli/plan.hpp"
#include "host/journal.hpp"

namespace lumelift {

/// How a guest differs from what the journal says was put there.
struct Drift {
  struct Agent {
    std::string label, domain;
    bool expected = false;  ///< it is to be loaded
    bool running = false;
    std::optional<int> pid;
    int runs = 0;  ///< its starts, as launchd counts them
  };
  GuestFacts facts;
  bool stale = false;  ///< booted before the preference got its value
  std::vector<Agent> agents;
  std::size_t files = 0;                 ///< how many were compared
  std::vector<std::string> differences;  ///< one line each; empty when all is as recorded
};

/// Looks at files and agents of the VM's live runs. Changes nothing; connects when needed. Throws what GuestLink throws.
[[nodiscard]] Drift look_for_drift(GuestLink& link, const Journal& journal, const std::vector<Claim>& preference_claims);

}  // namespace lumelift
