#pragma once

#include "cli/commands.hpp"

namespace lumelift {

struct PowerOptions {
  TargetOptions target;
  std::string to;        ///< on, off, recover
  bool if_idle = false;  ///< off: not while it is in use; see cli/in_use
};
[[nodiscard]] int run_power(Context& context, const PowerOptions& options);

struct FleetOptions {
  LoginOptions login;  ///< where the file says nothing
  std::string action;  ///< plan, apply, status, verify, rollback, inventory
  std::filesystem::path file = "fleet.yaml";
  std::string on;                             ///< which host of the file this Mac is; empty: see Fleet::host()
  int jobs = 4;                               ///< VMs worked on at a time
  int keep_ready = 0;                         ///< VMs that must keep serving
  int canary = 0;                             ///< so many must succeed first
  std::optional<int> max_fail;                ///< more failures than that end the run
  bool fail_fast = false;                     ///< the first failure ends it
  bool stop_busy = false;                     ///< also VMs with SSH sessions or running workloads
  bool recheck = false;                       ///< start VMs that are off to look at them
  bool exit_code = false;                     ///< plan: 2 when something would change
  std::optional<std::filesystem::path> out;   ///< plan: save it here
  std::optional<std::filesystem::path> plan;  ///< apply: only if this is still the plan
  bool list = false;                          ///< inventory: all
  std::string one;                            ///< inventory: variables of this one
};
[[nodiscard]] int run_fleet(Context& context, const FleetOptions& options);

}  // namespace lumelift
