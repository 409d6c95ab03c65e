#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host/sys/file.hpp"
#include "host/sys/time.hpp"

namespace lumelift {

using RunId = std::int64_t;

/// Where a recorded step stands. `intended`: the effect may or may not have happened; only looking tells.
enum class StepState { intended, done, undone, kept };
/// `open`: applying, or left by a crash; `committed`: proved; `undoing`: rollback began; `undone`: nothing of it is left;
/// `partial`: rollback ended but left something (kept or unreachable).
enum class RunState { open, committed, undoing, undone, partial };
[[nodiscard]] const char* shown(StepState state);
[[nodiscard]] const char* shown(RunState state);

/// One recorded step: `body` is its JSON (see cli/plan), opaque here.
struct StepRecord {
  RunId run = 0;
  int position = 0;
  std::string body;
  StepState state = StepState::intended;
  std::int64_t changed_at = 0;  ///< wall seconds of the last state change
};

struct RunRecord {
  RunId id = 0;
  std::string vm;       ///< as lume stores it
  std::string command;  ///< "unlock"
  RunState state = RunState::open;
  std::int64_t started_at = 0, ended_at = 0;  ///< wall seconds; 0 while open
  std::string summary;                        ///< JSON of the report; empty until committed
};

/// A VM's hold on a shared resource, with the value the resource is to have once nobody holds it.
struct Claim {
  std::string resource, vm;
  std::string before;      ///< JSON
  std::int64_t since = 0;  ///< wall seconds when the resource got its claimed value; for people
  std::string boot{};      ///< the start of the Mac that this was in (sys::boot_session); empty when it is unknown
  std::int64_t up = 0;     ///< and the seconds since that start: what a change of the clock cannot move
};

/// A pinned SSH host key of one VM.
struct Pin {
  std::string vm, fingerprint;
  std::int64_t since = 0;
};

/// The durable order of intents, claims on shared resources, rollback order, history and host-key pins: one SQLite
/// database, `journal.sqlite` in the state folder (0700, files 0600), synchronous=FULL (fullfsync on macOS). Everything is
/// on disk when a call returns. Does not know what a step means. Blocks up to 10 s on another writer.
/// Readers take no lock and never wait for a writer, nor a writer for them (write-ahead logging).
/// Throws Error: "state-folder-unusable", "journal-unreadable" (corrupt; names the file and how to go on),
/// "journal-newer" (made by a newer lumelift), "journal-busy" (busy), "journal-full", "journal-failed" (disk error, or an
/// unknown run or step).
class Journal {
 public:
  enum class Access { read, write };
  /// With Access::read a missing database is an empty one and nothing is created; a read-only folder will do.
  Journal(const sys::fs::path& folder, Access access);
  ~Journal();
  Journal(Journal&&) noexcept;

  /// Locks: held for as long as the returned object lives.
  [[nodiscard]] sys::FileLock lock_vm(const std::string& vm, std::string_view purpose, const sys::Deadline& deadline) const;
  /// Who holds lock_vm() now, in his own words ("pid 12 since …: unlock ci-1"); nothing when nobody does. Never blocks.
  [[nodiscard]] std::optional<std::string> holder(const std::string& vm) const;
  [[nodiscard]] sys::FileLock lock_preference(std::string_view purpose, const sys::Deadline& deadline) const;

  /// Runs. set_run() keeps an earlier summary when given none. Both lists are oldest first.
  [[nodiscard]] RunId begin(const std::string& vm, const std::string& command);
  void set_run(RunId run, RunState state, const std::string& summary = {});
  /// Runs of `vm` of which something may be left (open, committed, undoing, partial); all VMs when empty.
  [[nodiscard]] std::vector<RunRecord> live_runs(const std::string& vm = {}) const;
  [[nodiscard]] std::vector<RunRecord> history(const std::string& vm = {}) const;

  /// Steps. intend() is committed before it returns: only then may the effect happen. `claim` records, in the same
  /// transaction, this VM's hold on a shared resource; a hold that it has already keeps its `before` and takes the new
  /// `since`. Positions count from 1.
  [[nodiscard]] int intend(RunId run, const std::string& body, const std::optional<Claim>& claim = std::nullopt);
  void mark(RunId run, int position, StepState state);
  /// Replaces what is recorded of an intended step: more became known before its effect.
  void amend(RunId run, int position, const std::string& body);
  /// The same for several steps in one transaction: the position of the first, the others follow it.
  [[nodiscard]] int intend(RunId run, const std::vector<std::string>& bodies);
  void mark(RunId run, int first, int count, StepState state);
  [[nodiscard]] std::vector<StepRecord> steps(RunId run) const;

  /// Claims, oldest first.
  [[nodiscard]] std::vector<Claim> claims(const std::string& resource) const;
  void release(const std::string& resource, const std::string& vm);

  /// Host keys. pin() replaces.
  [[nodiscard]] std::optional<Pin> pin(const std::string& vm) const;
  [[nodiscard]] std::vector<Pin> pins() const;
  void set_pin(const std::string& vm, const std::string& fingerprint);
  void remove_pin(const std::string& vm);

 private:
  struct Db;
  std::unique_ptr<Db> db_;
  sys::fs::path folder_;
};

}  // namespace lumelift
