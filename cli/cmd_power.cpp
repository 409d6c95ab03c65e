#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/fleet_options.hpp"
#include "cli/in_use.hpp"
#include "cli/operation.hpp"

namespace lumelift {
namespace {

/// Puts the power as wanted, as a run that is recorded like any other; what was reached is meant to last, so nothing of it is
/// left to be taken back. An interruption's exit status, else nothing.
std::optional<int> set_power(Operation& operation, const Vm& vm, Power wanted) {
  const RunId run = operation.journal->begin(vm.name, wanted == Power::running ? "power-on" : "power-off");
  try {
    operation.engine->apply(run, Plan{vm.name, {SetPower{vm.power().value(), wanted, start_options(vm)}}, {}});
  } catch (Error& error) {
    operation.take_back(run, error);
    throw;
  } catch (const sys::Interrupted&) {
    return operation.take_back_interrupted(run);
  }
  for (const auto& step : operation.journal->steps(run)) {
    operation.journal->mark(run, step.position, StepState::undone);
  }
  operation.journal->set_run(run, RunState::undone);
  return std::nullopt;
}

}  // namespace

int run_power(Context& context, const PowerOptions& options) {
  const bool recovers = options.to == "recover";
  const Power wanted = options.to == "on" ? Power::running : Power::stopped;
  Operation operation(context, options.target, "power " + options.to, Operation::Touch::world);
  operation.finish_former();
  const Vm vm = operation.vm();
  if (!vm.power()) {
    throw Error(ErrorKind::busy, "vm-not-ready", fmt::format("'{}' is {}", vm.name, vm.status))
        .fix("wait until lume lists it as stopped or running, then try again");
  }
  const bool changes = !recovers && vm.power() != wanted;
  if (changes && wanted == Power::stopped && options.if_idle) {
    refuse_in_use(operation, Counted::sessions_and_workloads);
  }
  if (changes) {
    if (const auto status = set_power(operation, vm, wanted)) {
      return *status;
    }
  }
  for (const auto& warning : operation.engine->warnings()) {
    context.console.warn(warning);
  }
  const std::string now = shown(recovers ? vm.power().value() : wanted);
  if (context.console.json()) {
    const nlohmann::json object = {
        {"schema", 1}, {"vm", vm.name}, {"changed", changes}, {"power", now}, {"warnings", operation.engine->warnings()}};
    context.console.result_json(object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    context.console.result(fmt::format("{} is {}{}.", vm.name, now, changes || recovers ? "" : " already"));
  }
  return 0;
}

}  // namespace lumelift
