#include "host/sys/fd.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "host/sys/error.hpp"

namespace lumelift::sys {
namespace {

#ifdef __APPLE__
/// macOS has no pipe2: a child started by another thread between the two calls could inherit the ends; we start children
/// from one thread only.
int pipe_cloexec(int ends[2]) noexcept {
  if (::pipe(ends) != 0) return -1;
  ::fcntl(ends[0], F_SETFD, FD_CLOEXEC);
  ::fcntl(ends[1], F_SETFD, FD_CLOEXEC);
  return 0;
}
#else
int pipe_cloexec(int ends[2]) noexcept {
  return ::pipe2(ends, O_CLOEXEC);
}
#endif

}  // namespace

void Fd::reset(int fd) noexcept {
  // Never retried: after EINTR the descriptor is gone on Linux and macOS alike, and its number may already be reused.
  if (fd_ >= 0 && fd_ != fd) ::close(fd_);
  fd_ = fd;
}

Pipe make_pipe() {
  int ends[2];
  if (pipe_cloexec(ends) != 0) {
    throw Error(ErrorKind::failed, "host-no-descriptors", std::string("cannot make a pipe: ") + std::strerror(errno))
        .fix("raise the limit on open files (ulimit -n) or end programs that hold many, then try again");
  }
  return {Fd(ends[0]), Fd(ends[1])};
}

}  // namespace lumelift::sys
