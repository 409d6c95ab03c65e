#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "host/sys/fd.hpp"
#include "host/sys/time.hpp"

namespace lumelift::sys {

/// A program to run on this host, found through PATH, never through a shell.
struct Command {
  std::vector<std::string> argv;
  std::vector<std::pair<std::string, std::string>> env = {};  ///< set on top of our own environment
  std::string input = {};             ///< fed to standard input, which is then closed; needs arm_signals() (SIGPIPE)
  std::size_t output_cap = 4u << 20;  ///< bytes kept of each stream; the rest is drained and dropped
};

/// How a child ended. Exactly one of `status`, `signal` and `timed_out` says so.
struct Outcome {
  std::optional<int> status;
  std::optional<int> signal;
  bool timed_out = false;
  bool truncated = false;  ///< a stream was longer than the cap
  std::string out, err;
  Milliseconds elapsed{0};

  [[nodiscard]] bool ok() const { return status == 0; }
  /// "exit status 3", "signal 9", "no answer within 10.0 s".
  [[nodiscard]] std::string ending() const;
};

/// Runs `command` in a process group of its own, drains both streams, and reaps it. At the deadline the whole group gets
/// SIGTERM, two seconds later SIGKILL; a grandchild that keeps a stream open does not prolong the wait. After an ordinary
/// end the rest of the group is left alone: `lume run --detach` leaves the VM there. Throws Error
/// "host-tool-missing" when the program is not there, Interrupted after killing the group.
[[nodiscard]] Outcome run(const Command& command, const Deadline& deadline);

/// A program that runs beside us with one socket or file as its standard input and output; without one it reads nothing. Owns the process:
/// its whole group is killed, and it is reaped, when this object ends. Never blocks. Throws Error "host-tool-missing", "host-no-process".
class Companion {
 public:
  explicit Companion(std::vector<std::string> argv, const Fd& stream = Fd());
  ~Companion();
  Companion(const Companion&) = delete;
  Companion& operator=(const Companion&) = delete;

  /// What it has written to its standard error so far, without a stream also to its standard output; at most 4 kB.
  [[nodiscard]] std::string said();

 private:
  Command command_;
  Fd err_;
  std::string text_;
  int pid_ = -1;
};

/// Called after every run() with what was run and how it ended; for --verbose. Set once at start-up.
using RunObserver = std::function<void(const Command&, const Outcome&)>;
void observe_runs(RunObserver observer);

/// "lume get 'my vm' --format json": for messages only.
[[nodiscard]] std::string shown(const std::vector<std::string>& argv);

}  // namespace lumelift::sys
