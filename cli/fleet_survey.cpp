#include "cli/fleet_survey.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/engine.hpp"
#include "cli/unlock_input.hpp"
#include "cli/verification.hpp"
#include "cli/vm_name.hpp"
#include "host/sys/hash.hpp"
#include "host/sys/platform.hpp"

namespace lumelift {
namespace {

using nlohmann::json;

/// What one unlock of a VM is to leave, told without its guest.
struct Goal {
  std::string goal, kit;
  std::vector<std::string> labels;  ///< of its agents, in the workload's order
  Profile profile;
};

/// Reads each pair of profile and workload once, whoever wants it.
class Goals {
 public:
  explicit Goals(Context& context) : context_(context) {}

  [[nodiscard]] std::vector<Goal> of(const FleetVm& vm) {
    std::vector<Goal> out;
    if (vm.workloads.empty()) {
      out.push_back(get(vm, std::nullopt));
    }
    for (const auto& workload : vm.workloads) {
      out.push_back(get(vm, workload));
    }
    return out;
  }

 private:
  const Goal& get(const FleetVm& vm, const std::optional<std::filesystem::path>& workload) {
    const auto key = std::make_pair(vm.profile, workload ? workload->string() : "");
    if (const auto known = known_.find(key); known != known_.end()) {
      return known->second;
    }
    try {
      const UnlockInput input = read_unlock_input(context_, vm.profile, workload);
      Goal goal{goal_digest(input), kit_digest(input), {}, input.profile};
      if (input.workload) {
        for (const auto& agent : input.workload->agents) {
          goal.labels.push_back(agent.label);
        }
      }
      return known_[key] = std::move(goal);
    } catch (Error& error) {
      error.note("wanted by the entry at " + vm.place);
      throw;
    }
  }
  Context& context_;
  std::map<std::pair<std::string, std::string>, Goal> known_;
};

/// The newest committed run that answers for the goal says the same.
bool answers(const std::vector<RunRecord>& runs, const Goal& goal) {
  for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
    const json summary = json::parse(run->summary, nullptr, false);
    if (!summary.is_object()) {
      continue;
    }
    if (summary.contains("label")) {  // a start or stop of one agent
      const auto label = summary["label"].is_string() ? summary["label"].get<std::string>() : std::string();
      if (std::find(goal.labels.begin(), goal.labels.end(), label) != goal.labels.end()) {
        return false;
      }
      continue;
    }
    if (goal.labels.empty()) {
      return summary.value("kit", "") == goal.kit && proven_by({*run}).profile == goal.profile;
    }
    std::vector<std::string> labels;
    for (const auto& agent : summary.value("agents", json::array())) {
      labels.push_back(agent.value("label", ""));
    }
    if (labels == goal.labels) {
      return summary.value("goal", "") == goal.goal;
    }
  }
  return false;
}

/// What the journal says of the VM is what is wanted: as far as can be told without its guest, all is done.
bool recorded_as_wanted(const Journal& journal, const FleetVm& vm, const std::vector<Goal>& goals, const PrefValue& preference) {
  const auto runs = journal.live_runs(vm.name);
  const bool whole =
      !runs.empty() && std::all_of(runs.begin(), runs.end(), [](const RunRecord& run) { return run.state == RunState::committed; });
  if (!whole || !std::all_of(goals.begin(), goals.end(), [&](const Goal& goal) { return answers(runs, goal); })) {
    return false;
  }
  if (vm.host_preference == "keep") {
    return true;
  }
  const auto claims = journal.claims(resource_of(feature_level_key()));
  return preference == PrefValue(true) &&
         std::any_of(claims.begin(), claims.end(), [&](const Claim& claim) { return claim.vm == vm.name; });
}

/// Takes what a dry run says into the plan. Steps that several workloads share stand once.
void take_steps(VmPlan& plan, const std::string& text) {
  const json object = json::parse(text, nullptr, false);
  if (!object.is_object() || !object.contains("steps")) {
    throw Error(ErrorKind::failed, "child-unreadable", fmt::format("the plan for '{}' cannot be read", plan.wanted.name));
  }
  plan.guest_known = object.value("guest_known", false);
  plan.promises = plan.promises || object.value("changes", false);
  for (const auto& step : object["steps"]) {
    const Step one = step_from_json(step.dump());
    if (std::find(plan.steps.begin(), plan.steps.end(), one) == plan.steps.end()) {
      plan.steps.push_back(one);
    }
    if (const auto* power = std::get_if<SetPower>(&one)) {
      plan.stops = plan.stops || power->after == Power::stopped;
    }
  }
  for (const auto& note : object.value("notes", json::array())) {
    plan.notes.push_back(note.get<std::string>());
  }
}

std::vector<Stage> dry_runs(const FleetScene& scene, const FleetVm& vm) {
  const std::vector<std::string> words = {"unlock", "--dry-run", "--profile", vm.profile, "--host-preference", vm.host_preference};
  std::vector<Stage> out;
  if (vm.workloads.empty()) {
    out.push_back(scene.child("look", vm, words));
  }
  for (const auto& workload : vm.workloads) {
    auto with = words;
    with.insert(with.end(), {"--workload", workload.string()});
    out.push_back(scene.child("look", vm, with));
  }
  return out;
}

/// Asks all running guests at the same time what an unlock would do.
void ask_running(const FleetScene& scene, FleetSurvey& survey) {
  std::vector<std::string> names;
  std::vector<ScheduledVm> scheduled;
  for (const auto& vm : survey.vms) {
    names.push_back(vm.wanted.name);
    scheduled.push_back({vm.wanted.name, vm.running, false, vm.running, false});
  }
  FleetLimits limits;
  limits.jobs = scene.options.jobs;
  FleetSchedule schedule(scheduled, limits, 0);
  FleetCrew::Part part;
  part.next = [&](const FleetCrew::Order& order, const std::vector<StageDone>& done) -> std::optional<Stage> {
    if (!done.empty() && !done.back().ok()) {
      return std::nullopt;
    }
    auto stages = dry_runs(scene, survey.vms[order.vm].wanted);
    return done.size() < stages.size() ? std::optional(std::move(stages[done.size()])) : std::nullopt;
  };
  part.ended = [&](const FleetCrew::Order& order, const std::vector<StageDone>& done) {
    VmPlan& plan = survey.vms[order.vm];
    for (const auto& stage : done) {
      if (!stage.ok()) {
        plan.failure = stage;
      } else {
        take_steps(plan, stage.out);
      }
    }
    return std::make_pair(plan.failure ? FleetSchedule::Result::failed : FleetSchedule::Result::ok, true);
  };
  FleetCrew crew(scene.context.console, "looking", names, part);
  if (crew.run(schedule)) {
    throw sys::Interrupted{sys::pending_signal()};
  }
}

std::string state_text(const FileState& state) {
  return fmt::format("sha256 {}, {}, mode {:04o}", state.sha256, shown_bytes(state.size), state.mode);
}

const char* agent_text(AgentState state) {
  return state == AgentState::loaded ? "loaded" : state == AgentState::disabled ? "disabled" : "not loaded";
}

/// Adds one step as a change; steps of power come as one change per VM.
void add_change(std::vector<FleetChange>& out, const VmPlan& plan, const Step& step) {
  const std::string& vm = plan.wanted.name;
  if (const auto* folder = std::get_if<MakeFolder>(&step)) {
    out.push_back({vm, "folder", folder->path, "absent", fmt::format("mode {:04o}", folder->mode)});
  } else if (const auto* file = std::get_if<PutFile>(&step)) {
    out.push_back({vm, "file", file->path, file->before ? state_text(*file->before) : "absent", state_text(file->after)});
  } else if (const auto* agent = std::get_if<SetAgent>(&step)) {
    out.push_back({vm, "agent", agent->label, agent_text(agent->before), agent_text(agent->after)});
  }
}

}  // namespace

