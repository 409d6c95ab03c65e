#include "host/sys/error.hpp"

namespace lumelift {

int exit_status(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::failed:
      return 1;
    case ErrorKind::usage:
      return 2;
    case ErrorKind::incomplete:
      return 3;
    case ErrorKind::busy:
      return 4;
    case ErrorKind::unproven:
      return 5;
    case ErrorKind::blocked:
      return 6;
  }
  return 1;
}

}  // namespace lumelift
