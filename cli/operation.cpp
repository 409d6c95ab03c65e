#include "cli/operation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "cli/vm_name.hpp"
#include "host/sys/boot.hpp"

namespace lumelift {
namespace {

using sys::Deadline;
using sys::Milliseconds;

// A VM that was switched off is started by a run of this name, so that its guest can be put right, and stopped again.
constexpr const char* start_for_undo = "start-for-rollback";
bool is_start(const RunRecord& run) {
  return run.command == start_for_undo;
}

bool guest_work_left(const Journal& journal, const std::vector<RunRecord>& runs) {
  for (const auto& run : runs) {
    for (const auto& record : journal.steps(run.id)) {
      const bool pending = record.state == StepState::intended || record.state == StepState::done;
      if (pending && in_guest(step_from_json(record.body))) {
        return true;
      }
    }
  }
  return false;
}

std::string counted(int n, const char* what) {
  return fmt::format("{} {}", n, what);
}

}  // namespace

Restart restart_from(const std::string& word) {
  return word == "always" ? Restart::always : word == "never" ? Restart::never : Restart::automatic;
}

std::int64_t booted_up(const GuestFacts& facts) {
  return sys::up_seconds() - facts.up_seconds;
}

std::optional<std::int64_t> claimed_up(const Claim& claim) {
  const bool known = !claim.boot.empty() && claim.boot == sys::boot_session();
  return known ? std::optional(claim.up) : std::nullopt;
}

Operation::Operation(Context& context_in, const TargetOptions& target, const std::string& command_in, Touch touch, Missing missing)
    : context(context_in), command(command_in), lume(context_in.home), touch_(touch) {
  if (const auto why = Host::wrong_user(context.user)) {
    throw Error(ErrorKind::usage, "wrong-user", *why).fix("run lumelift as the user who runs the VM, without sudo");
  }
  lume_version = lume.version();
  const std::string stored = Lume::stored_name(target.vm);
  if (missing == Missing::allowed && !Lume::bad_name(target.vm) && !lume.find(target.vm) &&
      !Journal(context.state_dir, Journal::Access::read).live_runs(stored).empty()) {
    found.name = stored;
    found.status = "gone";
  } else {
    found = find_vm(lume, target.vm);
  }
  if (found.os == "linux") {
    throw Error(ErrorKind::usage, "vm-not-macos", fmt::format("'{}' is a Linux guest; there is no Metal in it to unlock", found.name));
  }
  const bool writes = touch == Touch::world;
  if (writes) {
    sys::ensure_private_folder(context.state_dir);
  }
  journal = std::make_unique<Journal>(context.state_dir, writes ? Journal::Access::write : Journal::Access::read);
  if (writes) {
    const sys::Stopwatch waiting;
    lock.emplace(journal->lock_vm(found.name, command + " " + found.name, Deadline::in(Milliseconds{10'000})));
    // Whoever held it may have stopped or started the VM.
    may_have_moved_ = waiting.elapsed() > Milliseconds{100};
  }
  link = std::make_unique<GuestLink>(lume, *journal, context.console, found.name, target.login,
                                     writes ? GuestLink::Pinning::record : GuestLink::Pinning::check_only);
  if (!may_have_moved_ && found.status != "gone") {
    link->expect(found);
  }
  Patience patience;
  patience.start = std::chrono::seconds(target.timeout_s);
  engine = std::make_unique<Engine>(*journal, host, lume, *link, context.console, patience);
}

Vm Operation::vm() const {
  if (!may_have_moved_) {
    return found;
  }
  if (auto now = lume.find(found.name)) {
    return *now;
  }
  throw Error(ErrorKind::failed, "vm-unknown", fmt::format("'{}' is gone: lume no longer knows it", found.name));
}

RunRecord Operation::record(RunId run) const {
  for (const auto& record : journal->live_runs(found.name)) {
    if (record.id == run) {
      return record;
    }
  }
  return RunRecord{run, found.name, command, RunState::open, 0, 0, {}};
}

void Operation::finish_former() {
  std::vector<RunRecord> left;
  for (const auto& run : journal->live_runs(found.name)) {
    if (run.state != RunState::committed) {
      left.push_back(run);
    }
  }
  if (left.empty()) {
    return;
  }
  if (touch_ == Touch::nothing) {
    context.console.say(
        fmt::format("an earlier {} of '{}' was not finished; it would be taken back first", left.back().command, found.name));
    return;
  }
  context.console.say(fmt::format("an earlier {} of '{}' was not finished: taking it back first", left.back().command, found.name));
  const UndoReport report = undo(left, Restart::automatic);
  if (!report.failed.empty() || report.unrecorded) {
    Error error(ErrorKind::incomplete, "former-run-left", fmt::format("an earlier run of '{}' could not be taken back", found.name));
    for (const auto& line : report.failed) {
      error.note(line);
    }
    if (report.unrecorded) {
      error.note("the journal could not be told: " + *report.unrecorded);
    }
    throw error.fix(fmt::format("see to what is named above, then: lumelift rollback {}", found.name));
  }
}

UndoReport Operation::undo(const std::vector<RunRecord>& runs, Restart restart) {
  const sys::Shield shield;
  may_have_moved_ = true;
  std::vector<RunRecord> work;
  std::copy_if(runs.begin(), runs.end(), std::back_inserter(work), [](const RunRecord& run) { return !is_start(run); });
  UndoReport report = engine->undo(work, restart);
  if (!report.failed.empty() && restart != Restart::never && guest_work_left(*journal, work) && start_for_guest_work()) {
    report.failed.clear();
    report.add(engine->undo(work, restart));
  }
  // Whatever was started only for this goes off again, last; also what an earlier undo, killed, left running.
  std::vector<RunRecord> starts;
  for (const auto& run : journal->live_runs(found.name)) {
    if (is_start(run)) {
      starts.push_back(run);
    }
  }
  if (!starts.empty()) {
    const UndoReport off = engine->undo(starts, Restart::automatic);
    report.kept.insert(report.kept.end(), off.kept.begin(), off.kept.end());
    report.failed.insert(report.failed.end(), off.failed.begin(), off.failed.end());
  }
  tell(context.console, report);
  return report;
}

bool Operation::start_for_guest_work() {
  try {
    const auto vm = lume.find(found.name);
    if (!vm || vm->power() != Power::stopped) {
      return false;
    }
    const RunId run = journal->begin(vm->name, start_for_undo);
    engine->apply(run, Plan{vm->name, {SetPower{Power::stopped, Power::running, start_options(*vm)}}, {}});
    return true;
  } catch (const Error& error) {
    context.console.warn("the VM was to be started to undo what is in its guest, but " + error.message());
    return false;
  }
}

void Operation::take_back(RunId run, Error& error) {
  context.console.say("taking back what was done");
  const UndoReport report = undo({record(run)}, Restart::automatic);
  for (const auto& line : report.kept) {
    error.note("left alone: " + line);
  }
  for (const auto& line : report.failed) {
    error.note("could not be undone: " + line);
  }
  if (report.unrecorded) {
    error.note("the journal could not be told: " + *report.unrecorded);
  }
  if (report.kept.empty() && report.failed.empty()) {
    error.note("Everything that was done has been undone.");
  }
  if (report.complete()) {
    return;
  }
  error.reclassify(ErrorKind::incomplete);
  error.fix(fmt::format("see: lumelift status {0}; then: lumelift rollback {0}", found.name));
}

int Operation::take_back_interrupted(RunId run) {
  context.console.say("interrupted: taking back what was done");
  const UndoReport report = undo({record(run)}, Restart::automatic);
  if (report.complete()) {
    return 130;
  }
  for (const auto& line : report.kept) {
    context.console.warn("left alone: " + line);
  }
  for (const auto& line : report.failed) {
    context.console.warn("could not be undone: " + line);
  }
  if (report.unrecorded) {
    context.console.warn("everything else has been undone, but the journal could not be told: " + *report.unrecorded);
  }
  return exit_status(ErrorKind::incomplete);
}

void tell(Console& console, const UndoReport& report) {
  if (report.files_removed + report.files_restored > 0) {
    console.step("files", fmt::format("{}, {}", counted(report.files_removed, "removed"), counted(report.files_restored, "put back")));
  }
  if (report.preference) {
    console.step("host", "preference " + *report.preference);
  }
}

}  // namespace lumelift
