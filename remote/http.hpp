#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "remote/session.hpp"

namespace lumelift {

struct HttpReply {
  int status = 0;
  std::string body;
};

/// Asks a server of the guest's own loopback, through the SSH connection: nothing of the guest is used but sshd's forwarding. Speaks
/// HTTP/1.0, so that every reply comes whole and unchunked. Nothing when nobody listens on `port`. An empty `body` makes a GET, any
/// other a POST of JSON. Throws Error "guest-forwarding-refused", "guest-http" (what came back is no reply), and what Session throws.
[[nodiscard]] std::optional<HttpReply> http(Session& session, int port, std::string_view path, std::string_view body,
                                            const sys::Deadline& deadline);

/// The reply in what a server sent until it closed, or in as much of it as Content-Length says; nothing while that is not there
/// yet. Pure. Throws Error "guest-http".
[[nodiscard]] std::optional<HttpReply> http_reply(std::string_view received, bool closed);

}  // namespace lumelift
