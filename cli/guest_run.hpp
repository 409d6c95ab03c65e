#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/console.hpp"
#include "remote/guest.hpp"
#include "remote/interactive.hpp"

namespace lumelift {

/// A program of the guest and what it is to find there.
struct Launch {
  std::vector<std::string> command;  ///< [0]: absolute, relative to `folder`, or looked up in the guest's PATH
  /// On top of the account's own environment, which is rid of every DYLD_* variable and of all of the library's.
  std::vector<std::pair<std::string, std::string>> environment;
  std::string folder;  ///< working directory; empty: the guest's home
};

/// "NAME=VALUE" words of a user. Throws Error "variable-invalid", "variable-reserved" (usage).
[[nodiscard]] std::vector<std::pair<std::string, std::string>> variables_from(const std::vector<std::string>& words);

/// The command line for the guest's login shell. It first prints a mark that names the pid, then becomes the program through
/// `env`, so that no shell stands in between that would strip the variables. Pure. Throws Error "program-unusable" (usage).
[[nodiscard]] std::string launch_line(const Launch& launch, const std::string& token);

/// Takes the mark, and what start files printed in front of it, out of the first bytes of standard output.
class MarkCutter {
 public:
  explicit MarkCutter(const std::string& token);
  /// What of the bytes seen so far is the program's.
  [[nodiscard]] std::string feed(std::string_view piece);
  /// What was held back when no mark ever came.
  [[nodiscard]] std::string rest();
  [[nodiscard]] std::optional<int> pid() const { return pid_; }

 private:
  std::string head_, held_;
  std::optional<int> pid_;
  bool open_ = false;
};

/// How and with what streams a program ran.
struct RunEnding {
  ExecResult result;       ///< out and err only where they were kept
  std::optional<int> pid;  ///< in the guest
  bool lost = false;       ///< the connection ended first
  std::string lost_reason;

  /// The exit status to pass on: the program's own, 128 + N after signal N, 255 where there was neither.
  [[nodiscard]] int status() const;
};

struct RunStreams {
  enum class Output { pass, keep };
  Output output = Output::pass;  ///< pass: to our own streams as it comes; keep: in the ending
  std::string terminal_type;     ///< TERM; a terminal is asked for when it is set and ours are terminals
  /// Called once a second with the pid, once that is known. True asks the guest to end the program.
  std::function<bool(int pid)> watch = {};
};

/// Runs a program with our standard input, output and signals connected to it, until it ends. Throws what Session throws,
/// "output-closed" when nobody reads our output any more.
[[nodiscard]] RunEnding run_attached(Console& console, Session& session, const Launch& launch, const RunStreams& streams);

/// 16 hex digits that no other run has.
[[nodiscard]] std::string fresh_token();

}  // namespace lumelift
