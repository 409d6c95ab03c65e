#pragma once

#include <utility>

namespace lumelift::sys {

/// Owns one POSIX file descriptor, always close-on-exec, and closes it. Move-only. Never blocks, never throws.
class Fd {
 public:
  Fd() noexcept = default;
  explicit Fd(int fd) noexcept : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset(std::exchange(other.fd_, -1));
    }
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }

  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] explicit operator bool() const noexcept { return fd_ >= 0; }
  [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }
  void reset(int fd = -1) noexcept;

 private:
  int fd_ = -1;
};

/// Both ends of a pipe, close-on-exec.
struct Pipe {
  Fd read, write;
};

/// Throws Error "host-no-descriptors" when the system has none left.
[[nodiscard]] Pipe make_pipe();

}  // namespace lumelift::sys
