#include "host/database.hpp"

#include <fmt/format.h>
#include <sqlite3.h>

#include <cerrno>

#include "host/sys/error.hpp"

namespace lumelift {
namespace {

constexpr int busy_wait_ms = 10'000;

/// A path as SQLite's URI form wants it.
std::string uri_of(const std::filesystem::path& file) {
  std::string uri = "file:";
  for (const unsigned char c : file.string()) {
    if (c == '?' || c == '#' || c == '%') {
      uri += fmt::format("%{:02x}", c);
    } else {
      uri += static_cast<char>(c);
    }
  }
  return uri;
}

}  // namespace

Database::Database(const std::filesystem::path& file, Mode mode) : file_(std::filesystem::absolute(file)) {
  try {
    int code = connect(mode, false);
    const bool no_index = (code & 0xff) == SQLITE_CANTOPEN || (code & 0xff) == SQLITE_READONLY;
    if (mode == Mode::read && no_index && !has_log()) {
      // In a folder that we cannot write to SQLite cannot make its index of the log. There is no log, so nobody writes
      // and the file alone is the whole truth.
      close();
      code = connect(mode, true);
    }
    if (code != SQLITE_OK) fail(code);
    execute("PRAGMA foreign_keys = ON");
    execute("PRAGMA trusted_schema = OFF");
    // As FULL, and the rollback journal of the change to write-ahead logging is gone for good before anything is logged.
    execute("PRAGMA synchronous = EXTRA");
    // Heeded on macOS only, where an ordinary fsync stops at the drive's cache.
    execute("PRAGMA fullfsync = ON");
    execute("PRAGMA checkpoint_fullfsync = ON");
    if (mode == Mode::read) execute("PRAGMA query_only = ON");
  } catch (...) {
    close();
    throw;
  }
}

Database::~Database() {
  close();
}

int Database::connect(Mode mode, bool immutable) {
  const std::string uri = uri_of(file_) + (immutable ? "?immutable=1" : "");
  // Readers open for writing too where they may: what a crash left half-written is put right by whoever comes first.
  const int access = immutable ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE;
  const int code = sqlite3_open_v2(uri.c_str(), &handle_, access | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX, nullptr);
  if (code != SQLITE_OK) return code;
  sqlite3_extended_result_codes(handle_, 1);
  sqlite3_busy_timeout(handle_, busy_wait_ms);
  if (mode == Mode::write && sqlite3_db_readonly(handle_, "main") == 1) return SQLITE_READONLY;
  // The file is not looked at before the first read.
  return sqlite3_exec(handle_, "SELECT count(*) FROM sqlite_schema", nullptr, nullptr, nullptr);
}

bool Database::has_log() const {
  std::error_code missing;
  const auto size = std::filesystem::file_size(file_.string() + "-wal", missing);
  return !missing && size > 0;
}

void Database::close() {
  sqlite3_close_v2(handle_);
  handle_ = nullptr;
}

void Database::execute(const char* sql) {
  const int code = sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) fail(code);
}

std::int64_t Database::integer(const char* sql) {
  Statement statement(*this, sql);
  return statement.next() ? statement.integer(0) : 0;
}

std::string Database::text(const char* sql) {
  Statement statement(*this, sql);
  return statement.next() ? statement.text(0) : "";
}

std::int64_t Database::last_id() const {
  return sqlite3_last_insert_rowid(handle_);
}

int Database::changed_rows() const {
  return sqlite3_changes(handle_);
}

void Database::unreadable(std::string_view reason) const {
  throw Error(ErrorKind::failed, "journal-unreadable", fmt::format("the journal {} cannot be read: {}", file_.string(), reason))
      .fix(fmt::format("move {0} away together with {0}-wal and {0}-shm, but keep them; what it knew has then to be undone by "
                       "hand, see docs/howto/undo-by-hand.md",
                       file_.string()));
}

void Database::fail(int code) const {
  const bool told = handle_ != nullptr && sqlite3_extended_errcode(handle_) == code;
  const std::string reason = told ? sqlite3_errmsg(handle_) : sqlite3_errstr(code);
  const bool told_full = handle_ != nullptr && sqlite3_system_errno(handle_) == ENOSPC;
  const bool no_room = (code & 0xff) == SQLITE_FULL || ((code & 0xff) == SQLITE_IOERR && told_full);
  switch (no_room ? SQLITE_FULL : code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      throw Error(ErrorKind::busy, "journal-busy",
                  fmt::format("another process kept the journal {} to itself for {} s", file_.string(), busy_wait_ms / 1000))
          .fix("wait for it to end, then try again");
    case SQLITE_FULL:
      throw Error(ErrorKind::failed, "journal-full", fmt::format("no room to write the journal {}", file_.string()))
          .fix("free some space on its disk, then try again; what is recorded so far is safe");
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      unreadable(reason);
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
      throw Error(ErrorKind::failed, "state-folder-unusable", fmt::format("cannot open the journal {}: {}", file_.string(), reason))
          .fix("give yourself access to the file and its folder, or choose another folder with LUMELIFT_STATE_DIR");
    default:
      throw Error(ErrorKind::failed, "journal-failed",
                  fmt::format("the journal {} failed: {} (SQLite code {})", file_.string(), reason, code))
          .fix("check the disk that holds it, then try again");
  }
}

void Statement::prepare(std::string_view sql) {
  const int code = sqlite3_prepare_v2(database_.handle_, sql.data(), static_cast<int>(sql.size()), &handle_, nullptr);
  if (code != SQLITE_OK) database_.fail(code);
}

Statement::~Statement() {
  sqlite3_finalize(handle_);
}

void Statement::bind(int index, std::int64_t value) {
  if (const int code = sqlite3_bind_int64(handle_, index, value); code != SQLITE_OK) database_.fail(code);
}

void Statement::bind(int index, std::string_view value) {
  // An empty view may have no address, which SQLite would take for NULL.
  const char* bytes = value.data() != nullptr ? value.data() : "";
  const int code = sqlite3_bind_text64(handle_, index, bytes, value.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
  if (code != SQLITE_OK) database_.fail(code);
}

bool Statement::next() {
  const int code = sqlite3_step(handle_);
  if (code == SQLITE_ROW) return true;
  if (code != SQLITE_DONE) database_.fail(code);
  return false;
}

std::int64_t Statement::integer(int column) const {
  return sqlite3_column_int64(handle_, column);
}

std::string Statement::text(int column) const {
  const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(handle_, column));
  return bytes == nullptr ? "" : std::string(bytes, static_cast<std::size_t>(sqlite3_column_bytes(handle_, column)));
}

Transaction::~Transaction() {
  // Fails only where SQLite has rolled back by itself, or where the next start will.
  if (!open_) return;
  try {
    database_.execute("ROLLBACK");
  } catch (...) {
    // Nobody is there to hear of it.
  }
}

void Transaction::commit() {
  database_.execute("COMMIT");
  open_ = false;
}

}  // namespace lumelift
