#include "remote/http.hpp"

#include <fmt/format.h>
#include <libssh2.h>

#include <algorithm>
#include <charconv>

#include "host/sys/error.hpp"
#include "remote/session_state.hpp"

namespace lumelift {
namespace {

constexpr auto doing = "ask a server in the guest";
constexpr const char* loopback = "127.0.0.1";
constexpr std::size_t reply_cap = 64u << 20;

Error no_reply(std::string_view received, std::string_view why) {
  return Error(ErrorKind::failed, "guest-http", fmt::format("the server's answer is no HTTP reply: {}", why))
      .note(std::string(received.substr(0, 200)))
      .fix("does something else listen on that port of the guest?");
}

/// The number behind `name` in the head of a reply, whose names are in any case.
std::optional<std::size_t> length_in(std::string_view head) {
  std::string lower(head);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; });
  constexpr std::string_view name = "\r\ncontent-length:";
  const auto at = lower.find(name);
  if (at == lower.npos) {
    return std::nullopt;
  }
  const auto begin = lower.find_first_not_of(' ', at + name.size());
  std::size_t length = 0;
  if (begin == lower.npos || std::from_chars(lower.data() + begin, lower.data() + lower.size(), length).ec != std::errc{} ||
      length > reply_cap) {
    throw no_reply(head, "its length is no number");
  }
  return length;
}

/// A connection of sshd's to a port of the guest; nothing when nobody listens there.
std::unique_ptr<ChannelHandle> connect(Session::State& session, int port, std::string_view line, const sys::Deadline& deadline) {
  LIBSSH2_CHANNEL* channel = nullptr;
  const auto rc = session.drive(doing, deadline, [&]() -> long {
    channel = libssh2_channel_direct_tcpip_ex(session.ssh, loopback, port, loopback, 0);
    return channel != nullptr ? 0 : libssh2_session_last_errno(session.ssh);
  });
  if (rc == 0) {
    return std::make_unique<ChannelHandle>(session, channel, line);
  }
  if (rc != LIBSSH2_ERROR_CHANNEL_FAILURE) {
    session.fail(doing, rc);
  }
  // libssh2 tells the server's reason only in words, and misspells them in some versions.
  if (session.library_message().find("prohibited") == std::string::npos) {
    return nullptr;
  }
  throw Error(ErrorKind::failed, "guest-forwarding-refused", "the guest's sshd forwards no connections, so its servers cannot be asked")
      .fix("set AllowTcpForwarding yes in the guest's sshd_config");
}

}  // namespace

std::optional<HttpReply> http_reply(std::string_view received, bool closed) {
  const auto end = received.find("\r\n\r\n");
  if (end == received.npos) {
    if (closed) {
      throw no_reply(received, "its head ends too early");
    }
    return std::nullopt;
  }
  const auto head = received.substr(0, end), body = received.substr(end + 4);
  HttpReply reply;
  const auto blank = std::min(head.find(' '), head.size() - 1);
  if (!head.starts_with("HTTP/1.") || std::from_chars(head.data() + blank + 1, head.data() + head.size(), reply.status).ec != std::errc{}) {
    throw no_reply(received, "it begins with other words");
  }
  const auto length = length_in(head);
  if (length && body.size() >= *length) {
    reply.body = body.substr(0, *length);
    return reply;
  }
  if (!closed) {
    return std::nullopt;
  }
  if (length) {
    throw no_reply(received, fmt::format("{} of {} bytes came", body.size(), *length));
  }
  reply.body = body;
  return reply;
}

std::optional<HttpReply> http(Session& session, int port, std::string_view path, std::string_view body, const sys::Deadline& deadline) {
  auto& state = *session.state_;
  const std::string method = body.empty() ? "GET" : "POST";
  const std::string line = fmt::format("{} http://{}:{}{}", method, loopback, port, path);
  const auto channel = connect(state, port, line, deadline);
  if (!channel) {
    return std::nullopt;
  }
  const std::string request = fmt::format("{} {} HTTP/1.0\r\nHost: {}:{}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{}",
                                          method, path, loopback, port, body.size(), body);
  // No end-of-file behind it: some servers take that for a client who has gone.
  std::string_view rest = request;
  const ExecOptions keep{.output_cap = reply_cap};
  state.expect_answer();
  for (;;) {
    const auto sent = rest.empty() ? 0 : channel->feed(rest, deadline);
    rest.remove_prefix(sent);
    const bool got = channel->drain(keep, deadline);
    if (channel->cut) {
      state.fail(doing, LIBSSH2_ERROR_SOCKET_DISCONNECT);
    }
    if (auto reply = http_reply(channel->result.out, channel->at_end())) {
      state.drive(doing, deadline, [&]() -> long { return libssh2_channel_close(channel->channel); });
      return reply;
    }
    if (sent == 0 && !got) {
      state.wait(doing, deadline);
    }
  }
}

}  // namespace lumelift
