#include "host/sys/fd.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "host/sys/error.hpp"
#include "tests/unit/scratch.hpp"

using namespace lumelift;

namespace {
bool is_open(int fd) {
  return ::fcntl(fd, F_GETFD) >= 0;
}
}  // namespace

TEST_CASE("Fd closes what it owns, once") {
  int number = -1;
  {
    sys::Pipe pipe = sys::make_pipe();
    number = pipe.read.get();
    CHECK(is_open(number));
    sys::Fd moved = std::move(pipe.read);
    CHECK_FALSE(pipe.read);  // NOLINT(bugprone-use-after-move)
    CHECK(moved.get() == number);
    CHECK(is_open(number));
  }
  CHECK_FALSE(is_open(number));
}

TEST_CASE("Fd: release gives up, reset replaces, self-reset keeps") {
  sys::Pipe pipe = sys::make_pipe();
  const int read_end = pipe.read.get();
  pipe.read.reset(read_end);
  CHECK(is_open(read_end));
  const int write_end = pipe.write.release();
  pipe.read.reset(write_end);
  CHECK_FALSE(is_open(read_end));
  CHECK(is_open(write_end));
  CHECK(pipe.read.get() == write_end);
}

TEST_CASE("both ends of a pipe are close-on-exec") {
  const sys::Pipe pipe = sys::make_pipe();
  CHECK((::fcntl(pipe.read.get(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK((::fcntl(pipe.write.get(), F_GETFD) & FD_CLOEXEC) != 0);
}

#ifndef __SANITIZE_ADDRESS__  // the sanitizers need descriptors of their own
TEST_CASE("a process out of descriptors says so and what to do") {
  const int status = test::in_child([] {
    const rlimit few{16, 16};
    ::setrlimit(RLIMIT_NOFILE, &few);
    std::vector<sys::Pipe> pipes;
    try {
      for (int i = 0; i < 32; ++i) pipes.push_back(sys::make_pipe());
    } catch (const Error& error) {
      return error.id() == "host-no-descriptors" && !error.fix().empty() ? 0 : 1;
    }
    return 2;
  });
  CHECK(status == 0);
}
#endif
