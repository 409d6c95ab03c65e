#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "host/sys/error.hpp"
#include "remote/session.hpp"

namespace lumelift {

/// The algorithm lists that a server sent before encryption began, each as on the wire: comma-separated.
struct KexOffer {
  std::string kex, host_key, cipher_in, cipher_out, mac_in, mac_out;
};

/// Reads the offer out of the first bytes of a connection: greeting lines, then the first packet. Nothing when they hold
/// no whole offer. Pure; trusts no length.
[[nodiscard]] std::optional<KexOffer> read_offer(std::string_view first_bytes);

/// True when two comma-separated lists have a name in common.
[[nodiscard]] bool share_a_name(std::string_view ours, std::string_view theirs);

/// Why the key exchange of `state` failed with libssh2's `rc`: "guest-kex-mismatch" or "guest-handshake".
[[nodiscard]] Error handshake_error(Session::State& state, long rc);

}  // namespace lumelift
