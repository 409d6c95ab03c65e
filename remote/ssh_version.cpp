#include "remote/ssh_version.hpp"

#include <libssh2.h>

namespace lumelift {

std::string ssh_version() {
  return libssh2_version(0);
}

}  // namespace lumelift
