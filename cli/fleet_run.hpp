#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/fleet_survey.hpp"

namespace lumelift {

/// What became of one VM, for the table and for --json.
struct FleetRow {
  std::string vm, before, now;
  std::string result;  ///< changed, unchanged, failed, skipped; of verify: verified, failed, skipped
  int status = 0;
  std::optional<double> seconds;
  std::string note;
  std::optional<StageDone> failure;
  std::vector<std::string> reports;  ///< JSON objects of its children
};

struct FleetOutcome {
  std::vector<FleetRow> rows;
  std::vector<std::string> warnings;
  bool interrupted = false;
  double seconds = 0;

  /// The worst of all: 3, 130, 1, 6, 5, 2, 4, 0.
  [[nodiscard]] int status() const;
  [[nodiscard]] bool changed() const;
};

/// Does `scene.options.action` (apply, verify, rollback) to every VM of the survey, in waves under the limit of guests. Holds
/// the fleet's lock; waits for children of a former run that still work. Throws Error "lock-held" before anything is touched.
[[nodiscard]] FleetOutcome run_over_fleet(const FleetScene& scene, const FleetSurvey& survey);

/// Puts right what a crash of a former fleet run left: waits for children that go on to their end, then has each VM with an
/// unfinished run take it back, so that what was off is off again. What cannot be taken back shows up in the run itself.
void settle_former_run(const FleetScene& scene);

}  // namespace lumelift
