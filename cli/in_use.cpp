#include "cli/in_use.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "remote/ssh_sessions.hpp"

namespace lumelift {
namespace {

/// Agents that live runs have left loaded, by label and domain.
std::vector<SetAgent> loaded_agents(Operation& operation) {
  std::vector<SetAgent> agents;
  for (const auto& run : operation.journal->live_runs(operation.found.name)) {
    for (const auto& record : operation.journal->steps(run.id)) {
      if (record.state != StepState::done) {
        continue;
      }
      const Step step = step_from_json(record.body);
      const auto* agent = std::get_if<SetAgent>(&step);
      if (agent == nullptr) {
        continue;
      }
      std::erase_if(agents, [&](const SetAgent& other) { return other.label == agent->label; });
      if (agent->after == AgentState::loaded) {
        agents.push_back(*agent);
      }
    }
  }
  return agents;
}

}  // namespace

void refuse_in_use(Operation& operation, Counted counted) {
  Guest& guest = operation.link->guest();
  std::vector<std::string> uses;
  for (const auto& session : other_ssh_sessions(operation.link->session())) {
    uses.push_back("SSH session of " + session);
  }
  if (counted == Counted::sessions_and_workloads) {
    for (const auto& agent : loaded_agents(operation)) {
      const AgentSeen seen = guest.agent(agent.domain, agent.label);
      if (seen.pid) {
        uses.push_back(fmt::format("workload {}, pid {}", agent.label, *seen.pid));
      }
    }
  }
  if (uses.empty()) {
    return;
  }
  Error error(ErrorKind::busy, "vm-in-use", fmt::format("'{}' would be stopped, and is in use", operation.found.name));
  for (const auto& use : uses) {
    error.note(use);
  }
  throw error.fix("wait until it is free, let a before_stop command drain it, or say --stop-busy");
}

}  // namespace lumelift
