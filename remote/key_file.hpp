#pragma once

#include <string>
#include <string_view>

namespace lumelift {

/// What a private key file holds, as far as its text tells.
struct KeyText {
  enum class Kind { private_key, public_key, putty, unknown };
  Kind kind = Kind::unknown;
  bool encrypted = false;
  bool rsa = false;
  bool security_key = false;  ///< the secret is in a device, not in the file
};

/// Looks at the text only: PEM heads and the clear part of OpenSSH's own format. Pure; trusts no length.
[[nodiscard]] KeyText look_at_key(std::string_view text);

/// Without padding.
[[nodiscard]] std::string base64(std::string_view bytes);

}  // namespace lumelift
