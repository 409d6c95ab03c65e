#include "cli/fleet_schedule.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>

using namespace lumelift;
using Act = FleetSchedule::Act;
using Order = FleetSchedule::Order;
using Result = FleetSchedule::Result;
using Stand = FleetSchedule::Stand;

namespace {

ScheduledVm on(std::string name, bool stops = true) {
  return {std::move(name), true, false, true, stops};
}
ScheduledVm off(std::string name) {
  return {std::move(name), false, false, true, false};
}
ScheduledVm idle(std::string name) {
  return {std::move(name), true, false, false, false};
}

/// All orders that may begin now, as "work 0, park 1".
std::string begun(FleetSchedule& schedule, std::vector<Order>* out = nullptr) {
  std::string text;
  while (const auto order = schedule.next()) {
    text += text.empty() ? "" : ", ";
    text += order->act == Act::work ? "work " : order->act == Act::park ? "park " : "wake ";
    text += std::to_string(order->vm) + (order->off_after ? " off" : "");
    if (out != nullptr) {
      out->push_back(*order);
    }
  }
  return text;
}

/// A host that does what it is told after a random while, and sometimes fails.
struct Simulation {
  std::mt19937 random;
  FleetLimits limits;
  std::vector<ScheduledVm> vms;
  int outsiders = 0;

  int upto(int most) { return std::uniform_int_distribution<int>(0, most)(random); }
  bool chance(int percent) { return upto(99) < percent; }

  explicit Simulation(unsigned seed) : random(seed) {
    limits.guests = 1 + upto(4);
    limits.jobs = 1 + upto(5);
    limits.keep_ready = upto(3);
    limits.canary = chance(30) ? 1 + upto(2) : 0;
    if (chance(40)) {
      limits.max_fail = upto(3);
    }
    outsiders = chance(30) ? upto(limits.guests) : 0;
    int room = limits.guests - outsiders;
    const int count = upto(12);
    for (int i = 0; i < count; ++i) {
      ScheduledVm vm;
      vm.name = std::to_string(i);
      vm.running = room > 0 && chance(50);
      room -= vm.running ? 1 : 0;
      // What an earlier run parked had room once; now and then somebody else has taken it.
      vm.parked = !vm.running && (room > 0 || chance(5)) && chance(15);
      room -= vm.parked ? 1 : 0;
      vm.work = chance(85);
      vm.stops = vm.running && chance(70);
      vms.push_back(vm);
    }
  }
};

/// Runs one random fleet to its end and checks what is promised at every instant.
void check_fleet(unsigned seed) {
  CAPTURE(seed);
  Simulation world(seed);
  FleetSchedule schedule(world.vms, world.limits, world.outsiders);
  std::vector<bool> running;
  for (const auto& vm : world.vms) {
    running.push_back(vm.running);
  }
  std::map<std::size_t, bool> stopping;  // VMs under an order, and whether it may take them down
  std::vector<Order> active;
  std::vector<int> attempts(world.vms.size(), 0);
  int begun_works = 0, succeeded = 0, failures = 0, steps = 0;
  bool any_death = false;

  const auto guests = [&] {
    int count = world.outsiders;
    for (std::size_t i = 0; i < running.size(); ++i) {
      count += running[i] || stopping.contains(i) ? 1 : 0;
    }
    return count;
  };
  const auto serving = [&] {
    int count = 0;
    for (std::size_t i = 0; i < running.size(); ++i) {
      count += running[i] && !(stopping.contains(i) && stopping[i]) ? 1 : 0;
    }
    return count;
  };

  for (;;) {
    while (const auto order = schedule.next()) {
      REQUIRE(++steps < 1000);
      REQUIRE_FALSE(stopping.contains(order->vm));
      const bool takes_down = order->act == Act::park || (order->act == Act::work && running[order->vm] && world.vms[order->vm].stops);
      if (order->act == Act::work) {
        CHECK(world.vms[order->vm].work);
        // Canaries first, and nothing new after too many failures.
        if (world.limits.canary > 0 && begun_works >= world.limits.canary) {
          CHECK(succeeded >= world.limits.canary);
        }
        if (world.limits.max_fail) {
          CHECK(failures <= *world.limits.max_fail);
        }
        ++begun_works;
        ++attempts[order->vm];
        CHECK(order->off_after == (!running[order->vm] && !world.vms[order->vm].parked));
      }
      stopping[order->vm] = takes_down;
      active.push_back(*order);
      CHECK(guests() <= world.limits.guests);
      CHECK(static_cast<int>(active.size()) <= world.limits.jobs);
      if (takes_down) {
        CHECK(serving() >= world.limits.keep_ready);
      }
      CHECK(schedule.serving() == serving());
      CHECK(schedule.occupied() == guests());
    }
    if (schedule.over()) {
      break;
    }
    REQUIRE_FALSE(active.empty());
    const auto at = static_cast<std::size_t>(world.upto(static_cast<int>(active.size()) - 1));
    const Order order = active[at];
    active.erase(active.begin() + static_cast<std::ptrdiff_t>(at));
    stopping.erase(order.vm);
    const bool fails = world.chance(15);
    bool runs = order.act == Act::wake || (order.act == Act::work && !order.off_after);
    if (fails) {
      // Mostly undone, now and then dead.
      runs = running[order.vm] && !(order.act == Act::work && world.chance(20));
      any_death = any_death || (running[order.vm] && !runs);
    }
    running[order.vm] = runs;
    const bool no_room = fails && order.act == Act::work && world.chance(30);
    if (order.act == Act::work && !fails) {
      ++succeeded;
    }
    if (order.act == Act::work && fails && (!no_room || attempts[order.vm] >= 3)) {
      ++failures;
    }
    if (no_room && attempts[order.vm] < 3) {
      --begun_works;
    }
    schedule.ended(order, !fails ? Result::ok : no_room ? Result::no_room : Result::failed, runs);
  }

  CHECK(active.empty());
  for (std::size_t i = 0; i < world.vms.size(); ++i) {
    const Stand stand = schedule.stand(i);
    CAPTURE(i);
    CHECK(stand != Stand::waiting);
    CHECK(stand != Stand::active);
    CHECK((stand == Stand::idle) == !world.vms[i].work);
    if (stand == Stand::skipped) {
      CHECK_FALSE(schedule.reason(i).empty());
    }
    // What was off is off again, and what ran runs, but for what died under a failure or could not be woken.
    if (!world.vms[i].running && !world.vms[i].parked) {
      CHECK_FALSE(running[i]);
    }
    const bool to_run = world.vms[i].running || world.vms[i].parked;
    const bool told = stand == Stand::failed || !schedule.reason(i).empty();
    if (to_run && !told && !any_death) {
      CHECK(running[i]);
    }
  }
}

}  // namespace