FleetScene::FleetScene(Context& context_in, const FleetOptions& options_in)
    : context(context_in), options(options_in), fleet(Fleet::load(options.file, context.home)), lume(context.home) {
  // An inventory is about all of them, and may be made on a machine that is none.
  if (options.action != "inventory") {
    host = fleet.host(options.on);
  }
}

Stage FleetScene::child(const std::string& what, const FleetVm& vm, const std::vector<std::string>& words) const {
  Stage stage;
  stage.what = what;
  stage.words = {sys::executable_path().string(), "--json", "--color", "never", words.front(), vm.name};
  stage.words.insert(stage.words.end(), words.begin() + 1, words.end());
  const LoginOptions& login = options.login;
  const auto add = [&](const char* option, const std::string& value) { stage.words.insert(stage.words.end(), {option, value}); };
  add("--timeout", std::to_string(vm.timeout_s));
  add("--user", vm.user.value_or(login.user));
  add("--port", std::to_string(vm.port.value_or(login.port)));
  if (const auto key = vm.key ? vm.key : login.key_file) {
    add("--key", key->string());
  }
  if (login.use_agent) {
    stage.words.emplace_back("--agent");
  }
  if (vm.password_file) {
    add("--password-file", vm.password_file->string());
  } else if (login.password) {
    add("--password-fd", "0");
    stage.input = login.password->reveal() + "\n";
  }
  if (login.passphrase) {
    stage.environment.emplace_back("LUMELIFT_KEY_PASSPHRASE", login.passphrase->reveal());
  }
  return stage;
}

