#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cli/link.hpp"
#include "cli/plan.hpp"
#include "host/host.hpp"
#include "host/journal.hpp"
#include "host/lume.hpp"

namespace lumelift {

/// How long the engine waits for what takes time.
struct Patience {
  sys::Milliseconds start{180'000};      ///< from starting the VM until the guest answers
  sys::Milliseconds clean_stop{60'000};  ///< for the guest to shut itself down
  sys::Milliseconds lock{10'000};        ///< for another lumelift
};

/// What an undo did, for the report.
struct UndoReport {
  int files_removed = 0, files_restored = 0, agents_stopped = 0, agents_restored = 0;
  std::optional<std::string> preference;  ///< "restored to absent", "kept: ci-2 still claims it"
  bool restarted = false, stopped = false;
  std::vector<std::string> kept;          ///< changed by somebody else, left alone
  std::vector<std::string> failed;        ///< could not be undone now; stays open
  std::optional<std::string> unrecorded;  ///< why the journal took no more words: what was undone since still stands in it
  [[nodiscard]] bool complete() const { return kept.empty() && failed.empty() && !unrecorded; }
  /// Adds what a second undo did.
  void add(const UndoReport& more);
};

/// Where a guest has a large file of this Mac on a share, by the file's path; see LargeCopy.
struct SharedSource {
  std::string guest;
  std::filesystem::path staged;
  bool only = false;
};
using SharedSources = std::map<std::string, SharedSource>;

/// The only caller of changing operations on host and guest. Per kind of step it knows how to look and how to set; apply and
/// undo are written once over those two. Records every intent in the journal before the effect. Does not decide what should
/// happen. Throws Error and sys::Interrupted from apply(); undo() collects failures instead and always goes on.
class Engine {
 public:
  Engine(Journal& journal, const Host& host, const Lume& lume, GuestLink& link, Console& console, Patience patience);

  /// Applies the plan's steps in order. Refuses a step when the world shows neither its `before` nor its `after`
  /// ("world-moved"). Each step is in effect, seen and recorded when the next begins; new folders, and small new files, are
  /// done several at a time.
  void apply(RunId run, const Plan& plan);

  /// From now on the guest copies these by itself.
  void use_shares(SharedSources sources) { shares_ = std::move(sources); }

  /// Undoes the given runs, newest first, by looking. Steps of power that a stock VM no longer needs are let be.
  [[nodiscard]] UndoReport undo(std::vector<RunRecord> runs, Restart restart);

  /// Undoes only the steps that `belongs` names, newest first, by looking; the runs stay what they are.
  [[nodiscard]] UndoReport undo_steps(std::vector<RunRecord> runs, const std::function<bool(const Step&)>& belongs);

  /// Marks steps of power that a stock VM does not need taken back: of a VM that is off by now, or whose restart would change
  /// nothing. Only for committed runs: after a crash, power is part of what has to be put right. undo() does this itself; a
  /// caller that starts the VM for the undo does it before.
  void settle_power(const std::vector<RunRecord>& runs, Restart restart);

  /// Warnings that belong into the report, such as a plug that had to be pulled.
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }
  /// This engine has stopped the VM without a shutdown of its guest: what the guest had not written down is lost, whatever names and
  /// times say.
  [[nodiscard]] bool plug_pulled() const { return plug_pulled_; }
  /// What stopping and starting the VM took; not part of our own time.
  [[nodiscard]] sys::Milliseconds vm_time() const { return vm_time_; }
  /// The agents that this engine loaded, by label, as they were seen then.
  [[nodiscard]] const std::map<std::string, AgentGlimpse>& loaded_agents() const { return loaded_agents_; }
  /// SHA-256 by guest path of the large files that this engine sent and that had none before.
  [[nodiscard]] const std::map<std::string, std::string>& hashes() const { return hashes_; }
  /// Time since this engine started the VM; nothing when it did not.
  [[nodiscard]] std::optional<sys::Milliseconds> started_ago() const;

 private:
  enum class Seen { before, after, other };
  enum class Side { before, after };
  struct Look {
    Seen seen;
    std::string actual;
  };

  [[nodiscard]] Look observe(const SetPower& step);
  [[nodiscard]] Look observe(const SetPreference& step);
  [[nodiscard]] Look observe(const AddLine& step);
  [[nodiscard]] Look observe(const SetAgent& step);
  [[nodiscard]] Look observe(const StageShare& step);
  [[nodiscard]] std::vector<Look> observe_files(const std::vector<Step>& steps);
  [[nodiscard]] std::vector<Look> observe_group(const std::vector<Step>& steps);

  void set(const SetPower& step, Side side);
  void set(const SetPreference& step, Side side);
  void set(const MakeFolder& step, Side side);
  void set(const PutFile& step, Side side);
  void set(const AddLine& step, Side side);
  void set(const SetAgent& step, Side side);
  void set(const StageShare& step, Side side);
  void set(const Step& step, Side side);

  void stop_vm(const std::string& storage);
  void start_vm(const StartOptions& options);
  void await_guest();
  [[nodiscard]] std::size_t together(const std::vector<Step>& steps, const std::vector<Look>& looks, std::size_t at) const;
  void set_new(const std::vector<Step>& steps);
  void send(RunId run, int first, const std::vector<Step>& steps);
  void apply_group(RunId run, const std::vector<Step>& group, const std::vector<Look>& looks);
  void apply_preference(RunId run, SetPreference step);
  using Belongs = std::function<bool(const Step&)>;
  void settle_agents(const std::vector<RunRecord>& newest_first, const Belongs& belongs);
  void undo_run(const RunRecord& run, const Belongs& belongs, UndoReport& report);
  void undo_group(const std::vector<StepRecord>& records, const std::vector<Step>& steps, UndoReport& report);
  void leave(const Step& step, const std::string& why, UndoReport& report);
  [[nodiscard]] bool held(const Step& step) const;
  void undo_one(const StepRecord& record, const Step& step, const Look& look, UndoReport& report);
  void undo_preference(const StepRecord& record, const SetPreference& step, UndoReport& report);
  /// What is done is done whether or not the journal takes the word for it: the next undo looks again.
  void note(const StepRecord& record, StepState state, UndoReport& report);
  /// Drops a connection that has died; true when this was the error.
  bool lost(const Error& error);
  void undo_power(const StepRecord& record, const SetPower& step, UndoReport& report);

  Journal& journal_;
  const Host& host_;
  const Lume& lume_;
  GuestLink& link_;
  Console& console_;
  Patience patience_;
  std::vector<std::string> warnings_;
  std::map<std::string, AgentGlimpse> loaded_agents_;
  std::map<std::string, std::string> hashes_;
  SharedSources shares_;
  sys::Milliseconds vm_time_{0};
  std::optional<sys::Stopwatch> started_;  ///< since our last start of the VM
  bool plug_pulled_ = false;
  bool silent_since_start_ = false;  ///< our last start never got an answer: do not ask it to shut down
  bool vm_missing_ = false;          ///< during an undo: lume no longer knows the VM
  bool link_proven_ = false;         ///< an undo has used the connection: the next one need not make another
  bool guest_gone_ = false;          ///< during an undo: one failure to reach the guest is enough
  std::set<std::string> held_;       ///< during an undo: things of which a step could not be undone
  bool connection_lost_ = false;     ///< during an undo: it died under us, so a second try over a new one makes sense
};

/// "domain key": the name of a preference as a claimed resource.
[[nodiscard]] std::string resource_of(const PrefKey& key);

}  // namespace lumelift
