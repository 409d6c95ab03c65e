#include "host/journal.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "host/database.hpp"
#include "host/sys/error.hpp"
#include "host/sys/hash.hpp"

namespace lumelift {
namespace {

constexpr int schema_version = 1;
constexpr std::int64_t application_id = 0x4c4d4c46;  // "LMLF"

constexpr const char* schema = R"sql(
CREATE TABLE run (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  vm TEXT NOT NULL,
  command TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('open', 'committed', 'undoing', 'undone', 'partial')),
  started_at INTEGER NOT NULL,
  ended_at INTEGER NOT NULL DEFAULT 0,
  summary TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX run_by_vm ON run (vm, state);
CREATE TABLE step (
  run INTEGER NOT NULL REFERENCES run (id),
  position INTEGER NOT NULL,
  body TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('intended', 'done', 'undone', 'kept')),
  changed_at INTEGER NOT NULL,
  PRIMARY KEY (run, position)
) STRICT;
CREATE TABLE claim (
  resource TEXT NOT NULL,
  vm TEXT NOT NULL,
  before TEXT NOT NULL,
  since INTEGER NOT NULL,
  boot TEXT NOT NULL,
  up INTEGER NOT NULL,
  PRIMARY KEY (resource, vm)
) STRICT;
CREATE TABLE pin (
  vm TEXT NOT NULL PRIMARY KEY,
  fingerprint TEXT NOT NULL,
  since INTEGER NOT NULL
) STRICT;
PRAGMA application_id = 1280134214;
PRAGMA user_version = 1;
)sql";

constexpr std::array run_states{RunState::open, RunState::committed, RunState::undoing, RunState::undone, RunState::partial};
constexpr std::array step_states{StepState::intended, StepState::done, StepState::undone, StepState::kept};

template <typename State, std::size_t Count>
State state_of(const std::array<State, Count>& states, const std::string& text) {
  for (const State state : states) {
    if (text == shown(state)) return state;
  }
  // The schema's own check makes this impossible short of a hand-edited file.
  throw Error(ErrorKind::failed, "journal-unreadable", fmt::format("the journal holds an unknown state \"{}\"", text));
}

int add_step(Database& db, RunId run, const std::string& body) {
  Statement insert(db,
                   "INSERT INTO step (run, position, body, state, changed_at)"
                   " SELECT ?1, coalesce(max(position), 0) + 1, ?2, 'intended', ?3 FROM step WHERE run = ?1"
                   " RETURNING position",
                   run, body, sys::wall_seconds());
  const int position = insert.next() ? static_cast<int>(insert.integer(0)) : 0;
  insert.run();
  return position;
}

/// A file name for any VM name: ordinary characters stay readable, different names stay different.
std::string lock_name(const std::string& vm) {
  std::string safe;
  for (const unsigned char c : vm) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
    safe += plain ? std::string(1, static_cast<char>(c)) : fmt::format("%{:02x}", c);
  }
  if (safe.size() > 200) safe = safe.substr(0, 100) + "%" + sys::sha256(vm);
  return "vm-" + safe + ".lock";
}

