#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/operation.hpp"

namespace lumelift {

/// An agent that lumelift installed in this VM, as the journal has it.
struct InstalledAgent {
  SetAgent last;  ///< the last step on it that is in force
  [[nodiscard]] bool meant_to_run() const { return last.after == AgentState::loaded; }
};
[[nodiscard]] std::vector<InstalledAgent> installed_agents(const Journal& journal, const std::string& vm);
/// The one with this label. Throws Error "agent-unknown" (usage), which names those there are.
[[nodiscard]] InstalledAgent find_agent(const Journal& journal, const std::string& vm, const std::string& label);

/// What is known of one agent now.
struct AgentNow {
  InstalledAgent installed;
  AgentSeen seen;
  std::string library;                 ///< "active", "armed", "stock", "no receipt"; empty when it does not run
  std::string stdout_log, stderr_log;  ///< from its plist in the guest; empty when that cannot be read
};
[[nodiscard]] AgentNow look_at_agent(GuestLink& link, const InstalledAgent& agent);

/// What its workload said of its readiness, out of the report of its unlock.
[[nodiscard]] Readiness recorded_readiness(const Journal& journal, const std::string& vm, const std::string& label);

/// Rotates those of its logs that are at least `least` bytes long and lie in lumelift's own folder, which rollback removes;
/// returns their paths.
[[nodiscard]] std::vector<std::string> rotate_logs(GuestLink& link, const AgentNow& agent, const std::string& home, std::uint64_t least);

/// Changes go through journal and engine, so that a crash and `rollback` know them. Each returns whether something changed.
/// A stop is on record as a run of its own; a start takes that back, so the journal does not grow by the pair.
[[nodiscard]] bool stop_agent(Operation& operation, const InstalledAgent& agent);
[[nodiscard]] bool start_agent(Operation& operation, const InstalledAgent& agent);
/// Stops and starts it. A crash in between is taken back by the next command: the agent is loaded again.
void restart_agent(Operation& operation, const InstalledAgent& agent);
/// Unloads it and takes its plist away; files of its workload stay until `rollback`.
[[nodiscard]] UndoReport remove_agent(Operation& operation, const InstalledAgent& agent);

}  // namespace lumelift
