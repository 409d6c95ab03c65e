#pragma once

#include <string>

#include "cli/bench.hpp"
#include "cli/bench_guest.hpp"
#include "cli/bench_programs.hpp"

namespace lumelift {

/// One start of a measured program: how it ended, and what proves its side.
struct Started {
  Watched ran;
  Launch launch;
  std::string receipt;  ///< of the library, on the unlocked side
  std::string why;      ///< why it must not be used; empty when nothing speaks against it
};

/// Starts what is measured, on one side of the guest, and looks for the proof of that side. Takes files of its own out of the
/// guest again. Blocks as long as the program runs.
class BenchStarter {
 public:
  BenchStarter(GuestLink& link, const BenchSettings& settings, const Profile& profile, const BenchPlace& place,
               sys::Milliseconds repetition)
      : link_(link), settings_(settings), profile_(profile), place_(place), repetition_(repetition) {}

  /// One run of a guest arm.
  [[nodiscard]] Started measure(const BenchRun& run);
  /// A short greedy text; `ran.out` is the text.
  [[nodiscard]] Started write_text(Role role, const std::string& prompt, int tokens);

 private:
  /// Runs `launch` by `run`, with the library and its receipt on the unlocked side.
  [[nodiscard]] Started start(Role role, Launch launch, const std::function<Watched(const Launch&)>& run);
  [[nodiscard]] Launch launch(std::vector<std::string> program, const std::vector<std::string>& words) const;

  GuestLink& link_;
  const BenchSettings& settings_;
  const Profile& profile_;
  const BenchPlace& place_;
  sys::Milliseconds repetition_;
};

}  // namespace lumelift