Stage FleetScene::hook(const std::string& what, const FleetVm& vm, const Hook& words) {
  Stage stage;
  stage.what = what;
  stage.words = words;
  stage.environment = {{"LUMELIFT_VM", vm.name}, {"LUMELIFT_HOOK", what}};
  stage.limit_s = vm.hook_timeout_s;
  stage.hook = true;
  return stage;
}

std::string VmPlan::digest() const {
  std::string text = fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n", status, running, parked, off_again, recorded, goals);
  for (const auto& step : steps) {
    text += to_json(step) + "\n";
  }
  if (failure) {
    text += failure->error_id.value_or("") + "\n";
  }
  return sys::sha256(text);
}

std::vector<FleetChange> FleetSurvey::changes() const {
  std::vector<FleetChange> out;
  const bool sets = std::any_of(vms.begin(), vms.end(), [&](const VmPlan& vm) { return vm.work() && vm.wanted.host_preference == "set"; });
  if (sets && preference != PrefValue(true)) {
    out.push_back({"", "preference", feature_level_key().key, shown(preference), shown(PrefValue(true))});
  }
  for (const auto& plan : vms) {
    if (plan.parked && !plan.work()) {
      out.push_back({plan.wanted.name, "power", "power", "stopped", "running, as before an earlier fleet run"});
    }
    if (!plan.work()) {
      continue;
    }
    const std::string& vm = plan.wanted.name;
    if (plan.stops) {
      out.push_back({vm, "power", "power", "running", "running, restarted"});
    }
    for (const auto& step : plan.steps) {
      add_change(out, plan, step);
    }
    if (plan.running && plan.steps.empty()) {
      out.push_back({vm, "profile", "profile", "another one on record", plan.wanted.profile});
    }
    if (plan.running && plan.guest_known) {
      continue;
    }
    if (!plan.running) {
      out.push_back({vm, "power", "power", "stopped", plan.parked ? "running" : "started, and stopped again at the end"});
    }
    std::string wanted = "profile " + plan.wanted.profile;
    for (const auto& workload : plan.wanted.workloads) {
      wanted += ", workload " + workload.filename().string();
    }
    out.push_back({vm, "guest", "guest", "not known before it runs", wanted});
  }
  return out;
}

FleetSurvey survey_fleet(const FleetScene& scene, Depth depth, const FleetMemory::Before& before) {
  const auto among = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  FleetSurvey survey;
  const auto listed = scene.lume.list();
  std::set<std::string> ours;
  for (auto& wanted : scene.fleet.vms(scene.host_name(), listed, survey.warnings)) {
    ours.insert(wanted.name);
    const auto vm = std::find_if(listed.begin(), listed.end(), [&](const Vm& one) { return one.name == wanted.name; });
    VmPlan plan;
    plan.status = vm->status;
    plan.running = vm->power() == Power::running;
    plan.parked = !plan.running && among(before.running, wanted.name);
    plan.off_again = plan.running && among(before.off, wanted.name);
    // What only reads the journal reaches no guest.
    if (depth != Depth::recorded && vm->address && plan.running) {
      require_own_address(listed, vm->name, *vm->address);
    }
    plan.wanted = std::move(wanted);
    survey.vms.push_back(std::move(plan));
  }
  survey.outsiders = static_cast<int>(std::count_if(listed.begin(), listed.end(), [&](const Vm& vm) {
    return vm.os != "linux" && vm.power() == Power::running && !ours.contains(vm.name);
  }));
  survey.preference = Host().preference(feature_level_key());
  if (depth == Depth::names) {
    return survey;
  }
  const Journal journal(scene.context.state_dir, Journal::Access::read);
  Goals goals(scene.context);
  for (auto& plan : survey.vms) {
    const auto wanted = goals.of(plan.wanted);
    for (const auto& goal : wanted) {
      plan.goals += goal.goal + " ";
    }
    plan.recorded = recorded_as_wanted(journal, plan.wanted, wanted, survey.preference);
  }
  if (depth == Depth::full) {
    ask_running(scene, survey);
  }
  return survey;
}

}  // namespace lumelift
