#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/plan.hpp"
#include "host/journal.hpp"

namespace lumelift {

int run_history(Context& context, const HistoryOptions& options) {
  const Journal journal(context.state_dir, Journal::Access::read);
  const auto runs = journal.history(options.vm.empty() ? std::string() : Lume::stored_name(options.vm));
  nlohmann::json object = {{"schema", 1}, {"runs", nlohmann::json::array()}};
  std::string left;
  std::vector<std::vector<std::string>> rows = {{"RUN", "WHEN", "VM", "COMMAND", "STATE", "STEPS"}};
  for (const auto& run : runs) {
    const auto steps = journal.steps(run.id);
    nlohmann::json list = nlohmann::json::array();
    for (const auto& step : steps) {
      list.push_back({{"state", shown(step.state)}, {"what", described(step_from_json(step.body))}});
    }
    object["runs"].push_back({{"id", run.id},
                              {"vm", run.vm},
                              {"command", run.command},
                              {"state", shown(run.state)},
                              {"started", sys::iso_utc(run.started_at)},
                              {"ended", run.ended_at ? nlohmann::json(sys::iso_utc(run.ended_at)) : nlohmann::json()},
                              {"steps", list}});
    for (const auto& step : steps) {
      if (step.state == StepState::kept) {
        left += fmt::format("run {} left alone: {}\n", run.id, cleaned(described(step_from_json(step.body))));
      }
    }
    rows.push_back({std::to_string(run.id), sys::iso_utc(run.started_at), cleaned(run.vm), run.command, shown(run.state),
                    std::to_string(steps.size())});
  }
  if (context.console.json()) {
    context.console.result_json(object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    context.console.result(runs.empty()
                               ? (options.vm.empty() ? std::string("No runs yet.") : fmt::format("No runs of {} yet.", cleaned(options.vm)))
                               : table(rows, {0, 5}) + left);
  }
  return 0;
}

int run_trust(Context& context, const TrustOptions& options) {
  if (const auto why = Lume::bad_name(options.vm)) {
    throw Error(ErrorKind::usage, "vm-name-invalid", fmt::format("'{}' cannot be the name of a VM: {}", options.vm, *why));
  }
  sys::ensure_private_folder(context.state_dir);
  Journal journal(context.state_dir, Journal::Access::write);
  const std::string vm = Lume::stored_name(options.vm);
  const auto pin = journal.pin(vm);
  if (pin) {
    journal.remove_pin(vm);
  }
  const std::string text = pin ? fmt::format("{}: forgot the host key {} (pinned {}); the next contact pins the one it meets.", vm,
                                             pin->fingerprint, sys::iso_utc(pin->since).substr(0, 10))
                               : fmt::format("{}: no host key is pinned; the next contact pins the one it meets.", vm);
  if (context.console.json()) {
    context.console.result_json(nlohmann::json({{"schema", 1}, {"vm", vm}, {"changed", pin.has_value()}})
                                    .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    context.console.result(text);
  }
  return 0;
}

}  // namespace lumelift
