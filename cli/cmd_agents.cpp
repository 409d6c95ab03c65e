#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/agents.hpp"
#include "cli/readiness.hpp"
#include "cli/verification.hpp"

namespace lumelift {
namespace {

using nlohmann::json;
using sys::Deadline;
using sys::Milliseconds;

constexpr Milliseconds answer{15'000}, proof_limit{20'000};
constexpr std::uint64_t rotate_from = 8u << 20;  // bytes of a log that is rotated before a start

std::string state_of(const AgentNow& agent) {
  if (agent.seen.pid) {
    return "running";
  }
  if (agent.seen.loaded) {
    return "loaded, not running";
  }
  return agent.installed.meant_to_run() ? "not loaded" : "stopped";
}

json json_of(const AgentNow& agent) {
  return {{"label", agent.installed.last.label},
          {"domain", agent.installed.last.domain},
          {"plist", agent.installed.last.plist},
          {"state", state_of(agent)},
          {"expected", agent.installed.meant_to_run()},
          {"pid", agent.seen.pid ? json(*agent.seen.pid) : json()},
          {"runs", agent.seen.runs},
          {"last_exit", agent.seen.last_exit ? json(*agent.seen.last_exit) : json()},
          {"library", agent.library.empty() ? json() : json(agent.library)},
          {"logs", {{"stdout", agent.stdout_log}, {"stderr", agent.stderr_log}}}};
}

std::string text_of(const Console& console, const std::vector<AgentNow>& agents) {
  std::vector<std::vector<std::string>> rows = {{"LABEL", "DOMAIN", "STATE", "PID", "LAST EXIT", "LIBRARY", "LOG"}};
  for (const auto& agent : agents) {
    const bool good = agent.seen.pid.has_value() == agent.installed.meant_to_run();
    rows.push_back({cleaned(agent.installed.last.label), cleaned(agent.installed.last.domain),
                    console.styled(state_of(agent), good ? Style::good : Style::bad),
                    agent.seen.pid ? std::to_string(*agent.seen.pid) : "–", cleaned(agent.seen.last_exit_text, 60),
                    agent.library.empty() ? "–" : cleaned(agent.library, 40), cleaned(agent.stderr_log)});
  }
  return table(rows);
}

/// What launchd and the journal know of it, as an unlock would have planned it.
GuestGoal::Agent goal_of(Operation& operation, const AgentNow& now) {
  const SetAgent& last = now.installed.last;
  GuestGoal::Agent goal;
  goal.domain = last.domain;
  goal.label = last.label;
  goal.plist = last.plist;
  goal.stdout_log = now.stdout_log;
  goal.stderr_log = now.stderr_log;
  goal.ready = recorded_readiness(*operation.journal, operation.found.name, last.label);
  for (const auto& [name, value] : now.seen.environment) {
    if (name == "LUMELIFT_RECEIPT") {
      goal.receipt = value;
    }
  }
  return goal;
}

std::string inserted_library(const AgentSeen& seen) {
  const auto found =
      std::find_if(seen.environment.begin(), seen.environment.end(), [](const auto& v) { return v.first == "DYLD_INSERT_LIBRARIES"; });
  return found == seen.environment.end() ? std::string() : found->second;
}

/// Starts or restarts it. A program that was started counts when the library is in it and it is ready, as after an unlock.
bool bring_up(Operation& operation, const InstalledAgent& agent, bool again) {
  GuestLink& link = *operation.link;
  const AgentNow before = look_at_agent(link, agent);
  for (const auto& path : rotate_logs(link, before, link.guest().facts(Deadline::in(answer)).home, rotate_from)) {
    operation.context.console.step("log", "rotated " + cleaned(path));
  }
  const LogMarks marks = mark_logs(link.session(), {goal_of(operation, before)});
  bool changed = true;
  if (again) {
    restart_agent(operation, agent);
  } else {
    changed = start_agent(operation, agent);
  }
  const AgentNow now = look_at_agent(link, agent);
  const GuestGoal::Agent goal = goal_of(operation, now);
  const Deadline deadline = Deadline::in(proof_limit);
  const bool receipts = proven_by(operation.journal->live_runs(operation.found.name)).receipts;
  const AgentProof proof = receipts ? prove_agent(link.session(), link.guest(), goal, AgentGlimpse{now.seen, {}}, deadline)
                                    : prove_agent_by_mapping(link.session(), goal, inserted_library(now.seen), deadline);
  operation.context.console.step("agent",
                                 fmt::format("{} runs as pid {}, library {}", cleaned(goal.label), proof.pid, name_of(proof.library)));
  if (const auto how = await_ready(link, goal, proof.pid, changed ? marks : LogMarks{})) {
    operation.context.console.step("ready", goal.label + ": " + *how);
  }
  return changed;
}

bool rotate(Operation& operation, const InstalledAgent& agent) {
  GuestLink& link = *operation.link;
  const AgentNow now = look_at_agent(link, agent);
  const auto paths = rotate_logs(link, now, link.guest().facts(Deadline::in(answer)).home, 1);
  for (const auto& path : paths) {
    operation.context.console.step("log", "rotated " + cleaned(path));
  }
  return !paths.empty();
}

int list(Context& context, const AgentsOptions& options) {
  Operation operation(context, options.target, "agents", Operation::Touch::nothing);
  std::vector<AgentNow> agents;
  for (const auto& agent : installed_agents(*operation.journal, operation.found.name)) {
    operation.link->connect(Deadline::in(answer), GuestLink::Wait::up);
    agents.push_back(look_at_agent(*operation.link, agent));
  }
  if (context.console.json()) {
    json all = {{"schema", 1}, {"vm", operation.found.name}, {"agents", json::array()}};
    for (const auto& agent : agents) {
      all["agents"].push_back(json_of(agent));
    }
    context.console.result_json(all.dump(-1, ' ', false, json::error_handler_t::replace));
  } else if (agents.empty()) {
    context.console.result(fmt::format("{} has no agents of lumelift. To install one: lumelift unlock {} --workload FILE",
                                       operation.found.name, operation.found.name));
  } else {
    context.console.result(text_of(context.console, agents));
  }
  return 0;
}

}  // namespace

int run_agents(Context& context, const AgentsOptions& options) {
  if (options.action == "logs") {
    return run_logs(context, {options.target, options.label, options.follow, options.since});
  }
  if (options.action == "list") {
    return list(context, options);
  }
  if (options.label.empty()) {
    throw Error(ErrorKind::usage, "label-missing", fmt::format("which agent is to {}?", options.action))
        .fix(fmt::format("see: lumelift agents {}", options.target.vm));
  }
  Operation operation(context, options.target, "agents", Operation::Touch::world);
  operation.finish_former();
  const InstalledAgent agent = find_agent(*operation.journal, operation.found.name, options.label);
  operation.link->connect(Deadline::in(answer), GuestLink::Wait::up);
  bool changed = true;
  if (options.action == "stop") {
    changed = stop_agent(operation, agent);
  } else if (options.action == "rotate") {
    changed = rotate(operation, agent);
  } else if (options.action == "remove") {
    const UndoReport report = remove_agent(operation, agent);
    for (const auto& line : report.kept) {
      context.console.warn("left alone: " + line);
    }
    for (const auto& line : report.failed) {
      context.console.warn("could not be undone: " + line);
    }
    if (!report.complete()) {
      return exit_status(ErrorKind::incomplete);
    }
  } else {
    changed = bring_up(operation, agent, options.action == "restart");
  }
  if (context.console.json()) {
    const AgentNow now = look_at_agent(*operation.link, agent);
    context.console.result_json(
        json({{"schema", 1}, {"vm", operation.found.name}, {"action", options.action}, {"changed", changed}, {"agent", json_of(now)}})
            .dump(-1, ' ', false, json::error_handler_t::replace));
    return 0;
  }
  const std::map<std::string, std::string> words = {
      {"start", "started"}, {"stop", "stopped"}, {"restart", "restarted"}, {"remove", "removed"}, {"rotate", "rotated"}};
  const std::string& done = words.at(options.action);
  context.console.result(changed ? fmt::format("{} {}.", cleaned(options.label), done)
                                 : fmt::format("{} is {} already; nothing to change.", cleaned(options.label), done));
  return 0;
}

}  // namespace lumelift