/// Makes the database file, private whatever the umask, so that SQLite never creates one by its own rules.
void make_file(const sys::fs::path& file) {
  const sys::Fd fd(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd || ::fchmod(fd.get(), 0600) != 0) {
    throw Error(ErrorKind::failed, "state-folder-unusable",
                fmt::format("cannot open the journal {}: {}", file.string(), std::strerror(errno)))
        .fix("give yourself access to the file and its folder, or choose another folder with LUMELIFT_STATE_DIR");
  }
  const sys::Fd folder(::open(file.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder) ::fsync(folder.get());
}

/// A database without any table is one whose making was cut short: as good as none.
bool is_new(Database& database) {
  return database.integer("SELECT count(*) FROM sqlite_schema") == 0;
}

void check(Database& database) {
  if (database.integer("PRAGMA application_id") != application_id) {
    database.unreadable("it is an SQLite database, but not one of lumelift's");
  }
  const auto version = database.integer("PRAGMA user_version");
  if (version > schema_version) {
    throw Error(ErrorKind::failed, "journal-newer",
                fmt::format("the journal {} was made by a newer lumelift (format {}, this one knows {})", database.file().string(), version,
                            schema_version))
        .fix("use the newer lumelift; this one cannot know what it has to undo");
  }
  if (const auto verdict = database.text("PRAGMA quick_check(1)"); verdict != "ok") database.unreadable(verdict);
}

/// Write-ahead logging: one flush per commit instead of four, readers and the writer never wait for one another, and a
/// commit is whole or absent after any crash.
void prepare(Database& database, const sys::fs::path& folder) {
  if (database.integer("PRAGMA user_version") == 0 || database.text("PRAGMA journal_mode") != "wal") {
    // SQLite gives up at once, without its busy wait, when two processes change the mode together.
    const sys::FileLock lock(folder / "journal.lock", "making the journal", sys::Deadline::in(sys::Milliseconds{10'000}));
    if (!is_new(database)) check(database);
    if (database.text("PRAGMA journal_mode = WAL") != "wal") database.unreadable("write-ahead logging is not possible there");
    if (is_new(database)) {
      Transaction transaction(database);
      database.execute(schema);
      transaction.commit();
    }
  }
  check(database);
}

RunRecord run_record(const Statement& row) {
  return {row.integer(0), row.text(1), row.text(2), state_of(run_states, row.text(3)), row.integer(4), row.integer(5), row.text(6)};
}

constexpr const char* select_runs = "SELECT id, vm, command, state, started_at, ended_at, summary FROM run ";

}  // namespace

const char* shown(StepState state) {
  switch (state) {
    case StepState::intended:
      return "intended";
    case StepState::done:
      return "done";
    case StepState::undone:
      return "undone";
    case StepState::kept:
      return "kept";
  }
  return "?";
}

const char* shown(RunState state) {
  switch (state) {
    case RunState::open:
      return "open";
    case RunState::committed:
      return "committed";
    case RunState::undoing:
      return "undoing";
    case RunState::undone:
      return "undone";
    case RunState::partial:
      return "partial";
  }
  return "?";
}

/// The connection; none while a reader looks at a journal that was never written.
struct Journal::Db {
  std::unique_ptr<Database> connection;

  [[nodiscard]] explicit operator bool() const { return connection != nullptr; }
  [[nodiscard]] Database& operator*() const {
    if (!connection) throw Error(ErrorKind::failed, "journal-failed", "the journal was opened for reading only");
    return *connection;
  }
};

Journal::Journal(const sys::fs::path& folder, Access access) : db_(std::make_unique<Db>()), folder_(folder) {
  const auto file = folder / "journal.sqlite";
  if (access == Access::write) {
    sys::ensure_private_folder(folder);
    make_file(file);
    db_->connection = std::make_unique<Database>(file, Database::Mode::write);
    prepare(**db_, folder);
    return;
  }
  struct stat info {};
  if (::stat(file.c_str(), &info) != 0) {
    if (errno == ENOENT) return;
    if (errno == ENOTDIR) sys::ensure_private_folder(folder);  // tells what stands in its place
  }
  auto connection = std::make_unique<Database>(file, Database::Mode::read);
  if (is_new(*connection)) return;
  check(*connection);
  db_->connection = std::move(connection);
}

Journal::~Journal() = default;
Journal::Journal(Journal&&) noexcept = default;

sys::FileLock Journal::lock_vm(const std::string& vm, std::string_view purpose, const sys::Deadline& deadline) const {
  return {folder_ / lock_name(vm), purpose, deadline};
}

std::optional<std::string> Journal::holder(const std::string& vm) const {
  return sys::FileLock::holder(folder_ / lock_name(vm));
}

sys::FileLock Journal::lock_preference(std::string_view purpose, const sys::Deadline& deadline) const {
  return {folder_ / "preference.lock", purpose, deadline};
}

RunId Journal::begin(const std::string& vm, const std::string& command) {
  Database& db = **db_;
  Transaction transaction(db);
  Statement(db, "INSERT INTO run (vm, command, state, started_at) VALUES (?, ?, 'open', ?)", vm, command, sys::wall_seconds()).run();
  const RunId id = db.last_id();
  transaction.commit();
  return id;
}

void Journal::set_run(RunId run, RunState state, const std::string& summary) {
  Database& db = **db_;
  const bool ended = state != RunState::open && state != RunState::undoing;
  Transaction transaction(db);
  Statement(db, "UPDATE run SET state = ?, ended_at = ?, summary = CASE ?3 WHEN '' THEN summary ELSE ?3 END WHERE id = ?4",
            std::string_view(shown(state)), ended ? sys::wall_seconds() : 0, summary, run)
      .run();
  if (db.changed_rows() != 1) throw Error(ErrorKind::failed, "journal-failed", fmt::format("the journal has no run {}", run));
  transaction.commit();
}

std::vector<RunRecord> Journal::live_runs(const std::string& vm) const {
  std::vector<RunRecord> runs;
  if (!*db_) return runs;
  Statement rows(**db_, std::string(select_runs) + "WHERE state <> 'undone' AND (?1 = '' OR vm = ?1) ORDER BY id", vm);
  while (rows.next()) runs.push_back(run_record(rows));
  return runs;
}

std::vector<RunRecord> Journal::history(const std::string& vm) const {
  std::vector<RunRecord> runs;
  if (!*db_) return runs;
  Statement rows(**db_, std::string(select_runs) + "WHERE ?1 = '' OR vm = ?1 ORDER BY id", vm);
  while (rows.next()) runs.push_back(run_record(rows));
  return runs;
}

int Journal::intend(RunId run, const std::string& body, const std::optional<Claim>& claim) {
  Database& db = **db_;
  Transaction transaction(db);
  const int position = add_step(db, run, body);
  if (claim) {
    Statement(db,
              "INSERT INTO claim (resource, vm, before, since, boot, up) VALUES (?, ?, ?, ?, ?, ?)"
              " ON CONFLICT (resource, vm) DO UPDATE SET since = excluded.since, boot = excluded.boot, up = excluded.up",
              claim->resource, claim->vm, claim->before, claim->since, claim->boot, claim->up)
        .run();
  }
  transaction.commit();
  return position;
}

int Journal::intend(RunId run, const std::vector<std::string>& bodies) {
  Database& db = **db_;
  Transaction transaction(db);
  int first = 0;
  for (const auto& body : bodies) {
    const int position = add_step(db, run, body);
    if (first == 0) first = position;
  }
  transaction.commit();
  return first;
}

void Journal::mark(RunId run, int position, StepState state) {
  mark(run, position, 1, state);
}

void Journal::mark(RunId run, int first, int count, StepState state) {
  Database& db = **db_;
  Transaction transaction(db);
  Statement(db, "UPDATE step SET state = ?, changed_at = ? WHERE run = ? AND position >= ? AND position < ?",
            std::string_view(shown(state)), sys::wall_seconds(), run, std::int64_t{first}, std::int64_t{first} + count)
      .run();
  if (db.changed_rows() != count) {
    throw Error(ErrorKind::failed, "journal-failed", fmt::format("the journal has no step {} of run {}", first, run));
  }
  transaction.commit();
}

void Journal::amend(RunId run, int position, const std::string& body) {
  Database& db = **db_;
  Transaction transaction(db);
  Statement(db, "UPDATE step SET body = ? WHERE run = ? AND position = ? AND state = 'intended'", body, run, std::int64_t{position}).run();
  if (db.changed_rows() != 1) {
    throw Error(ErrorKind::failed, "journal-failed", fmt::format("the journal has no open step {} of run {}", position, run));
  }
  transaction.commit();
}

std::vector<StepRecord> Journal::steps(RunId run) const {
  std::vector<StepRecord> steps;
  if (!*db_) return steps;
  Statement rows(**db_, "SELECT run, position, body, state, changed_at FROM step WHERE run = ? ORDER BY position", run);
  while (rows.next()) {
    steps.push_back(
        {rows.integer(0), static_cast<int>(rows.integer(1)), rows.text(2), state_of(step_states, rows.text(3)), rows.integer(4)});
  }
  return steps;
}

std::vector<Claim> Journal::claims(const std::string& resource) const {
  std::vector<Claim> claims;
  if (!*db_) return claims;
  Statement rows(**db_, "SELECT resource, vm, before, since, boot, up FROM claim WHERE resource = ? ORDER BY since, vm", resource);
  while (rows.next()) claims.push_back({rows.text(0), rows.text(1), rows.text(2), rows.integer(3), rows.text(4), rows.integer(5)});
  return claims;
}

void Journal::release(const std::string& resource, const std::string& vm) {
  Statement(**db_, "DELETE FROM claim WHERE resource = ? AND vm = ?", resource, vm).run();
}

std::optional<Pin> Journal::pin(const std::string& vm) const {
  if (!*db_) return std::nullopt;
  Statement row(**db_, "SELECT vm, fingerprint, since FROM pin WHERE vm = ?", vm);
  if (!row.next()) return std::nullopt;
  return Pin{row.text(0), row.text(1), row.integer(2)};
}

std::vector<Pin> Journal::pins() const {
  std::vector<Pin> pins;
  if (!*db_) return pins;
  Statement rows(**db_, "SELECT vm, fingerprint, since FROM pin ORDER BY vm");
  while (rows.next()) pins.push_back({rows.text(0), rows.text(1), rows.integer(2)});
  return pins;
}

void Journal::set_pin(const std::string& vm, const std::string& fingerprint) {
  Statement(**db_, "INSERT OR REPLACE INTO pin (vm, fingerprint, since) VALUES (?, ?, ?)", vm, fingerprint, sys::wall_seconds()).run();
}

void Journal::remove_pin(const std::string& vm) {
  Statement(**db_, "DELETE FROM pin WHERE vm = ?", vm).run();
}

}  // namespace lumelift
