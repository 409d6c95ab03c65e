#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/drift.hpp"
#include "cli/engine.hpp"
#include "cli/operation.hpp"
#include "cli/vm_name.hpp"
#include "host/sys/process.hpp"

namespace lumelift {
namespace {

using nlohmann::json;

/// One line of the table.
struct VmLine {
  std::string name, state, os, guest = "–", unlocked = "–", note;
  std::vector<std::string> workloads;
  bool lost = false;  ///< the preference that it relies on is another one now
  json detail = json::object();
};

std::string dumped(const json& object) {
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

/// What the journal says about one VM, without looking at its guest.
struct Recorded {
  std::optional<RunRecord> committed, unfinished;
  bool claims = false;
  bool relies = false;  ///< its unlock set the preference, whoever claims it now
};

Recorded recorded(const Journal& journal, const std::string& vm, const std::vector<Claim>& claims) {
  Recorded out;
  for (const auto& run : journal.live_runs(vm)) {
    (run.state == RunState::committed ? out.committed : out.unfinished) = run;
    for (const auto& record : journal.steps(run.id)) {
      out.relies = out.relies || (record.state == StepState::done && std::holds_alternative<SetPreference>(step_from_json(record.body)));
    }
  }
  out.claims = std::any_of(claims.begin(), claims.end(), [&](const Claim& c) { return c.vm == vm; });
  return out;
}

/// Whether the newest run kept a step instead of taking it back.
bool left_alone(const Journal& journal, const std::string& vm) {
  const auto runs = journal.history(vm);
  const auto steps = runs.empty() ? std::vector<StepRecord>{} : journal.steps(runs.back().id);
  return std::any_of(steps.begin(), steps.end(), [](const StepRecord& step) { return step.state == StepState::kept; });
}

void add_guest(VmLine& line, const Drift& drift) {
  line.guest = drift.facts.os;
  line.unlocked = drift.stale ? "stale" : drift.differences.empty() ? "yes" : "drifted";
  line.detail["guest"] = {{"os", drift.facts.os}, {"build", drift.facts.build}};
  line.detail["differences"] = drift.differences;
  json agents = json::array();
  for (const auto& agent : drift.agents) {
    line.workloads.push_back(agent.label + (agent.running ? " ✓" : " ✗"));
    agents.push_back(
        {{"label", agent.label}, {"domain", agent.domain}, {"running", agent.running}, {"pid", agent.pid ? json(*agent.pid) : json()}});
  }
  line.detail["agents"] = agents;
  if (drift.stale) {
    line.note = "started before the preference was set: lumelift unlock " + line.name;
  }
  if (!drift.differences.empty()) {
    line.note = fmt::format("{} (lumelift unlock {})", drift.differences.front(), line.name);
  }
}

VmLine line_for(Context& context, const TargetOptions& target, const Vm& vm, const Lume& lume, Journal& journal,
                const std::vector<Claim>& claims, const PrefValue& preference) {
  VmLine line{vm.name, vm.status, vm.os, "–", "–", {}, {}, false, json::object()};
  const Recorded known = recorded(journal, vm.name, claims);
  line.detail.update({{"claims_preference", known.claims}, {"os", vm.os}, {"address", vm.address ? json(*vm.address) : json()}});
  if (const auto holder = known.unfinished ? journal.holder(vm.name) : std::nullopt) {
    line.unlocked = "in progress";
    line.note = *holder;
    return line;
  }
  if (known.unfinished) {
    line.note = fmt::format("an {} was not finished: lumelift rollback {}", known.unfinished->command, vm.name);
  }
  if (!known.unfinished && left_alone(journal, vm.name)) {
    line.note = fmt::format("something was left alone, as somebody else had changed it: lumelift history {}", vm.name);
  }
  if (!known.committed) {
    line.unlocked = known.unfinished ? "unfinished" : "no";
    return line;
  }
  line.unlocked = "yes, when it runs";
  const bool lost = known.relies && preference != PrefValue(true);
  const std::string lost_note =
      fmt::format("the host preference is {} now, which counts from the next start on: lumelift unlock {}", shown(preference), vm.name);
  line.lost = lost;
  if (lost) {
    line.unlocked = "no";
    line.note = lost_note;
  }
  if (vm.power() != Power::running) {
    return line;
  }
  TargetOptions one = target;
  one.vm = vm.name;
  try {
    GuestLink link(lume, journal, context.console, vm.name, one.login, GuestLink::Pinning::check_only);
    line.note.clear();
    add_guest(line, look_for_drift(link, journal, claims));
    if (lost && line.note.empty()) {
      line.note = lost_note;
    }
  } catch (const Error& error) {
    line.unlocked = "unknown";
    line.note = error.message();
  }
  return line;
}

/// The next sensible command: first what is broken, then what is not begun.
std::string next_step(const std::vector<VmLine>& lines) {
  const auto first = [&](auto fits) { return std::find_if(lines.begin(), lines.end(), fits); };
  const auto with = [&](std::string_view word) { return first([&](const VmLine& line) { return line.unlocked == word; }); };
  if (const auto line = with("unfinished"); line != lines.end()) {
    return sys::shown({"lumelift", "rollback", line->name});
  }
  for (const char* word : {"stale", "drifted"}) {
    if (const auto line = with(word); line != lines.end()) {
      return sys::shown({"lumelift", "unlock", line->name});
    }
  }
  if (const auto line = first([](const VmLine& one) { return one.lost; }); line != lines.end()) {
    return sys::shown({"lumelift", "unlock", line->name});
  }
  if (const auto line = with("unknown"); line != lines.end()) {
    return sys::shown({"lumelift", "doctor", line->name});
  }
  if (const auto line = with("yes"); line != lines.end()) {
    return sys::shown({"lumelift", "verify", line->name});
  }
  for (const char* state : {"running", "stopped"}) {
    const auto line = first([&](const VmLine& one) { return one.unlocked == "no" && one.state == state && one.os != "linux"; });
    if (line != lines.end()) {
      return sys::shown({"lumelift", "unlock", line->name});
    }
  }
  return "";
}

std::vector<Vm> vms_to_show(const Lume& lume, const Journal& journal, const std::string& wanted, std::vector<std::string>& notes) {
  if (!wanted.empty()) {
    return {find_vm(lume, wanted)};
  }
  std::vector<Vm> vms;
  try {
    vms = lume.list();
  } catch (const Error& error) {
    notes.push_back("lume ls: " + error.message());
  }
  // VMs of ours that the list leaves out, broken ones among them, still have a line.
  std::set<std::string> names;
  for (const auto& vm : vms) {
    names.insert(vm.name);
  }
  for (const auto& run : journal.live_runs()) {
    if (!names.insert(run.vm).second) {
      continue;
    }
    Vm gone;
    gone.name = run.vm;
    gone.status = "not listed";
    vms.push_back(gone);
  }
  return vms;
}

}  // namespace

int run_status(Context& context, const StatusOptions& options) {
  const Host host;
  const Lume lume;
  Journal journal(context.state_dir, Journal::Access::read);
  const HostFacts facts = host.facts();
  const PrefValue preference = host.preference(feature_level_key());
  const auto claims = journal.claims(resource_of(feature_level_key()));
  std::vector<std::string> notes;
  std::vector<VmLine> lines;
  for (const auto& vm : vms_to_show(lume, journal, options.target.vm, notes)) {
    lines.push_back(line_for(context, options.target, vm, lume, journal, claims, preference));
  }
  std::vector<std::string> holders;
  for (const auto& claim : claims) {
    holders.push_back(claim.vm);
  }

  const std::string next = options.target.vm.empty() ? next_step(lines) : "";
  if (context.console.json()) {
    json object = {{"schema", 1},
                   {"next", next},
                   {"host", {{"chip", facts.chip}, {"model", facts.model}, {"os", facts.os}, {"build", facts.build}}},
                   {"preference",
                    {{"now", json::parse(to_json(preference))},
                     {"before", claims.empty() ? json() : json::parse(claims.front().before)},
                     {"claims", holders}}},
                   {"vms", json::array()},
                   {"notes", notes}};
    for (auto& line : lines) {
      line.detail.update({{"name", line.name}, {"state", line.state}, {"unlocked", line.unlocked}, {"note", line.note}});
      object["vms"].push_back(line.detail);
    }
    context.console.result_json(dumped(object));
    return 0;
  }
  std::string head = fmt::format("HOST  {}, macOS {}    preference {}", cleaned(facts.chip), cleaned(facts.os), shown(preference));
  if (!claims.empty()) {
    head += fmt::format(" (was {})    claims: {}", shown(pref_from_json(claims.front().before)),
                        cleaned(fmt::format("{}", fmt::join(holders, ", "))));
  }
  std::vector<std::vector<std::string>> rows = {{"VM", "STATE", "GUEST", "UNLOCKED", "WORKLOADS", "NOTE"}};
  for (const auto& line : lines) {
    const Style style = line.unlocked == "yes" ? Style::good : line.unlocked == "no" || line.unlocked == "–" ? Style::plain : Style::warn;
    rows.push_back({cleaned(line.name), cleaned(line.state), cleaned(line.guest), context.console.styled(line.unlocked, style),
                    line.workloads.empty() ? "–" : cleaned(fmt::format("{}", fmt::join(line.workloads, ", "))), cleaned(line.note)});
  }
  context.console.result(head + "\n" + table(rows) + (next.empty() ? "" : "\nnext: " + cleaned(next)));
  for (const auto& note : notes) {
    context.console.warn(note);
  }
  if (lines.empty()) {
    context.console.result("No VMs. Make one with lume, then: lumelift unlock VM");
  }
  return 0;
}

}  // namespace lumelift
