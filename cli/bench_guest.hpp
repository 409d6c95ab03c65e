#pragma once

#include <cstdint>
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
  int status = 0;                 ///< 128 + N after signal N, 255 where the guest did not say
  std::string ending;             ///< in words
  std::optional<int> pid;
  bool overdue = false;           ///< it was silent for too long and was killed
  std::optional<std::string> clock_jump;  ///< what the clocks did while it ran: its figures mean nothing
};

/// Runs a program of the guest with no input and watches it: it is killed when its standard output is silent for
/// `silence`, and when a signal reaches us. Wall and monotonic clock of this Mac are compared all the while. Throws what
/// Session throws, sys::Interrupted.
[[nodiscard]] Watched run_watched(Session& session, const Launch& launch, sys::Milliseconds silence);

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

/// The environment of a scrubbed program, as `env` prints it: started just like a measured one.
[[nodiscard]] std::string guest_environment(Session& session);
[[nodiscard]] std::string host_environment();

}  // namespace lumelift
