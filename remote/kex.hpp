#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

/// What was agreed on, with both lists; for a session whose keys are exchanged and whose greeting is still kept.
[[nodiscard]] std::vector<Algorithm> agreed_algorithms(Session::State& state);

/// Puts `kind` first among the host keys that are asked for; a kind that libssh2 does not know changes nothing.
void prefer_host_key(_LIBSSH2_SESSION* session, std::string_view kind);

/// Why the key exchange of `state` failed with libssh2's `rc`: "guest-kex-mismatch" or "guest-handshake".
[[nodiscard]] Error handshake_error(Session::State& state, long rc);

}  // namespace lumelift
