#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

struct sqlite3;
struct sqlite3_stmt;

namespace lumelift {

/// One connection to one SQLite file; owns it. Every commit is on the medium when it returns. Waits up to 10 s for other
/// connections. Throws Error "journal-busy", "journal-full", "journal-unreadable", "state-folder-unusable",
/// "journal-failed". Internal to Journal.
class Database {
 public:
  enum class Mode { read, write };
  /// The file must exist; an empty one is an empty database. With Mode::read it may be on a read-only file system.
  Database(const std::filesystem::path& file, Mode mode);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  void execute(const char* sql);
  [[nodiscard]] std::int64_t integer(const char* sql);
  [[nodiscard]] std::string text(const char* sql);
  [[nodiscard]] std::int64_t last_id() const;
  [[nodiscard]] int changed_rows() const;
  [[nodiscard]] const std::filesystem::path& file() const { return file_; }

  /// Translates what SQLite reports into an Error.
  [[noreturn]] void fail(int code) const;
  [[noreturn]] void unreadable(std::string_view reason) const;

 private:
  friend class Statement;
  int connect(Mode mode, bool immutable);
  [[nodiscard]] bool has_log() const;
  void close();

  std::filesystem::path file_;
  sqlite3* handle_ = nullptr;
};

/// A prepared statement with its values bound in order. Not movable: lives in one call.
class Statement {
 public:
  template <typename... Values>
  Statement(Database& database, std::string_view sql, const Values&... values) : database_(database) {
    prepare(sql);
    int index = 0;
    (bind(++index, values), ...);
  }
  ~Statement();
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  /// Steps to the next row; false at the end.
  [[nodiscard]] bool next();
  /// Runs a statement that gives no rows.
  void run() {
    while (next()) {
    }
  }
  [[nodiscard]] std::int64_t integer(int column) const;
  [[nodiscard]] std::string text(int column) const;

 private:
  void prepare(std::string_view sql);
  void bind(int index, std::int64_t value);
  void bind(int index, std::string_view value);

  Database& database_;
  sqlite3_stmt* handle_ = nullptr;
};

/// Holds the write lock from construction; undone unless commit() was called.
class Transaction {
 public:
  explicit Transaction(Database& database) : database_(database) { database_.execute("BEGIN IMMEDIATE"); }
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  void commit();

 private:
  Database& database_;
  bool open_ = true;
};

}  // namespace lumelift
