#include "cli/fleet_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "host/sys/file.hpp"

namespace lumelift {
namespace {

using nlohmann::json;
using sys::Deadline;
using sys::Milliseconds;
using Act = FleetSchedule::Act;
using Order = FleetSchedule::Order;
using Result = FleetSchedule::Result;
using Stand = FleetSchedule::Stand;

constexpr std::size_t memory_cap = 1u << 20;
constexpr Milliseconds former_children{15 * 60'000};  // boot, copy and proof of a large model
constexpr Milliseconds look_again{3'000};

const StageDone* failed_stage(const std::vector<StageDone>& done) {
  const auto found = std::find_if(done.begin(), done.end(), [](const StageDone& stage) { return !stage.ok(); });
  return found == done.end() ? nullptr : &*found;
}

bool was_done(const std::vector<StageDone>& done, const std::string& what) {
  return std::any_of(done.begin(), done.end(), [&](const StageDone& stage) { return stage.what == what; });
}

/// Which commands a VM's order consists of, one after the other.
class Script {
 public:
  Script(const FleetScene& scene, const FleetSurvey& survey) : scene_(scene), survey_(survey), action_(scene.options.action) {}

  [[nodiscard]] std::optional<Stage> next(const Order& order, const std::vector<StageDone>& done) const {
    const VmPlan& plan = survey_.vms[order.vm];
    // What could not be looked at counts as tried.
    if (plan.failure && order.act == Act::work) {
      return std::nullopt;
    }
    const auto stages = main_stages(order, plan);
    const bool cut = failed_stage(done) != nullptr || (sys::pending_signal() != 0 && !done.empty() && order.act == Act::work);
    if (!cut && done.size() < stages.size()) {
      return stages[done.size()];
    }
    // A VM that was off and is on after a failure goes off again.
    if (order.off_after && !was_done(done, "power off") && !done.empty() && running(plan)) {
      return scene_.child("power off", plan.wanted, {"power", "off"});
    }
    // Without a before_stop of its own nothing stands between a VM that has to stop and the stop.
    const bool begun = !done.empty() && (plan.wanted.before_stop.empty() || (done.front().what == "before_stop" && done.front().ok()));
    const bool back = order.act == Act::wake || (order.act == Act::work && ((plan.running && plan.stops && begun) || plan.parked));
    const bool wanted = back && !plan.wanted.after_start.empty() && !was_done(done, "after_start");
    return wanted && running(plan) ? std::optional(FleetScene::hook("after_start", plan.wanted, plan.wanted.after_start)) : std::nullopt;
  }

  [[nodiscard]] bool running(const VmPlan& plan) const {
    try {
      const auto vm = scene_.lume.find(plan.wanted.name, Deadline::in(look_again));
      return vm && vm->power() == Power::running;
    } catch (const Error&) {
      return plan.running;
    }
  }

 private:
  [[nodiscard]] std::vector<Stage> main_stages(const Order& order, const VmPlan& plan) const {
    const FleetVm& vm = plan.wanted;
    if (order.act == Act::wake) {
      return {scene_.child("power on", vm, {"power", "on"})};
    }
    std::vector<Stage> out;
    if ((order.act == Act::park || (plan.running && plan.stops)) && !vm.before_stop.empty()) {
      out.push_back(FleetScene::hook("before_stop", vm, vm.before_stop));
    }
    if (order.act == Act::park) {
      out.push_back(scene_.child(
          "power off", vm,
          scene_.options.stop_busy ? std::vector<std::string>{"power", "off"} : std::vector<std::string>{"power", "off", "--if-idle"}));
      return out;
    }
    if (action_ == "verify") {
      if (!plan.running) {
        out.push_back(scene_.child("power on", vm, {"power", "on"}));
      }
      out.push_back(scene_.child("verify", vm, {"verify"}));
    } else if (action_ == "rollback") {
      out.push_back(child("rollback", vm, {"rollback"}));
    } else if (plan.work() || scene_.options.recheck) {
      add_unlocks(vm, out);
    }
    if (order.off_after && action_ != "rollback") {
      out.push_back(scene_.child("power off", vm, {"power", "off"}));
    }
    return out;
  }

  void add_unlocks(const FleetVm& vm, std::vector<Stage>& out) const {
    const std::size_t count = std::max<std::size_t>(1, vm.workloads.size());
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<std::string> words = {"unlock", "--profile", vm.profile, "--host-preference", vm.host_preference};
      if (i < vm.workloads.size()) {
        words.insert(words.end(), {"--workload", vm.workloads[i].string()});
      }
      out.push_back(child("unlock", vm, words));
    }
  }

  /// A command that may stop the VM.
  [[nodiscard]] Stage child(const std::string& what, const FleetVm& vm, std::vector<std::string> words) const {
    if (!scene_.options.stop_busy) {
      words.insert(words.end(), {"--restart", "idle"});
    }
    return scene_.child(what, vm, words);
  }

  const FleetScene& scene_;
  const FleetSurvey& survey_;
  const std::string action_;
};

std::vector<ScheduledVm> scheduled(const FleetScene& scene, const FleetSurvey& survey) {
  const std::string& action = scene.options.action;
  const Journal journal(scene.context.state_dir, Journal::Access::read);
  std::vector<ScheduledVm> out;
  for (const auto& plan : survey.vms) {
    ScheduledVm vm{plan.wanted.name, plan.running, plan.parked, false, plan.running && plan.stops};
    if (action == "apply") {
      vm.work = plan.work() || plan.failure || scene.options.recheck;
    }
    if (action == "verify") {
      vm.work = plan.running || scene.options.recheck;
    }
    if (action == "rollback") {
      vm.work = !journal.live_runs(plan.wanted.name).empty();
    }
    vm.off_after = plan.off_again;
    vm.work = vm.work || plan.off_again;
    out.push_back(std::move(vm));
  }
  return out;
}

FleetLimits limits_of(const FleetScene& scene) {
  FleetLimits limits;
  limits.guests = scene.fleet.guest_limit(scene.host);
  limits.jobs = scene.options.jobs;
  limits.keep_ready = scene.options.keep_ready;
  limits.canary = scene.options.canary;
  limits.max_fail = scene.options.fail_fast ? std::optional(0) : scene.options.max_fail;
  return limits;
}

int guests_of_others(const FleetScene& scene, const FleetSurvey& survey) {
  const auto listed = scene.lume.list();
  return static_cast<int>(std::count_if(listed.begin(), listed.end(), [&](const Vm& vm) {
    const bool ours = std::any_of(survey.vms.begin(), survey.vms.end(), [&](const VmPlan& plan) { return plan.wanted.name == vm.name; });
    return vm.os != "linux" && vm.power() == Power::running && !ours;
  }));
}

/// The result of a VM whose work was begun.
void take_story(FleetRow& row, const VmStory& story, const VmPlan& plan, const std::string& action) {
  if (plan.failure) {
    row.result = "failed";
    row.status = plan.failure->status;
    row.failure = plan.failure;
    row.note = fmt::format("{}: {}", plan.failure->error_id.value_or("child-failed"), plan.failure->message);
    return;
  }
  row.seconds = static_cast<double>(story.spent.count()) / 1000;
  bool changed = false;
  for (const auto& stage : story.stages) {
    if (stage.hook || stage.out.empty()) {
      continue;
    }
    row.reports.push_back(stage.out);
    changed = changed || (json_field(stage.out, "changed") == "true" && !stage.what.starts_with("power"));
  }
  row.result = action == "verify" ? "verified" : changed ? "changed" : "unchanged";
  const StageDone* failure = failed_stage(story.stages);
  if (failure == nullptr) {
    return;
  }
  row.result = "failed";
  row.status = failure->status;
  row.failure = *failure;
  if (failure->status == 130) {
    row.note = "interrupted; what was done is taken back";
    return;
  }
  row.note = failure->error_id ? fmt::format("{}: {}", *failure->error_id, failure->message)
                               : fmt::format("{} ended with status {}", failure->what, failure->status);
}

FleetRow row_of(const FleetScene& scene, const VmPlan& plan, const FleetSchedule& schedule, std::size_t at, const VmStory& story) {
  FleetRow row;
  row.vm = plan.wanted.name;
  row.before = plan.status;
  row.now = schedule.running(at) ? "running" : plan.running || story.spent.count() > 0 ? "stopped" : plan.status;
  const Stand stand = schedule.stand(at);
  row.result = "unchanged";
  if (stand == Stand::done || stand == Stand::failed) {
    take_story(row, story, plan, scene.options.action);
  } else if (stand == Stand::skipped) {
    row.result = "skipped";
    row.status = exit_status(ErrorKind::busy);
    row.note = schedule.reason(at);
  } else if (scene.options.action == "verify") {
    row.result = "skipped";
    row.note = "off; --recheck starts it to look";
  } else if (scene.options.action == "rollback") {
    row.note = "nothing to take back";
  } else {
    row.note = plan.running ? "as wanted" : "off; as wanted when it last ran";
  }
  if (schedule.parked(at)) {
    row.status = std::max(row.status, 1);
    row.result = "failed";
    row.note += fmt::format("{}{}{}", row.note.empty() ? "" : "; ", schedule.reason(at), story.trouble.empty() ? "" : ": " + story.trouble);
  } else if (!story.trouble.empty()) {
    row.note += fmt::format("{}it made no room: {}", row.note.empty() ? "" : "; ", story.trouble);
  }
  return row;
}

}  // namespace

FleetMemory::Before FleetMemory::left() const {
  std::error_code fault;
  Before before;
  if (!std::filesystem::exists(file_, fault)) {
    return before;
  }
  const json object = json::parse(sys::read_file(file_, memory_cap), nullptr, false);
  const auto take = [&](const char* key, std::vector<std::string>& into) {
    if (!object.is_object() || !object.contains(key) || !object[key].is_array()) {
      return;
    }
    for (const auto& name : object[key]) {
      if (name.is_string()) {
        into.push_back(name.get<std::string>());
      }
    }
  };
  take("running", before.running);
  take("off", before.off);
  return before;
}

void FleetMemory::begin(const std::string& command, const Before& before) const {
  const json object = {
      {"schema", 1}, {"command", command}, {"began", sys::iso_utc(sys::wall_seconds())}, {"running", before.running}, {"off", before.off}};
  sys::write_file(file_, object.dump(2, ' ', false, json::error_handler_t::replace) + "\n", 0600);
}

void FleetMemory::end() const {
  std::error_code fault;
  std::filesystem::remove(file_, fault);
}

int FleetOutcome::status() const {
  constexpr std::array by_weight = {3, 130, 1, 6, 5, 2, 4};
  for (const int worst : by_weight) {
    if (worst == 130 && interrupted) {
      return worst;
    }
    if (std::any_of(rows.begin(), rows.end(), [&](const FleetRow& row) { return row.status == worst; })) {
      return worst;
    }
  }
  // A hook may end with any status.
  return std::any_of(rows.begin(), rows.end(), [](const FleetRow& row) { return row.status != 0; }) ? 1 : 0;
}

bool FleetOutcome::changed() const {
  return std::any_of(rows.begin(), rows.end(), [](const FleetRow& row) { return row.result == "changed"; });
}

namespace {

/// One round over the VMs with an unfinished run; those on which somebody still works.
std::vector<std::string> recover_once(const FleetScene& scene) {
  const Journal journal(scene.context.state_dir, Journal::Access::read);
  std::vector<std::string> ignored, names, held;
  std::vector<Stage> stages;
  for (const auto& vm : scene.fleet.vms(scene.host_name(), scene.lume.list(), ignored)) {
    const auto runs = journal.live_runs(vm.name);
    if (std::all_of(runs.begin(), runs.end(), [](const RunRecord& run) { return run.state == RunState::committed; })) {
      continue;
    }
    names.push_back(vm.name);
    stages.push_back(scene.child("recover", vm, {"power", "recover"}));
  }
  if (names.empty()) {
    return {};
  }
  scene.context.console.say(fmt::format("finishing or taking back what an earlier run left: {}", fmt::join(names, ", ")));
  const auto done = run_each(scene.context.console, "recover", scene.options.jobs, names, stages);
  for (std::size_t at = 0; at < names.size(); ++at) {
    if (done[at].error_id == "lock-held") {
      held.push_back(names[at]);
    }
  }
  return held;
}

}  // namespace

void settle_former_run(const FleetScene& scene) {
  const Deadline deadline = Deadline::in(former_children);
  for (auto held = recover_once(scene); !held.empty(); held = recover_once(scene)) {
    if (deadline.expired()) {
      throw Error(ErrorKind::busy, "lock-held", fmt::format("another lumelift works on {}", fmt::join(held, ", ")))
          .fix("wait for it to end, then try again");
    }
    sys::pause(Milliseconds{200}, deadline);
  }
}

FleetOutcome run_over_fleet(const FleetScene& scene, const FleetSurvey& survey) {
  const sys::Stopwatch watch;
  const FleetMemory memory(scene.context.state_dir);
  const Script script(scene, survey);
  FleetSchedule schedule(scheduled(scene, survey), limits_of(scene), survey.outsiders);
  std::vector<std::string> names;
  FleetMemory::Before before;
  for (const auto& plan : survey.vms) {
    names.push_back(plan.wanted.name);
    const bool ran = plan.parked || (plan.running && !plan.off_again);
    (ran ? before.running : before.off).push_back(plan.wanted.name);
  }

  bool remembered = false;
  FleetCrew::Part part;
  part.begins = [&](const Order&) {
    // On disk before the first VM can be stopped.
    if (!remembered) {
      memory.begin(scene.options.action, before);
    }
    remembered = true;
  };
  part.next = [&](const Order& order, const std::vector<StageDone>& done) { return script.next(order, done); };
  part.ended = [&](const Order& order, const std::vector<StageDone>& done) {
    const bool running = script.running(survey.vms[order.vm]);
    const StageDone* failure = failed_stage(done);
    if (survey.vms[order.vm].failure && order.act == Act::work) {
      return std::make_pair(Result::failed, running);
    }
    if (failure == nullptr) {
      return std::make_pair(Result::ok, running);
    }
    const bool no_room = failure->error_id == "vm-limit" && order.act == Act::work && !survey.vms[order.vm].running;
    if (no_room) {
      schedule.set_outsiders(guests_of_others(scene, survey));
    }
    return std::make_pair(no_room ? Result::no_room : Result::failed, running);
  };
  FleetCrew crew(scene.context.console, scene.options.action, names, part);
  FleetOutcome outcome;
  outcome.interrupted = crew.run(schedule);
  bool all_back = true;
  for (std::size_t at = 0; at < names.size(); ++at) {
    outcome.rows.push_back(row_of(scene, survey.vms[at], schedule, at, crew.story(at)));
    all_back = all_back && !schedule.parked(at);
  }
  if (remembered && all_back) {
    memory.end();
  }
  outcome.warnings = survey.warnings;
  outcome.seconds = static_cast<double>(watch.elapsed().count()) / 1000;
  return outcome;
}

}  // namespace lumelift
