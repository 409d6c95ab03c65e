#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/fleet.hpp"
#include "cli/fleet_crew.hpp"
#include "cli/fleet_options.hpp"
#include "cli/plan.hpp"
#include "host/journal.hpp"

namespace lumelift {

/// What is remembered of a fleet run until it has ended: which VMs ran before it, and which were off. So what a crash of
/// everything left off or on is as it was at the end of the next run. One small file in the state folder.
class FleetMemory {
 public:
  explicit FleetMemory(const std::filesystem::path& state_dir) : file_(state_dir / "fleet-run.json") {}
  struct Before {
    std::vector<std::string> running, off;
  };
  /// As it was before a run that did not end; empty without one, or with a file that cannot be read.
  [[nodiscard]] Before left() const;
  /// Durable when it returns. Throws Error "file-unwritable".
  void begin(const std::string& command, const Before& before) const;
  void end() const;

 private:
  std::filesystem::path file_;
};

/// A fleet file, the host that is meant, and how children are called.
struct FleetScene {
  FleetScene(Context& context, const FleetOptions& options);

  Context& context;
  const FleetOptions& options;
  Fleet fleet;
  std::optional<FleetHost> host;
  Lume lume;

  [[nodiscard]] std::string host_name() const { return host ? host->name : ""; }
  /// A stage that runs `lumelift --json COMMAND VM` with the login, time limit and secrets of that VM; secrets go by standard
  /// input and environment, never by words.
  [[nodiscard]] Stage child(const std::string& what, const FleetVm& vm, const std::vector<std::string>& words) const;
  [[nodiscard]] static Stage hook(const std::string& what, const FleetVm& vm, const Hook& words);
};

/// What is there of one VM and what would be done.
struct VmPlan {
  FleetVm wanted;
  std::string status;  ///< as lume says it
  bool running = false;
  bool parked = false;     ///< an earlier fleet run switched it off and did not end
  bool off_again = false;  ///< an earlier fleet run switched it on and did not end
  bool recorded = false;   ///< the journal says that what is wanted was done
  bool guest_known = false;
  bool stops = false;     ///< doing it takes the running VM down
  bool promises = false;  ///< something changes, be it only the profile on record
  std::vector<Step> steps;
  std::vector<std::string> notes;
  std::optional<StageDone> failure;  ///< it could not be looked at
  std::string goals;                 ///< digests of what is wanted

  /// Something is to be done.
  [[nodiscard]] bool work() const { return !failure && (running ? promises : !recorded); }
  /// SHA-256 of all that a plan rests on.
  [[nodiscard]] std::string digest() const;
};

/// One thing of the world that would change.
struct FleetChange {
  std::string vm;  ///< empty: the host
  std::string kind, name, before, after;
  bool operator==(const FleetChange&) const = default;
};

struct FleetSurvey {
  std::vector<VmPlan> vms;
  PrefValue preference;
  int outsiders = 0;  ///< running macOS guests that are none of the fleet's
  std::vector<std::string> warnings;

  /// The preference once, then each VM's resources in the order of the plan.
  [[nodiscard]] std::vector<FleetChange> changes() const;
};

enum class Depth {
  names,     ///< names and power alone
  recorded,  ///< also what the journal says of each
  full,      ///< also what an unlock of each would do; running guests are asked
};
/// Looks; changes nothing. `before`: how it was before an unfinished run. Throws Error for what is wrong in files, "vm-unknown",
/// "vm-address-shared", Interrupted; what concerns one VM is in its VmPlan::failure.
[[nodiscard]] FleetSurvey survey_fleet(const FleetScene& scene, Depth depth, const FleetMemory::Before& before);

}  // namespace lumelift
