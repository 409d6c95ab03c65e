#include "host/sys/secret.hpp"

#include <openssl/crypto.h>

namespace lumelift::sys {

void Secret::wipe() noexcept {
  // Not memset: a compiler may drop a store to memory that nobody reads again.
  OPENSSL_cleanse(value_.data(), value_.size());
  value_.clear();
}

}  // namespace lumelift::sys
