#include "host/sys/time.hpp"

#include <doctest/doctest.h>
#include <poll.h>
#include <unistd.h>

#include <csignal>

#include "tests/unit/scratch.hpp"

using namespace lumelift;
using sys::Deadline;
using sys::Milliseconds;

TEST_CASE("a deadline counts down to zero and stays there") {
  const Deadline deadline = Deadline::in(Milliseconds{40});
  CHECK_FALSE(deadline.expired());
  CHECK(deadline.left() > Milliseconds{0});
  CHECK(deadline.left() <= Milliseconds{40});
  sys::pause(Milliseconds{500}, deadline);
  CHECK(deadline.expired());
  CHECK(deadline.left() == Milliseconds{0});
  CHECK(Deadline::in(Milliseconds{0}).expired());
}

TEST_CASE("one try inside a longer wait takes the sooner end") {
  const Deadline soon = Deadline::in(Milliseconds{50}), late = Deadline::in(Milliseconds{60'000});
  CHECK(late.at_most(Milliseconds{20}).left() <= Milliseconds{20});
  CHECK(soon.at_most(Milliseconds{60'000}).left() <= Milliseconds{50});
}

TEST_CASE("pause waits its span, not less") {
  const sys::Stopwatch watch;
  sys::pause(Milliseconds{30}, Deadline::in(Milliseconds{10'000}));
  CHECK(watch.elapsed() >= Milliseconds{30});
  CHECK(watch.elapsed() < Milliseconds{2'000});
}

TEST_CASE("wall time is shown as ISO 8601 in UTC") {
  CHECK(sys::iso_utc(0) == "1970-01-01T00:00:00Z");
  CHECK(sys::iso_utc(1'796'130'247) == "2026-12-01T13:04:07Z");
  CHECK(sys::iso_utc(-1) == "1969-12-31T23:59:59Z");
  CHECK(sys::iso_utc(sys::wall_seconds()).size() == 20);
}

TEST_CASE("the first signal interrupts a wait at once, and makes the descriptor readable") {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    CAPTURE(signal);
    const int status = test::in_child([signal] {
      sys::arm_signals();
      if (sys::interrupt_fd() < 0 || sys::pending_signal() != 0) return 1;
      const pid_t parent = ::getpid();
      const pid_t sender = ::fork();
      if (sender == 0) {
        ::usleep(30'000);
        ::kill(parent, signal);
        ::_exit(0);
      }
      const sys::Stopwatch watch;
      try {
        sys::pause(Milliseconds{20'000}, Deadline::in(Milliseconds{20'000}));
      } catch (const sys::Interrupted& interrupted) {
        pollfd wake{sys::interrupt_fd(), POLLIN, 0};
        return interrupted.signal == signal && sys::pending_signal() == signal && ::poll(&wake, 1, 0) == 1 &&
                       watch.elapsed() < Milliseconds{5'000}
                   ? 0
                   : 2;
      }
      return 3;
    });
    CHECK(status == 0);
  }
}

TEST_CASE("under a shield waits go on in spite of the signal, and end when it is gone") {
  const int status = test::in_child([] {
    sys::arm_signals();
    ::raise(SIGINT);
    {
      const sys::Shield outer;
      { const sys::Shield inner; }
      if (sys::interrupt_fd() != -1) return 1;
      sys::pause(Milliseconds{10}, Deadline::in(Milliseconds{1'000}));
      sys::check_interrupt();
    }
    try {
      sys::check_interrupt();
    } catch (const sys::Interrupted&) {
      return 0;
    }
    return 2;
  });
  CHECK(status == 0);
}

TEST_CASE("a second signal leaves at once with status 130, even under a shield") {
  const int status = test::in_child([] {
    sys::arm_signals();
    const sys::Shield shield;
    ::raise(SIGINT);
    ::usleep(250'000);
    ::raise(SIGTERM);
    return 0;
  });
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 130);
}

TEST_CASE("a signal that is told twice at once is one") {
  const int status = test::in_child([] {
    sys::arm_signals();
    ::raise(SIGTERM);
    ::raise(SIGTERM);
    return sys::pending_signal() == SIGTERM ? 0 : 1;
  });
  CHECK(status == 0);
}

TEST_CASE("a closing terminal, which sends SIGHUP twice, does not cut the undo short") {
  const int status = test::in_child([] {
    sys::arm_signals();
    ::raise(SIGHUP);
    ::raise(SIGHUP);
    return sys::pending_signal() == SIGHUP ? 0 : 1;
  });
  CHECK(status == 0);
}

TEST_CASE("under nohup the closing terminal is no interrupt") {
  const int status = test::in_child([] {
    std::signal(SIGHUP, SIG_IGN);
    sys::arm_signals();
    ::raise(SIGHUP);
    return sys::pending_signal() == 0 ? 0 : 1;
  });
  CHECK(status == 0);
}
