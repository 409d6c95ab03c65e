#include "host/sys/time.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <ctime>

#include "host/sys/fd.hpp"

namespace lumelift::sys {
namespace {

using Clock = std::chrono::steady_clock;

// Signal handlers can reach nothing but globals; these are the only ones, and all are lock-free.
std::atomic<int> pending{0};
std::atomic<int> shields{0};
std::atomic<int> wake_read{-1};
std::atomic<int> wake_write{-1};
std::atomic<int> child_group{0};
std::atomic<std::int64_t> first_at{0};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free);

// timeout(1) and some shells send a signal to the process and again to its group: that is one wish, told twice.
constexpr std::int64_t one_wish_ns = 200'000'000;

std::int64_t steady_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

extern "C" void lumelift_on_signal(int signal) {
  const int saved_errno = errno;
  const std::int64_t now = steady_ns();
  int none = 0;
  // Before the flag: the second one of a pair may come in the middle of this handler, or on another thread.
  if (pending.load() == 0) first_at = now;
  if (pending.compare_exchange_strong(none, signal)) {
    [[maybe_unused]] const auto ignored = ::write(wake_write.load(), "!", 1);
  } else if (signal != SIGHUP && now - first_at.load() > one_wish_ns) {
    // A closing terminal sends SIGHUP more than once (kernel and shell): no sign of impatience, so the undo goes on.
    if (const int group = child_group.load(); group > 0) ::kill(-group, SIGKILL);
    ::_exit(130);
  }
  errno = saved_errno;
}

void handle(int signal) {
  struct sigaction old {};
  // Under nohup the user asked for a run that outlives the terminal.
  if (signal == SIGHUP && ::sigaction(signal, nullptr, &old) == 0 && old.sa_handler == SIG_IGN) return;
  struct sigaction action {};
  action.sa_handler = lumelift_on_signal;
  sigemptyset(&action.sa_mask);
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

Deadline Deadline::in(Milliseconds span) {
  return Deadline(Clock::now() + span);
}

Deadline Deadline::at_most(Milliseconds span) const {
  return Deadline(std::min(at_, Clock::now() + span));
}

bool Deadline::expired() const {
  return left() == Milliseconds{0};
}

Milliseconds Deadline::left() const {
  // Rounded up: a poll() for the time left must not wake just before the deadline and spin.
  return std::max(Milliseconds{0}, std::chrono::ceil<Milliseconds>(at_ - Clock::now()));
}

Stopwatch::Stopwatch() : start_(Clock::now()) {}

Milliseconds Stopwatch::elapsed() const {
  return std::chrono::duration_cast<Milliseconds>(Clock::now() - start_);
}

void arm_signals() {
  std::signal(SIGPIPE, SIG_IGN);
  if (wake_read.load() < 0) {
    Pipe pipe = make_pipe();
    ::fcntl(pipe.write.get(), F_SETFL, O_NONBLOCK);
    wake_read = pipe.read.release();
    wake_write = pipe.write.release();
  }
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) handle(signal);
}

int pending_signal() noexcept {
  return pending.load();
}

void check_interrupt() {
  const int signal = pending.load();
  if (signal != 0 && shields.load() == 0) throw Interrupted{signal};
}

void note_child_group(int group) noexcept {
  child_group = group;
}

int interrupt_fd() noexcept {
  return shields.load() == 0 ? wake_read.load() : -1;
}

Shield::Shield() noexcept {
  ++shields;
}
Shield::~Shield() {
  --shields;
}

void pause(Milliseconds span, const Deadline& deadline) {
  const Deadline end = deadline.at_most(span);
  check_interrupt();
  while (!end.expired()) {
    pollfd wake{interrupt_fd(), POLLIN, 0};
    ::poll(&wake, 1, static_cast<int>(std::min(end.left(), Milliseconds{60'000}).count()));
    check_interrupt();
  }
}

std::int64_t wall_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string iso_utc(std::int64_t wall_seconds) {
  const auto seconds = static_cast<std::time_t>(wall_seconds);
  std::tm parts{};
  if (::gmtime_r(&seconds, &parts) == nullptr) return "(no date)";
  char text[40];
  const auto length = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {text, length};
}

}  // namespace lumelift::sys
