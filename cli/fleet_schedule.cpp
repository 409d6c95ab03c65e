#include "cli/fleet_schedule.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace lumelift {
namespace {

// Somebody who starts guests beside us gets so many chances to end before a VM is given up.
constexpr int most_no_room = 3;

}  // namespace

FleetSchedule::FleetSchedule(std::vector<ScheduledVm> vms, FleetLimits limits, int outsiders) : limits_(limits), outsiders_(outsiders) {
  for (auto& vm : vms) {
    State state;
    static_cast<ScheduledVm&>(state) = std::move(vm);
    state.stand = state.work ? Stand::waiting : Stand::idle;
    vms_.push_back(std::move(state));
  }
}

int FleetSchedule::occupied() const {
  const auto ours = std::count_if(vms_.begin(), vms_.end(), [](const State& vm) { return vm.running || vm.in_order; });
  return outsiders_ + static_cast<int>(ours);
}

int FleetSchedule::serving() const {
  return static_cast<int>(
      std::count_if(vms_.begin(), vms_.end(), [](const State& vm) { return vm.running && !(vm.in_order && vm.stops); }));
}

bool FleetSchedule::waits_for_room() const {
  return !halted_ && std::any_of(vms_.begin(), vms_.end(), [](const State& vm) { return vm.stand == Stand::waiting && !vm.running; });
}

FleetSchedule::Order FleetSchedule::begin(Act act, std::size_t at) {
  State& vm = vms_[at];
  vm.in_order = true;
  ++active_;
  if (act == Act::park) {
    vm.stops = true;
  }
  if (act != Act::work) {
    return {act, at};
  }
  vm.stand = Stand::active;
  ++begun_;
  return {act, at, vm.off_after || (!vm.running && !vm.parked)};
}

std::optional<FleetSchedule::Order> FleetSchedule::next_work() {
  // Beyond the canaries nothing begins before all of them have succeeded.
  if (halted_ || (begun_ >= limits_.canary && succeeded_ < limits_.canary)) {
    return std::nullopt;
  }
  for (const bool running : {true, false}) {
    for (std::size_t at = 0; at < vms_.size(); ++at) {
      const State& vm = vms_[at];
      if (vm.stand != Stand::waiting || vm.in_order || vm.running != running) {
        continue;
      }
      if (running ? !vm.stops || may_stop_one() : occupied() < limits_.guests) {
        return begin(Act::work, at);
      }
    }
  }
  return std::nullopt;
}

std::optional<FleetSchedule::Order> FleetSchedule::next_park() {
  const bool canaries_busy = begun_ >= limits_.canary && succeeded_ < limits_.canary;
  // Room that is about to come, or that was made already, is enough.
  const bool room_comes =
      std::any_of(vms_.begin(), vms_.end(), [](const State& vm) { return vm.in_order && (!vm.running || vm.stand != Stand::active); });
  if (!waits_for_room() || canaries_busy || room_comes || !may_stop_one() || occupied() < limits_.guests) {
    return std::nullopt;
  }
  for (std::size_t at = vms_.size(); at-- > 0;) {
    const State& vm = vms_[at];
    if (vm.running && !vm.in_order && vm.may_park && vm.stand != Stand::waiting) {
      return begin(Act::park, at);
    }
  }
  return std::nullopt;
}

std::optional<FleetSchedule::Order> FleetSchedule::next_wake() {
  if (waits_for_room()) {
    return std::nullopt;
  }
  for (std::size_t at = 0; at < vms_.size(); ++at) {
    State& vm = vms_[at];
    if (!vm.parked || vm.in_order || vm.wake_failed) {
      continue;
    }
    if (occupied() < limits_.guests) {
      return begin(Act::wake, at);
    }
    if (active_ == 0) {
      vm.reason = "it was stopped to make room, and there is none to start it again";
    }
  }
  return std::nullopt;
}

void FleetSchedule::give_up() {
  for (auto& vm : vms_) {
    if (vm.stand != Stand::waiting) {
      continue;
    }
    vm.stand = Stand::skipped;
    if (halted_) {
      vm.reason = *halted_;
    } else if (vm.running) {
      vm.reason = fmt::format("stopping it would leave fewer than {} serving", limits_.keep_ready);
    } else {
      vm.reason = fmt::format("no room: {} guests may run, and none of those that do may be stopped", limits_.guests);
    }
  }
}

std::optional<FleetSchedule::Order> FleetSchedule::next() {
  if (active_ >= limits_.jobs) {
    return std::nullopt;
  }
  if (auto order = next_work()) {
    return order;
  }
  if (auto order = next_park()) {
    return order;
  }
  if (halted_ || active_ == 0) {
    give_up();
  }
  return next_wake();
}

void FleetSchedule::ended(const Order& order, Result result, bool running) {
  State& vm = vms_[order.vm];
  vm.in_order = false;
  vm.running = running;
  --active_;
  if (order.act == Act::park) {
    vm.parked = !running;
    // What could not be stopped once is left in peace.
    vm.may_park = !running;
    return;
  }
  vm.parked = vm.parked && !running;
  if (order.act == Act::wake) {
    if (running) {
      return;
    }
    vm.wake_failed = true;
    vm.reason = "it could not be started again";
    return;
  }
  if (result == Result::no_room && ++vm.no_room < most_no_room) {
    vm.stand = Stand::waiting;
    --begun_;
    return;
  }
  vm.stand = result == Result::ok ? Stand::done : Stand::failed;
  ++(result == Result::ok ? succeeded_ : failed_);
  if (result == Result::ok) {
    return;
  }
  if (limits_.canary > 0 && succeeded_ < limits_.canary) {
    halt(fmt::format("not tried: canary {} failed", vm.name));
  }
  if (limits_.max_fail && failed_ > *limits_.max_fail) {
    halt(fmt::format("not tried after {} {}", failed_, failed_ == 1 ? "failure" : "failures"));
  }
}

void FleetSchedule::halt(const std::string& reason) {
  if (!halted_) {
    halted_ = reason;
  }
}

}  // namespace lumelift