TEST_CASE("schedule: two guests of ten run, so two are worked on at a time and each is off again") {
  std::vector<ScheduledVm> vms;
  for (int i = 0; i < 10; ++i) {
    vms.push_back(off(std::to_string(i)));
  }
  FleetSchedule schedule(vms, {2, 8, 0, 0, {}}, 0);
  std::vector<Order> active;
  CHECK(begun(schedule, &active) == "work 0 off, work 1 off");
  int most = 0, done = 0;
  while (!active.empty()) {
    most = std::max(most, schedule.occupied());
    const Order order = active.front();
    active.erase(active.begin());
    schedule.ended(order, Result::ok, false);
    ++done;
    begun(schedule, &active);
  }
  CHECK(most == 2);
  CHECK(done == 10);
  CHECK(schedule.over());
}

TEST_CASE("schedule: what runs goes first, and keeps a place of its own") {
  FleetSchedule schedule({off("a"), on("b"), off("c"), on("d")}, {2, 8, 1, 0, {}}, 0);
  CHECK(begun(schedule) == "work 1");
  CHECK(schedule.serving() == 1);
  schedule.ended({Act::work, 1}, Result::ok, true);
  CHECK(begun(schedule) == "work 3");
  schedule.ended({Act::work, 3}, Result::ok, true);
  // Both run and one must serve: the other makes room, once for all that wait.
  CHECK(begun(schedule) == "park 3");
  schedule.ended({Act::park, 3}, Result::ok, false);
  CHECK(begun(schedule) == "work 0 off");
  schedule.ended({Act::work, 0, true}, Result::ok, false);
  CHECK(begun(schedule) == "work 2 off");
  schedule.ended({Act::work, 2, true}, Result::ok, false);
  CHECK(begun(schedule) == "wake 3");
  schedule.ended({Act::wake, 3}, Result::ok, true);
  CHECK(begun(schedule).empty());
  CHECK(schedule.over());
}

