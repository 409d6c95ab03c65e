#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace lumelift::sys {

using Milliseconds = std::chrono::milliseconds;

/// A point on the monotonic clock after which waiting ends. There is no infinite deadline.
class Deadline {
 public:
  [[nodiscard]] static Deadline in(Milliseconds span);
  /// The sooner of this one and `span` from now: one try inside a longer wait.
  [[nodiscard]] Deadline at_most(Milliseconds span) const;
  [[nodiscard]] bool expired() const;
  /// Time left, never negative.
  [[nodiscard]] Milliseconds left() const;

 private:
  explicit Deadline(std::chrono::steady_clock::time_point at) : at_(at) {}
  std::chrono::steady_clock::time_point at_;
};

/// Milliseconds on the monotonic clock since construction.
class Stopwatch {
 public:
  Stopwatch();
  [[nodiscard]] Milliseconds elapsed() const;

 private:
  std::chrono::steady_clock::time_point start_;
};

/// Thrown by waits after SIGINT, SIGTERM or SIGHUP. Not an Error: nothing failed.
struct Interrupted {
  int signal = 0;
};

/// Installs handlers for SIGINT, SIGTERM and SIGHUP (first one sets the flag, a second one leaves at once with status
/// 130 while the flag is set; neither a second SIGHUP counts, because a closing terminal sends several, nor what follows within
/// 0.2 s, because timeout(1) sends each signal twice) and ignores SIGPIPE. SIGHUP stays ignored under nohup. Call once, before any thread.
void arm_signals();
/// The signal that is pending, or 0.
[[nodiscard]] int pending_signal() noexcept;
/// Throws Interrupted when a signal is pending and no Shield is alive.
void check_interrupt();
/// The process group of the child that runs now, 0 for none: a second signal ends it together with us.
void note_child_group(int group) noexcept;
/// A descriptor that turns readable when a signal arrives, for poll(); -1 before arm_signals() or under a Shield.
[[nodiscard]] int interrupt_fd() noexcept;

/// While one is alive, waits go on in spite of a pending signal: an undo in progress is not cut short by the very signal
/// that caused it. A further signal still ends the process at once.
class Shield {
 public:
  Shield() noexcept;
  ~Shield();
  Shield(const Shield&) = delete;
  Shield& operator=(const Shield&) = delete;
};

/// Waits `span` or until the deadline, whichever is sooner. Throws Interrupted.
void pause(Milliseconds span, const Deadline& deadline);

/// Seconds since 1970 on the wall clock; for records only, never for waiting.
[[nodiscard]] std::int64_t wall_seconds();
/// "2026-11-29T13:04:07Z".
[[nodiscard]] std::string iso_utc(std::int64_t wall_seconds);

}  // namespace lumelift::sys
