#include "cli/guest_kit.hpp"

#include <algorithm>

namespace lumelift {
namespace {

using sys::Deadline;
using sys::Milliseconds;

constexpr Milliseconds answer{15'000}, look_limit{60'000};

struct Needs {
  GuestKit guest;
  Plan plan;  ///< what of it is missing
};

Needs look(Operation& operation, const Profile& profile, const std::vector<Source>& kit) {
  operation.link->connect(Deadline::in(answer), GuestLink::Wait::up);
  Guest& guest = operation.link->guest();
  Needs needs;
  needs.guest.facts = guest.facts(Deadline::in(answer));
  needs.guest.goal = guest_goal(profile, std::nullopt, kit, {}, needs.guest.facts, {});
  const auto seen = guest.look(needs.guest.goal.paths(), Deadline::in(look_limit));
  needs.plan = plan_guest(operation.found.name, needs.guest.goal, seen, {}, needs.guest.facts);
  return needs;
}

bool unlocked_cleanly(const Operation& operation) {
  const auto runs = operation.journal->live_runs(operation.found.name);
  return !runs.empty() && std::all_of(runs.begin(), runs.end(), [](const RunRecord& run) { return run.state == RunState::committed; });
}

}  // namespace

int with_guest_kit(Context& context, const TargetOptions& target, const std::string& command, const Profile& profile,
                   const std::vector<Source>& kit, const std::function<int(Operation&, const GuestKit&)>& work) {
  {
    Operation operation(context, target, command, Operation::Touch::nothing);
    if (unlocked_cleanly(operation)) {
      const Needs needs = look(operation, profile, kit);
      if (needs.plan.steps.empty()) {
        return work(operation, needs.guest);
      }
    }
  }
  Operation operation(context, target, command, Operation::Touch::world);
  operation.finish_former();
  const Needs needs = look(operation, profile, kit);
  std::optional<RunId> run;
  int status = 0;
  try {
    if (!needs.plan.steps.empty()) {
      run = operation.journal->begin(operation.found.name, command);
      operation.engine->apply(*run, needs.plan);
    }
    status = work(operation, needs.guest);
  } catch (Error& error) {
    if (run) {
      operation.take_back(*run, error);
    }
    throw;
  } catch (const sys::Interrupted&) {
    if (run) {
      return operation.take_back_interrupted(*run);
    }
    throw;
  }
  if (run && !operation.undo({operation.record(*run)}, Restart::never).complete()) {
    return exit_status(ErrorKind::incomplete);
  }
  return status;
}

}  // namespace lumelift
