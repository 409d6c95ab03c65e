#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/console.hpp"
#include "cli/fleet_schedule.hpp"
#include "cli/live_lines.hpp"
#include "host/sys/children.hpp"

namespace lumelift {

/// One command for one VM: a lumelift of its own, or a hook.
struct Stage {
  std::string what;  ///< "unlock", "before_stop": for progress and messages
  std::vector<std::string> words;
  std::vector<std::pair<std::string, std::string>> environment = {};
  std::string input = {};  ///< a password for --password-fd 0
  int limit_s = 6 * 3600;  ///< a child of ours has shorter limits for each thing it does
  bool hook = false;
};

/// How a stage ended. The error is the one that a child reported under --json, or made up from how a hook ended.
struct StageDone {
  std::string what;
  bool hook = false;
  int status = 1;   ///< exit status; 1 for a signal or a time limit
  std::string out;  ///< JSON of a child of ours
  std::optional<std::string> error_id;
  std::string message, fix;
  std::vector<std::string> details;
  [[nodiscard]] bool ok() const { return status == 0; }
};

/// What happened to one VM.
struct VmStory {
  std::vector<StageDone> stages;  ///< of its work, in order
  sys::Milliseconds spent{0};     ///< on its work
  std::string trouble;            ///< parking or waking it failed: why
  std::string trouble_id;
};

/// Carries a schedule's orders out by child processes, one at a time per VM, and shows progress. `next` names the stage that
/// follows those already done, nothing at the end; `ended` tells the outcome and whether the VM runs now. After a signal every
/// child is told, nothing new is begun but what wakes parked VMs, and all of them are waited for.
class FleetCrew {
 public:
  using Order = FleetSchedule::Order;
  struct Part {
    std::function<std::optional<Stage>(const Order&, const std::vector<StageDone>&)> next;
    std::function<std::pair<FleetSchedule::Result, bool>(const Order&, const std::vector<StageDone>&)> ended;
    std::function<void(const Order&)> begins = {};  ///< before the first stage
  };

  FleetCrew(Console& console, std::string title, std::vector<std::string> names, Part part);

  /// Runs until the schedule is over. True when a signal cut it short.
  [[nodiscard]] bool run(FleetSchedule& schedule);
  [[nodiscard]] const VmStory& story(std::size_t vm) const { return stories_[vm]; }

 private:
  struct Active {
    Order order;
    std::vector<StageDone> done;
    std::string what, said;
    bool hook = false;
    sys::Stopwatch watch;
  };
  void begin(FleetSchedule& schedule, const Order& order);
  void go_on(FleetSchedule& schedule, std::size_t vm);
  void hear(std::size_t vm, std::string_view line);
  void show(const FleetSchedule& schedule);

  Console& console_;
  std::string title_;
  std::vector<std::string> names_;
  Part part_;
  std::vector<VmStory> stories_;
  std::vector<std::optional<Active>> active_;
  sys::Children children_;
  LiveLines live_;
};

/// Runs one stage per name, at most `jobs` at a time; how each ended, in order. Throws Interrupted once all have ended.
[[nodiscard]] std::vector<StageDone> run_each(Console& console, const std::string& title, int jobs, const std::vector<std::string>& names,
                                              const std::vector<Stage>& stages);

/// The value of a field in a child's JSON object, as text; nothing when it is not there or the text is no object.
[[nodiscard]] std::optional<std::string> json_field(const std::string& object, const std::string& key);

}  // namespace lumelift
