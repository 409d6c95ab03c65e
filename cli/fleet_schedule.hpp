#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace lumelift {

/// One VM as the schedule sees it.
struct ScheduledVm {
  std::string name;
  bool running = false;
  bool parked = false;     ///< off now, stopped by a fleet run that did not end; it is to run at the end
  bool work = false;       ///< there is something to do in it
  bool stops = false;      ///< doing it takes a running VM down for a while
  bool off_after = false;  ///< it runs, but was off before a fleet run that did not end
};

struct FleetLimits {
  int guests = 2;               ///< macOS guests that may run at a time; Apple's framework allows two
  int jobs = 4;                 ///< VMs worked on at a time
  int keep_ready = 0;           ///< VMs that must keep serving
  int canary = 0;               ///< so many must succeed before any other is begun
  std::optional<int> max_fail;  ///< more failures than that, and no further VM is begun
};

/// Which VM's turn it is: a pure state machine, told what began and what ended. Promises that no order of its takes the host
/// beyond `guests`, none that stops a running VM leaves fewer than `keep_ready` serving, and every VM ends as done, failed or
/// skipped with a reason. A running VM is put to sleep ("parked") only where one that is off must be worked on and no room is
/// left, one at a time, and it is woken again. VMs that run come before those that are off.
class FleetSchedule {
 public:
  enum class Act { work, park, wake };
  enum class Stand { idle, waiting, active, done, failed, skipped };  ///< idle: no work in it
  struct Order {
    Act act;
    std::size_t vm;
    bool off_after = false;  ///< work: the VM is to be off again when it is done
    bool operator==(const Order&) const = default;
  };
  enum class Result { ok, failed, no_room };  ///< no_room: somebody else's guest took the place; tried again later

  /// `outsiders`: running macOS guests that are not among `vms`.
  FleetSchedule(std::vector<ScheduledVm> vms, FleetLimits limits, int outsiders);

  /// What to begin now; nothing when something must end first, or all is over.
  [[nodiscard]] std::optional<Order> next();
  /// An order has ended. `running`: whether the VM runs now.
  void ended(const Order& order, Result result, bool running);
  /// No further work is begun; what was parked is still woken.
  void halt(const std::string& reason);
  void set_outsiders(int count) { outsiders_ = count; }

  [[nodiscard]] bool over() const { return active_ == 0; }
  [[nodiscard]] Stand stand(std::size_t vm) const { return vms_[vm].stand; }
  /// Why it was skipped, or, of a parked VM, that it could not be woken.
  [[nodiscard]] const std::string& reason(std::size_t vm) const { return vms_[vm].reason; }
  [[nodiscard]] bool running(std::size_t vm) const { return vms_[vm].running; }
  [[nodiscard]] bool parked(std::size_t vm) const { return vms_[vm].parked; }
  /// Guests that run or may be running now, ours and others'.
  [[nodiscard]] int occupied() const;
  /// Running VMs that nobody is working on in a way that stops them.
  [[nodiscard]] int serving() const;

 private:
  struct State : ScheduledVm {
    Stand stand = Stand::idle;
    bool in_order = false, may_park = true, wake_failed = false;
    int no_room = 0;
    std::string reason;
  };
  [[nodiscard]] std::optional<Order> next_work();
  [[nodiscard]] std::optional<Order> next_park();
  [[nodiscard]] std::optional<Order> next_wake();
  Order begin(Act act, std::size_t vm);
  [[nodiscard]] bool may_stop_one() const { return serving() - 1 >= limits_.keep_ready; }
  [[nodiscard]] bool waits_for_room() const;
  void give_up();

  std::vector<State> vms_;
  FleetLimits limits_;
  int outsiders_;
  int active_ = 0, begun_ = 0, succeeded_ = 0, failed_ = 0;
  std::optional<std::string> halted_;
};

}  // namespace lumelift
