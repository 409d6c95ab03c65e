#include "cli/agents.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/readiness.hpp"
#include "cli/receipt.hpp"
#include "cli/yaml_reader.hpp"
#include "remote/log.hpp"
#include "shim/plist.hpp"

namespace lumelift {
namespace {

using nlohmann::json;

constexpr std::size_t plist_cap = 256u << 10, receipt_cap = 64u << 10;
constexpr int old_logs = 3;  // of each, beside the one in use
constexpr const char* stop_command = "agents stop";

std::string string_in(const PropertyDict& dict, std::string_view key) {
  const auto found = dict.find(key);
  const auto* text = found == dict.end() ? nullptr : std::get_if<std::string>(&found->second);
  return text == nullptr ? std::string() : *text;
}

std::string library_state(GuestLink& link, const AgentSeen& seen) {
  for (const auto& [name, value] : seen.environment) {
    if (name != "LUMELIFT_RECEIPT" || !value.starts_with('/')) {
      continue;
    }
    const auto receipt = parse_receipt(link.transfer().read(value, receipt_cap).value_or(""));
    if (receipt && receipt->pid == *seen.pid && !receipt->outcome.empty()) {
      return receipt->outcome;
    }
  }
  return "no receipt";
}

/// One step as a run of its own, committed when it holds.
void apply_step(Operation& operation, const std::string& command, const SetAgent& step) {
  const RunId run = operation.journal->begin(operation.found.name, command);
  try {
    operation.engine->apply(run, {operation.found.name, {step}, {}});
  } catch (Error& error) {
    operation.take_back(run, error);
    throw;
  }
  operation.journal->set_run(run, RunState::committed, json({{"schema", 1}, {"command", command}, {"label", step.label}}).dump());
}

SetAgent unloading(const InstalledAgent& agent) {
  SetAgent step = agent.last;
  step.before = AgentState::loaded;
  step.after = AgentState::unloaded;
  return step;
}

/// The recorded stop of this agent that is in force.
std::optional<RunRecord> recorded_stop(const Operation& operation, const std::string& label) {
  std::optional<RunRecord> out;
  for (const auto& run : operation.journal->live_runs(operation.found.name)) {
    if (run.command != stop_command) {
      continue;
    }
    for (const auto& record : operation.journal->steps(run.id)) {
      const Step step = step_from_json(record.body);
      const auto* agent = std::get_if<SetAgent>(&step);
      if (agent != nullptr && agent->label == label && record.state == StepState::done) {
        out = run;
      }
    }
  }
  return out;
}

void require_complete(const UndoReport& report, const std::string& label) {
  if (report.complete()) {
    return;
  }
  Error error(ErrorKind::incomplete, "agent-left", fmt::format("{} could not be brought to where it was", label));
  for (const auto& line : report.kept) {
    error.note("left alone: " + line);
  }
  for (const auto& line : report.failed) {
    error.note(line);
  }
  throw error;
}

}  // namespace

std::vector<InstalledAgent> installed_agents(const Journal& journal, const std::string& vm) {
  std::vector<InstalledAgent> out;
  for (const auto& run : journal.live_runs(vm)) {
    for (const auto& record : journal.steps(run.id)) {
      if (record.state != StepState::done) {
        continue;
      }
      const Step step = step_from_json(record.body);
      const auto* agent = std::get_if<SetAgent>(&step);
      if (agent == nullptr) {
        continue;
      }
      const auto known = std::find_if(out.begin(), out.end(), [&](const InstalledAgent& a) { return a.last.label == agent->label; });
      if (known == out.end()) {
        out.push_back({*agent});
      } else {
        known->last = *agent;
      }
    }
  }
  return out;
}

InstalledAgent find_agent(const Journal& journal, const std::string& vm, const std::string& label) {
  std::vector<std::string> labels;
  for (const auto& agent : installed_agents(journal, vm)) {
    if (agent.last.label == label) {
      return agent;
    }
    labels.push_back(agent.last.label);
  }
  Error error(ErrorKind::usage, "agent-unknown", fmt::format("lumelift installed no agent '{}' in '{}'", label, vm));
  if (const auto meant = nearest(label, labels)) {
    error.note(fmt::format("did you mean '{}'?", *meant));
  }
  throw error.fix(labels.empty() ? fmt::format("install one: lumelift unlock {} --workload FILE", vm)
                                 : fmt::format("there are: {}", fmt::join(labels, ", ")));
}

AgentNow look_at_agent(GuestLink& link, const InstalledAgent& agent) {
  AgentNow now{agent, link.guest().agent(agent.last.domain, agent.last.label), {}, {}, {}};
  if (now.seen.pid) {
    now.library = library_state(link, now.seen);
  }
  try {
    const PropertyDict plist = parse_plist_xml(link.transfer().read(agent.last.plist, plist_cap).value_or(""));
    now.stdout_log = string_in(plist, "StandardOutPath");
    now.stderr_log = string_in(plist, "StandardErrorPath");
  } catch (const Error& error) {
    // Somebody changed or removed the plist: the rest can be told without it.
    if (error.id() != "plist-unreadable") {
      throw;
    }
  }
  return now;
}

Readiness recorded_readiness(const Journal& journal, const std::string& vm, const std::string& label) {
  Readiness out;
  for (const auto& run : journal.live_runs(vm)) {
    const json report = json::parse(run.summary, nullptr, false);
    if (!report.is_object() || !report.contains("agents")) {
      continue;
    }
    for (const auto& agent : report["agents"]) {
      if (agent.is_object() && agent.value("label", std::string()) == label) {
        out = readiness_from_json(agent.value("ready", json()).dump());
      }
    }
  }
  return out;
}

std::vector<std::string> rotate_logs(GuestLink& link, const AgentNow& agent, const std::string& home, std::uint64_t least) {
  std::vector<std::string> out;
  for (const auto& path : {agent.stdout_log, agent.stderr_log}) {
    const bool again = !out.empty() && out.back() == path;
    if (!again && path.starts_with(guest_root(home) + "/") && rotate_log(link.session(), path, least, old_logs)) {
      out.push_back(path);
    }
  }
  return out;
}

bool stop_agent(Operation& operation, const InstalledAgent& agent) {
  if (!operation.link->guest().agent(agent.last.domain, agent.last.label).loaded) {
    return false;
  }
  apply_step(operation, stop_command, unloading(agent));
  return true;
}

bool start_agent(Operation& operation, const InstalledAgent& agent) {
  if (operation.link->guest().agent(agent.last.domain, agent.last.label).loaded) {
    return false;
  }
  if (const auto stop = recorded_stop(operation, agent.last.label)) {
    require_complete(operation.undo({*stop}, Restart::never), agent.last.label);
    return true;
  }
  SetAgent step = agent.last;
  step.before = AgentState::unloaded;
  step.after = AgentState::loaded;
  apply_step(operation, "agents start", step);
  return true;
}

void restart_agent(Operation& operation, const InstalledAgent& agent) {
  if (start_agent(operation, agent)) {
    return;
  }
  const RunId run = operation.journal->begin(operation.found.name, "agents restart");
  try {
    operation.engine->apply(run, {operation.found.name, {unloading(agent)}, {}});
  } catch (Error& error) {
    operation.take_back(run, error);
    throw;
  }
  require_complete(operation.undo({operation.record(run)}, Restart::never), agent.last.label);
}

UndoReport remove_agent(Operation& operation, const InstalledAgent& agent) {
  const auto its_own = [&](const Step& step) {
    if (const auto* set = std::get_if<SetAgent>(&step)) {
      return set->label == agent.last.label;
    }
    const auto* file = std::get_if<PutFile>(&step);
    return file != nullptr && file->path == agent.last.plist;
  };
  const sys::Shield shield;
  const UndoReport report = operation.engine->undo_steps(operation.journal->live_runs(operation.found.name), its_own);
  tell(operation.context.console, report);
  return report;
}

}  // namespace lumelift
