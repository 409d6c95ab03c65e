#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/error_json.hpp"
#include "cli/in_use.hpp"
#include "cli/operation.hpp"

namespace lumelift {
namespace {

using nlohmann::json;
using sys::Deadline;
using sys::Milliseconds;

json to_json(const std::string& vm, const UndoReport& report, const std::vector<std::string>& warnings, bool changed) {
  return {{"schema", 1},
          {"vm", vm},
          {"changed", changed},
          {"complete", report.complete()},
          {"files", {{"removed", report.files_removed}, {"restored", report.files_restored}}},
          {"agents", {{"stopped", report.agents_stopped}, {"restored", report.agents_restored}}},
          {"preference", report.preference ? json(*report.preference) : json()},
          {"restarted", report.restarted},
          {"stopped", report.stopped},
          {"kept", report.kept},
          {"failed", report.failed},
          {"unrecorded", report.unrecorded ? json(*report.unrecorded) : json()},
          {"warnings", warnings}};
}

std::string dumped(const json& object) {
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

/// What a person wants to know at the end.
std::string closing(const std::string& vm, const UndoReport& report, const Operation& operation) {
  std::string out;
  for (const auto& line : report.kept) {
    out += "  left alone: " + cleaned(line) + "\n";
  }
  for (const auto& line : report.failed) {
    out += "  not undone: " + cleaned(line) + "\n";
  }
  if (!report.failed.empty()) {
    return out + fmt::format("Something of {} could not be undone; it stays recorded. See to the reasons above, then: lumelift rollback {}",
                             vm, vm);
  }
  if (report.unrecorded) {
    return out + fmt::format(
                     "{0} is stock again, but the journal could not be told: {1}. Make room for it, then: lumelift rollback {0} looks and "
                     "records that",
                     vm, *report.unrecorded);
  }
  if (operation.found.status == "gone") {
    return out + fmt::format("'{}' is gone; what it held on this Mac has been released.", vm);
  }
  const auto now = operation.lume.find(vm);
  const bool running = now && now->power() == Power::running;
  if (running && !report.restarted && report.preference) {
    return out +
           fmt::format("{0} is stock again after its next start. To have that now: lumelift power {0} off, then lumelift power {0} on", vm);
  }
  return out + fmt::format("{} is stock again{}.", vm, report.kept.empty() ? "" : ", but for what was left alone");
}

/// The steps of live runs that a rollback would take back, newest first. Power and preference count only where it would touch them.
std::vector<Step> steps_to_undo(const Operation& operation, Restart restart, bool others) {
  auto runs = operation.journal->live_runs(operation.found.name);
  std::sort(runs.begin(), runs.end(), [](const RunRecord& a, const RunRecord& b) { return a.id > b.id; });
  const bool running = operation.found.power() == Power::running;
  std::vector<Step> out;
  for (const auto& run : runs) {
    auto records = operation.journal->steps(run.id);
    std::reverse(records.begin(), records.end());
    for (const auto& record : records) {
      if (record.state != StepState::intended && record.state != StepState::done) {
        continue;
      }
      const Step step = step_from_json(record.body);
      const bool power = std::holds_alternative<SetPower>(step);
      const bool cycles = running && restart != Restart::never && (!others || restart == Restart::always);
      if ((power && !cycles) || (others && std::holds_alternative<SetPreference>(step))) {
        continue;
      }
      out.push_back(step);
    }
  }
  return out;
}

int show_undo(Context& context, const RollbackOptions& options, const std::string& name) {
  TargetOptions target = options.target;
  target.vm = name;
  const Operation operation(context, target, "rollback", Operation::Touch::nothing, Operation::Missing::allowed);
  const std::string& vm = operation.found.name;
  const auto claims = operation.journal->claims(resource_of(feature_level_key()));
  const bool others = std::any_of(claims.begin(), claims.end(), [&](const Claim& claim) { return claim.vm != vm; });
  const bool changes = !operation.journal->live_runs(vm).empty();
  const auto steps = steps_to_undo(operation, restart_from(options.restart), others);
  std::vector<std::string> notes;
  if (changes && others) {
    notes.emplace_back("the host preference stays: another VM claims it too");
  }
  if (changes) {
    notes.emplace_back("what somebody else has changed since is left alone");
  }
  if (context.console.json()) {
    json object = {{"schema", 1}, {"vm", vm}, {"dry_run", true}, {"changes", changes}, {"notes", notes}, {"steps", json::array()}};
    for (const auto& step : steps) {
      json one = json::parse(to_json(step));
      if (one.contains("before")) {
        std::swap(one["before"], one["after"]);
      }
      object["steps"].push_back(std::move(one));
    }
    context.console.result_json(dumped(object));
    return 0;
  }
  std::string out = changes ? fmt::format("{}: would take back\n", vm) : fmt::format("{}: nothing to take back.\n", vm);
  int number = 0;
  for (const auto& step : steps) {
    out += fmt::format("{:>3}. {}\n", ++number, cleaned(described_undo(step)));
  }
  for (const auto& note : notes) {
    out += "     " + note + "\n";
  }
  context.console.result(out + "Nothing was changed (--dry-run).");
  return 0;
}

/// How the rollback of one VM ended.
struct Ending {
  int status = 0;
  json object;
  std::string text;
};

Ending roll_back_vm(Context& context, const RollbackOptions& options, const std::string& name) {
  TargetOptions target = options.target;
  target.vm = name;
  Operation operation(context, target, "rollback", Operation::Touch::world, Operation::Missing::allowed);
  const std::string vm = operation.found.name;
  const std::vector<RunRecord> runs = operation.journal->live_runs(vm);
  if (runs.empty()) {
    return {0, to_json(vm, {}, {}, false), fmt::format("{}: nothing to take back.", vm)};
  }
  if (options.restart == "idle" && operation.found.power() == Power::running) {
    refuse_in_use(operation, Counted::sessions);
  }
  const UndoReport report = operation.undo(runs, restart_from(options.restart));
  Ending ending{report.complete() ? 0 : exit_status(ErrorKind::incomplete), to_json(vm, report, operation.engine->warnings(), true), {}};
  if (!context.console.json()) {
    for (const auto& warning : operation.engine->warnings()) {
      context.console.warn(warning);
    }
    ending.text = closing(vm, report, operation);
  }
  return ending;
}

int roll_back_one(Context& context, const RollbackOptions& options) {
  const Ending ending = roll_back_vm(context, options, options.target.vm);
  context.console.json() ? context.console.result_json(dumped(ending.object)) : context.console.result(ending.text);
  return ending.status;
}

/// The preference alone: what was there before any VM claimed it.
int roll_back_host(Context& context) {
  sys::ensure_private_folder(context.state_dir);
  Journal journal(context.state_dir, Journal::Access::write);
  const Host host;
  const std::string resource = resource_of(feature_level_key());
  const auto lock = journal.lock_preference("rollback --host", Deadline::in(Milliseconds{10'000}));
  const auto claims = journal.claims(resource);
  std::vector<std::string> holders;
  for (const auto& claim : claims) {
    holders.push_back(claim.vm);
    if (const auto worker = journal.holder(claim.vm)) {
      throw Error(ErrorKind::busy, "lock-held", fmt::format("'{}' relies on the preference and is being worked on: {}", claim.vm, *worker))
          .fix("wait for it to end, then try again");
    }
  }
  const PrefValue now = host.preference(feature_level_key());
  bool changed = false, kept = false;
  std::string told;
  if (claims.empty()) {
    told = fmt::format("host preference: no VM of lumelift claims it; it stays {}", shown(now));
  } else {
    const PrefValue before = pref_from_json(claims.front().before);
    if (now == PrefValue(true) && before != now) {
      host.set_preference(feature_level_key(), before);
      changed = true;
      told = fmt::format("host preference restored to {}", shown(before));
    } else {
      kept = now != before;
      told = kept ? fmt::format("host preference is {}, changed by somebody else: left alone", shown(now))
                  : fmt::format("host preference is {} already", shown(now));
    }
    for (const auto& holder : holders) {
      journal.release(resource, holder);
    }
  }
  if (context.console.json()) {
    context.console.result_json(dumped({{"schema", 1}, {"changed", changed}, {"preference", told}, {"relied_on_by", holders}}));
  } else {
    context.console.result(told);
    if (!holders.empty()) {
      context.console.result(fmt::format(
          "These VMs still rely on it and lose it at their next start: {}. To give it back: lumelift unlock VM", fmt::join(holders, ", ")));
    }
  }
  return kept ? exit_status(ErrorKind::incomplete) : 0;
}

/// What stands for the VM in the answer: what its own rollback would have answered, or why there was none.
json row_of(const std::string& vm, const json& object, int status, const json& error) {
  json row = object.is_object() ? object : json{{"vm", vm}, {"changed", false}, {"complete", false}};
  row.erase("schema");
  row["status"] = status;
  row["error"] = error;
  return row;
}

/// The worst of all, as for a fleet: what is left behind goes over everything, and a VM that was not free is the least.
int worst_of(const json& rows) {
  constexpr std::array by_weight = {3, interrupted_status, 1, 6, 5, 2, 4};
  const auto* const worst = std::find_if(by_weight.begin(), by_weight.end(), [&](int status) {
    return std::any_of(rows.begin(), rows.end(), [&](const json& row) { return row["status"] == status; });
  });
  return worst == by_weight.end() ? 0 : *worst;
}

int roll_back_all(Context& context, const RollbackOptions& options) {
  std::set<std::string> names;
  for (const auto& run : Journal(context.state_dir, Journal::Access::read).live_runs()) {
    names.insert(run.vm);
  }
  Console& console = context.console;
  if (names.empty() && !console.json()) {
    console.result("Nothing to take back.");
  }
  json rows = json::array();
  bool stopped = false;
  for (const auto& name : names) {
    try {
      if (!stopped) {
        const Ending ending = roll_back_vm(context, options, name);
        rows.push_back(row_of(name, ending.object, ending.status, {}));
        if (!console.json()) {
          console.result(ending.text);
        }
        continue;
      }
    } catch (const Error& error) {
      console.complain(error);
      rows.push_back(row_of(name, {}, exit_status(error.kind()), json::parse(error_object(error, exit_status(error.kind())))));
      continue;
    } catch (const sys::Interrupted&) {
      if (rows.empty()) {
        throw;
      }
      stopped = true;
    }
    console.say(fmt::format("interrupted; '{}' was not rolled back", name));
    rows.push_back(row_of(name, {}, interrupted_status, json::parse(interrupted_object("lumelift rollback " + name))));
  }
  const int status = worst_of(rows);
  if (console.json()) {
    const bool changed = std::any_of(rows.begin(), rows.end(), [](const json& row) { return row["changed"] == true; });
    console.result_json(dumped({{"schema", 1}, {"changed", changed}, {"status", status}, {"vms", rows}}));
  }
  return status;
}

}  // namespace

int run_rollback(Context& context, const RollbackOptions& options) {
  if ((options.host || options.all) != options.target.vm.empty()) {
    throw Error(ErrorKind::usage, "usage", "rollback needs the name of one VM, or --host, or --all").fix("see: lumelift rollback --help");
  }
  if (options.dry_run) {
    if (options.target.vm.empty()) {
      throw Error(ErrorKind::usage, "usage", "--dry-run is for the rollback of one VM").fix("see: lumelift rollback --help");
    }
    return show_undo(context, options, options.target.vm);
  }
  if (options.host) {
    return roll_back_host(context);
  }
  return options.all ? roll_back_all(context, options) : roll_back_one(context, options);
}

}  // namespace lumelift
