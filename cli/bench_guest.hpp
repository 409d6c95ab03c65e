#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/guest_run.hpp"
#include "remote/guest.hpp"

namespace lumelift {

/// How a measured program ended.
struct Watched {
  std::string out, err;
  int status = 0;      ///< 128 + N after signal N, 255 where the guest did not say
  std::string ending;  ///< in words
  std::optional<int> pid;
  std::string defect = {};                ///< why it is no measurement although it ran: killed after too long a silence, for instance
  std::optional<std::string> clock_jump;  ///< what the clocks did while it ran: its figures mean nothing
};

/// The end of what it printed, whole lines, fit for a terminal.
[[nodiscard]] std::string last_words(const Watched& ran);

/// What is done while a program runs.
struct Watching {
  sys::Milliseconds silence{0};               ///< it is killed when its standard output is silent for so long; 0: never
  sys::Milliseconds every{1'000};             ///< and `conduct` is called at least this often
  std::function<void(int pid)> conduct = {};  ///< may use the Session; called once the pid is known
};

/// Runs a program of the guest with no input and watches it; it is killed when a signal reaches us, or when `conduct` throws. Wall and
/// monotonic clock of this Mac are compared all the while. Throws what Session and `conduct` throw, sys::Interrupted.
[[nodiscard]] Watched run_watched(Session& session, const Launch& launch, const Watching& watching);

/// A process that is gone already is no failure.
void kill_in_guest(Session& session, int pid, std::string_view signal);

/// The same for a program of this Mac, without any DYLD_* and LUME* variable; `limit` is for the whole of it.
[[nodiscard]] Watched run_on_host(const std::vector<std::string>& argv, sys::Milliseconds limit);

/// One question about load and heat, and what came back, whatever it was.
struct Asked {
  std::string command, answer;
  int status = 0;
  sys::Stopwatch since = {};  ///< runs from the answer on
};
/// The guest's clock first.
[[nodiscard]] std::vector<Asked> ask_guest(Guest& guest);
[[nodiscard]] std::vector<Asked> ask_host();
/// Seconds since 1970 by the guest's clock; nothing when it did not say.
[[nodiscard]] std::optional<std::int64_t> guest_clock(const std::vector<Asked>& asked);
/// How far the guest's clock went between two answers of ask_guest(), where that is not what went by on this Mac.
[[nodiscard]] std::optional<std::string> guest_jump(const std::vector<Asked>& before, const std::vector<Asked>& after);

/// The environment of a scrubbed program, as `env` prints it: started just like a measured one.
[[nodiscard]] std::string guest_environment(Session& session);
[[nodiscard]] std::string host_environment();
/// Those of this Mac's that could matter and that run_on_host() leaves to a program.
[[nodiscard]] std::vector<std::string> host_variables();

}  // namespace lumelift
