#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/fleet_inventory.hpp"
#include "cli/fleet_run.hpp"
#include "host/sys/file.hpp"
#include "host/sys/hash.hpp"

namespace lumelift {
namespace {

using nlohmann::json;
using sys::Deadline;
using sys::Milliseconds;

constexpr std::size_t plan_cap = 8u << 20;
constexpr int changes_status = 2;  // of plan --exit-code
constexpr const char* plan_kind = "lumelift-fleet-plan";

std::string dumped(const json& object) {
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

json parsed(const std::string& text) {
  json value = json::parse(text, nullptr, false);
  return value.is_discarded() ? json() : value;
}

json failure_json(const std::optional<StageDone>& failure) {
  if (!failure) {
    return nullptr;
  }
  return {{"id", failure->error_id.value_or("")}, {"stage", failure->what},      {"status", failure->status},
          {"message", failure->message},          {"details", failure->details}, {"fix", failure->fix}};
}

/// What every object of a fleet command begins with.
json head_of(const FleetScene& scene) {
  return {{"schema", 1},
          {"command", scene.options.action},
          {"fleet", scene.options.file.string()},
          {"host", scene.host ? json(scene.host->name) : json()}};
}

/// One digest over everything that a plan rests on.
std::string digest_of(const FleetScene& scene, const FleetSurvey& survey) {
  std::string text = fmt::format("{}\n{}\n{}\n", scene.fleet.digest(), scene.host_name(), to_json(survey.preference));
  for (const auto& vm : survey.vms) {
    text += vm.wanted.name + " " + vm.digest() + "\n";
  }
  return sys::sha256(text);
}

json plan_json(const FleetScene& scene, const FleetSurvey& survey) {
  json object = head_of(scene);
  object.update({{"kind", plan_kind},
                 {"digest", digest_of(scene, survey)},
                 {"warnings", survey.warnings},
                 {"resources", json::array()},
                 {"vms", json::array()}});
  for (const auto& change : survey.changes()) {
    object["resources"].push_back({{"vm", change.vm.empty() ? json() : json(change.vm)},
                                   {"resource", change.kind},
                                   {"name", change.name},
                                   {"before", change.before},
                                   {"after", change.after}});
  }
  object["changes"] = !object["resources"].empty();
  for (const auto& vm : survey.vms) {
    object["vms"].push_back({{"vm", vm.wanted.name},
                             {"state", vm.status},
                             {"changes", vm.work()},
                             {"stops", vm.work() && vm.stops},
                             {"guest_known", vm.guest_known},
                             {"notes", vm.notes},
                             {"digest", vm.digest()},
                             {"error", failure_json(vm.failure)}});
  }
  return object;
}

std::string plan_text(const FleetScene& scene, const FleetSurvey& survey) {
  const Console& console = scene.context.console;
  std::string out;
  for (const auto& change : survey.changes()) {
    out += fmt::format("{}  {} {}\n", console.styled(cleaned(change.vm.empty() ? "host" : change.vm), Style::bold), change.kind,
                       change.name == change.kind ? "" : cleaned(change.name));
    out += console.styled(fmt::format("  - {}", cleaned(change.before)), Style::bad) + "\n" +
           console.styled(fmt::format("  + {}", cleaned(change.after)), Style::good) + "\n";
  }
  std::size_t work = 0, failed = 0;
  for (const auto& vm : survey.vms) {
    work += vm.work() ? 1 : 0;
    failed += vm.failure ? 1 : 0;
    if (vm.failure) {
      out += fmt::format("{}: cannot be looked at: {}: {}\n", cleaned(vm.wanted.name), vm.failure->error_id.value_or("child-failed"),
                         cleaned(vm.failure->message));
    }
  }
  return out + fmt::format("{} VM{}: {} to change, {} as wanted{}. Nothing was changed.", survey.vms.size(),
                           survey.vms.size() == 1 ? "" : "s", work, survey.vms.size() - work - failed,
                           failed > 0 ? fmt::format(", {} unknown", failed) : "");
}

/// Refuses a saved plan when what it rests on is no longer so; names what moved.
void check_plan(const FleetScene& scene, const FleetSurvey& survey) {
  const std::filesystem::path& file = *scene.options.plan;
  const json saved = json::parse(sys::read_file(file, plan_cap), nullptr, false);
  if (!saved.is_object() || saved.value("kind", "") != plan_kind || saved.value("schema", 0) != 1 || !saved.contains("vms") ||
      !saved["vms"].is_array()) {
    throw Error(ErrorKind::usage, "plan-unreadable", fmt::format("'{}' is no plan of this lumelift", file.string()))
        .fix("make one: lumelift fleet plan --out FILE");
  }
  if (saved.value("digest", "") == digest_of(scene, survey)) {
    return;
  }
  Error error(ErrorKind::usage, "plan-outdated", "the world is no longer as it was when the plan was made; nothing was changed");
  if (saved.value("host", json()) != head_of(scene)["host"]) {
    error.note("it was made for another host");
  }
  for (const auto& vm : survey.vms) {
    const auto same = std::find_if(saved["vms"].begin(), saved["vms"].end(),
                                   [&](const json& one) { return one.value("vm", std::string()) == vm.wanted.name; });
    if (same == saved["vms"].end()) {
      error.note(vm.wanted.name + " is not in the plan");
    } else if (same->value("digest", std::string()) != vm.digest()) {
      error.note(vm.wanted.name + ": what is there, or what would be done, is another than planned");
    }
  }
  if (error.details().empty()) {
    error.note("the fleet file or the host preference has changed");
  }
  throw error.fix("look at the new plan: lumelift fleet plan");
}

std::string outcome_json(const FleetScene& scene, const FleetOutcome& outcome) {
  json object = head_of(scene);
  object.update({{"changed", outcome.changed()},
                 {"status", outcome.status()},
                 {"interrupted", outcome.interrupted},
                 {"seconds", outcome.seconds},
                 {"warnings", outcome.warnings},
                 {"vms", json::array()}});
  for (const auto& row : outcome.rows) {
    json reports = json::array();
    for (const auto& report : row.reports) {
      reports.push_back(parsed(report));
    }
    object["vms"].push_back({{"vm", row.vm},
                             {"before", row.before},
                             {"now", row.now},
                             {"result", row.result},
                             {"changed", row.result == "changed"},
                             {"status", row.status},
                             {"seconds", row.seconds ? json(*row.seconds) : json()},
                             {"note", row.note},
                             {"error", failure_json(row.failure)},
                             {"reports", reports}});
  }
  return dumped(object);
}

std::string outcome_text(const Console& console, const FleetOutcome& outcome) {
  std::vector<std::vector<std::string>> rows = {{"VM", "BEFORE", "RESULT", "NOW", "TIME", "NOTE"}};
  std::string tail;
  std::vector<std::pair<std::string, int>> counts;
  for (const auto& row : outcome.rows) {
    const Style style = row.result == "failed" ? Style::bad : row.result == "skipped" ? Style::warn : Style::good;
    rows.push_back({cleaned(row.vm), cleaned(row.before), console.styled(row.result, style), cleaned(row.now),
                    row.seconds ? fmt::format("{:.1f} s", *row.seconds) : "–", cleaned(row.note, 300)});
    const auto known = std::find_if(counts.begin(), counts.end(), [&](const auto& count) { return count.first == row.result; });
    if (known == counts.end()) {
      counts.emplace_back(row.result, 1);
    } else {
      ++known->second;
    }
    if (!row.failure) {
      continue;
    }
    for (const auto& detail : row.failure->details) {
      tail += fmt::format("  {}: {}\n", row.vm, cleaned(detail, 400));
    }
    if (!row.failure->fix.empty()) {
      tail += fmt::format("  {}: next: {}\n", row.vm, cleaned(row.failure->fix));
    }
  }
  std::string sum;
  for (const auto& [result, count] : counts) {
    sum += fmt::format("{}{} {}", sum.empty() ? "" : ", ", count, result);
  }
  return table(rows, {4}) + tail +
         fmt::format("{} VM{}: {}; {:.1f} s{}", outcome.rows.size(), outcome.rows.size() == 1 ? "" : "s", sum, outcome.seconds,
                     outcome.interrupted ? "; interrupted" : "");
}

int show_outcome(const FleetScene& scene, const FleetOutcome& outcome) {
  Console& console = scene.context.console;
  for (const auto& warning : outcome.warnings) {
    console.warn(warning);
  }
  if (console.json()) {
    console.result_json(outcome_json(scene, outcome));
  } else {
    console.result(outcome_text(console, outcome));
  }
  return outcome.status();
}

int plan(const FleetScene& scene) {
  Console& console = scene.context.console;
  const FleetSurvey survey = survey_fleet(scene, Depth::full, FleetMemory(scene.context.state_dir).left());
  const json object = plan_json(scene, survey);
  if (scene.options.out) {
    sys::write_file(*scene.options.out, dumped(object) + "\n", 0644);
  }
  for (const auto& warning : survey.warnings) {
    console.warn(warning);
  }
  if (console.json()) {
    console.result_json(dumped(object));
  } else {
    console.result(plan_text(scene, survey));
  }
  const auto broken = std::find_if(survey.vms.begin(), survey.vms.end(), [](const VmPlan& vm) { return vm.failure.has_value(); });
  if (broken != survey.vms.end()) {
    return broken->failure->status;
  }
  return scene.options.exit_code && object["changes"].get<bool>() ? changes_status : 0;
}

/// apply, rollback and verify: one at a time per user.
int act(const FleetScene& scene) {
  const Context& context = scene.context;
  if (const auto why = Host::wrong_user(context.user)) {
    throw Error(ErrorKind::usage, "wrong-user", *why).fix("run lumelift as the user who runs the VMs, without sudo");
  }
  sys::ensure_private_folder(context.state_dir);
  { const Journal made(context.state_dir, Journal::Access::write); }
  const sys::FileLock lock(context.state_dir / "fleet.lock", "fleet " + scene.options.action, Deadline::in(Milliseconds{1'000}));
  settle_former_run(scene);
  const auto left = FleetMemory(context.state_dir).left();
  FleetSurvey survey = survey_fleet(scene, scene.options.action == "apply" ? Depth::full : Depth::names, left);
  for (auto& vm : survey.vms) {
    if (vm.parked) {
      survey.warnings.push_back(fmt::format("{} ran before a fleet run that did not end; it will run again", vm.wanted.name));
    }
    if (vm.off_again) {
      survey.warnings.push_back(fmt::format("{} was off before a fleet run that did not end; it will be off again", vm.wanted.name));
    }
    // Whether a rollback restarts its VM is known only when it is done.
    if (scene.options.action == "rollback") {
      vm.stops = vm.running;
    }
  }
  if (scene.options.plan) {
    check_plan(scene, survey);
  }
  return show_outcome(scene, run_over_fleet(scene, survey));
}

/// An option that the action does not heed is a mistake, and often a dangerous one: "apply --out" was meant to be a plan.
void refuse_unheeded(const FleetOptions& options) {
  struct Rule {
    bool given;
    std::string_view name;
    std::vector<std::string_view> actions;
  };
  const std::vector<std::string_view> acting = {"apply", "verify", "rollback"};
  const Rule rules[] = {
      {options.out.has_value(), "--out", {"plan"}},         {options.exit_code, "--exit-code", {"plan"}},
      {options.plan.has_value(), "--plan", {"apply"}},      {options.canary > 0, "--canary", {"apply", "rollback"}},
      {options.recheck, "--recheck", {"apply", "verify"}},  {options.keep_ready > 0, "--keep-ready", acting},
      {options.max_fail.has_value(), "--max-fail", acting}, {options.fail_fast, "--fail-fast", acting},
      {options.stop_busy, "--stop-busy", acting},           {options.list, "--list", {"inventory"}},
      {!options.one.empty(), "--host", {"inventory"}},
  };
  for (const auto& rule : rules) {
    if (rule.given && std::find(rule.actions.begin(), rule.actions.end(), options.action) == rule.actions.end()) {
      throw Error(ErrorKind::usage, "usage", fmt::format("{} goes with fleet {}", rule.name, fmt::join(rule.actions, ", ")))
          .fix("see: lumelift fleet --help");
    }
  }
}

}  // namespace

int run_fleet(Context& context, const FleetOptions& options) {
  refuse_unheeded(options);
  const FleetScene scene(context, options);
  if (options.action == "plan") {
    return plan(scene);
  }
  if (options.action == "status") {
    return fleet_status(scene);
  }
  if (options.action == "inventory") {
    return fleet_inventory(scene);
  }
  return act(scene);
}

}  // namespace lumelift