TEST_CASE("schedule: where all must keep serving, nothing is stopped and the reason is told") {
  FleetSchedule schedule({on("a"), on("b", false), off("c")}, {2, 8, 2, 0, {}}, 0);
  CHECK(begun(schedule) == "work 1");  // this one needs no stop
  schedule.ended({Act::work, 1}, Result::ok, true);
  CHECK(begun(schedule).empty());
  CHECK(schedule.stand(0) == Stand::skipped);
  CHECK(schedule.reason(0) == "stopping it would leave fewer than 2 serving");
  CHECK(schedule.reason(2) == "no room: 2 guests may run, and none of those that do may be stopped");
}

TEST_CASE("schedule: a VM that is in use is not stopped twice for room") {
  FleetSchedule schedule({idle("a"), off("b")}, {1, 8, 0, 0, {}}, 0);
  CHECK(begun(schedule) == "park 0");
  schedule.ended({Act::park, 0}, Result::failed, true);
  CHECK(begun(schedule).empty());
  CHECK(schedule.stand(1) == Stand::skipped);
  CHECK(schedule.over());
}

TEST_CASE("schedule: others' guests take room") {
  FleetSchedule schedule({off("a"), off("b")}, {2, 8, 0, 0, {}}, 1);
  CHECK(begun(schedule) == "work 0 off");
  schedule.ended({Act::work, 0, true}, Result::no_room, false);
  schedule.set_outsiders(2);
  CHECK(begun(schedule).empty());
  CHECK(schedule.stand(0) == Stand::skipped);
}

TEST_CASE("schedule: canaries first; when one fails nothing else is touched") {
  std::vector<ScheduledVm> vms = {on("a"), on("b"), on("c")};
  FleetSchedule good(vms, {8, 8, 0, 1, {}}, 0);
  CHECK(begun(good) == "work 0");
  good.ended({Act::work, 0}, Result::ok, true);
  CHECK(begun(good) == "work 1, work 2");
  FleetSchedule bad(vms, {8, 8, 0, 1, {}}, 0);
  CHECK(begun(bad) == "work 0");
  bad.ended({Act::work, 0}, Result::failed, true);
  CHECK(begun(bad).empty());
  CHECK(bad.stand(1) == Stand::skipped);
  CHECK(bad.reason(2) == "not tried: canary a failed");
}

TEST_CASE("schedule: a failure budget stops what has not begun and lets the rest end") {
  FleetSchedule schedule({on("a"), on("b"), on("c"), on("d")}, {8, 2, 0, 0, 0}, 0);
  CHECK(begun(schedule) == "work 0, work 1");
  schedule.ended({Act::work, 1}, Result::failed, true);
  CHECK(begun(schedule).empty());
  CHECK_FALSE(schedule.over());
  schedule.ended({Act::work, 0}, Result::ok, true);
  CHECK(begun(schedule).empty());
  CHECK(schedule.over());
  CHECK(schedule.reason(2) == "not tried after 1 failure");
  CHECK(schedule.stand(0) == Stand::done);
}

TEST_CASE("schedule: a VM left parked by an earlier run is worked on and stays on") {
  FleetSchedule schedule({{"a", false, true, true, false}, {"b", false, true, false, false}}, {1, 8, 0, 0, {}}, 0);
  CHECK(begun(schedule) == "work 0");
  schedule.ended({Act::work, 0}, Result::ok, true);
  CHECK(begun(schedule).empty());  // the only place is taken by a
  CHECK(schedule.parked(1));
  CHECK(schedule.reason(1) == "it was stopped to make room, and there is none to start it again");
}

TEST_CASE("schedule: random fleets, failures and durations keep every promise") {
  for (unsigned seed = 1; seed <= 20'000; ++seed) {
    check_fleet(seed);
  }
}
