#include <fmt/format.h>
#include <libssh2.h>

#include <algorithm>
#include <array>

#include "host/sys/error.hpp"
#include "remote/session.hpp"
#include "remote/session_state.hpp"

namespace lumelift {
namespace {

using namespace std::chrono_literals;

// libssh2 sends a request as one packet and takes no larger one.
constexpr std::size_t command_limit = 30'000;
constexpr sys::Milliseconds place_patience{1'000};
constexpr auto doing = "run a command in the guest";

void keep(std::string& stream, std::string_view piece, std::size_t cap, bool& truncated) {
  const auto room = cap - std::min(cap, stream.size());
  stream.append(piece.substr(0, room));
  truncated = truncated || piece.size() > room;
}

}  // namespace

std::string ExecResult::ending() const {
  if (status) {
    return fmt::format("exit status {}", *status);
  }
  if (!signal.empty()) {
    return "signal " + signal;
  }
  return "connection lost before an exit status";
}

ChannelHandle::~ChannelHandle() {
  // One try: what cannot be sent now is freed with the session.
  if (!session.send_blocked) {
    libssh2_channel_free(channel);
  }
}

std::unique_ptr<ChannelHandle> ChannelHandle::open(Session::State& session, std::string_view command, const sys::Deadline& deadline) {
  if (command.size() > command_limit) {
    throw Error(ErrorKind::usage, "command-too-long",
                fmt::format("a command line for the guest has {} bytes; at most {} can be sent", command.size(), command_limit));
  }
  if (session.dead) {
    throw Error(ErrorKind::failed, "guest-lost", fmt::format("{}: the connection has ended before", doing));
  }
  LIBSSH2_CHANNEL* channel = nullptr;
  const auto open_one = [&] {
    return session.drive(doing, deadline, [&]() -> long {
      channel = libssh2_channel_open_session(session.ssh);
      return channel != nullptr ? 0 : libssh2_session_last_errno(session.ssh);
    });
  };
  auto opened = open_one();
  // Where one channel is allowed, the former one's place is free only a moment after its end.
  for (const sys::Stopwatch refused; opened == LIBSSH2_ERROR_CHANNEL_FAILURE && !session.dead && refused.elapsed() < place_patience;) {
    sys::pause(20ms, deadline);
    opened = open_one();
  }
  if (opened == LIBSSH2_ERROR_CHANNEL_FAILURE && !session.dead) {
    throw Error(ErrorKind::failed, "guest-protocol", fmt::format("{}: the server opens no further channel on this connection", doing))
        .note("its limit is MaxSessions in sshd_config; lumelift needs two at a time while it runs a program");
  }
  if (opened != 0) {
    session.fail(doing, opened);
  }
  return std::make_unique<ChannelHandle>(session, channel, command);
}

void ChannelHandle::startup(const sys::Deadline& deadline) {
  const auto started = session.drive(doing, deadline, [&]() -> long {
    return libssh2_channel_process_startup(channel, "exec", 4, command.data(), static_cast<unsigned>(command.size()));
  });
  if (started != 0) {
    session.fail(doing, started);
  }
}

std::unique_ptr<ChannelHandle> ChannelHandle::start(Session::State& session, std::string_view command, const sys::Deadline& deadline) {
  auto handle = open(session, command, deadline);
  handle->startup(deadline);
  return handle;
}

bool ChannelHandle::drain(const ExecOptions& options, const sys::Deadline& deadline) {
  std::array<char, 64u << 10> buffer;
  bool moved = false;
  for (const int stream : {0, SSH_EXTENDED_DATA_STDERR}) {
    const auto got =
        session.attempt(doing, deadline, [&]() -> long { return libssh2_channel_read_ex(channel, stream, buffer.data(), buffer.size()); });
    if (got == LIBSSH2_ERROR_EAGAIN || got == 0) {
      continue;
    }
    if (got < 0) {
      if (!session.lost(got)) {
        session.fail(doing, got);
      }
      cut = true;
      return moved;
    }
    moved = true;
    const std::string_view piece(buffer.data(), static_cast<std::size_t>(got));
    if (options.on_output) {
      options.on_output(piece, stream != 0);
    } else {
      keep(stream == 0 ? result.out : result.err, piece, options.output_cap, result.truncated);
    }
  }
  return moved;
}

std::size_t ChannelHandle::feed(std::string_view input, const sys::Deadline& deadline) {
  const auto sent =
      session.attempt(doing, deadline, [&]() -> long { return libssh2_channel_write_ex(channel, 0, input.data(), input.size()); });
  if (sent >= 0) {
    return static_cast<std::size_t>(sent);
  }
  if (sent == LIBSSH2_ERROR_EAGAIN || at_end()) {
    return 0;
  }
  if (!session.lost(sent)) {
    session.fail(doing, sent);
  }
  cut = true;
  return 0;
}

bool ChannelHandle::at_end() const {
  return cut || libssh2_channel_eof(channel) == 1;
}

void ChannelHandle::finish(const ExecOptions& options, const sys::Deadline& deadline) {
  session.expect_answer();
  auto input = options.input;
  bool input_closed = false;
  while (!cut) {
    bool moved = false;
    if (!input.empty()) {
      const auto sent = feed(input, deadline);
      input.remove_prefix(sent);
      moved = sent > 0;
    }
    if (input.empty() && !input_closed && !cut) {
      const auto rc = session.attempt(doing, deadline, [&]() -> long { return libssh2_channel_send_eof(channel); });
      if (rc < 0 && rc != LIBSSH2_ERROR_EAGAIN && session.lost(rc)) {
        cut = true;
      }
      input_closed = rc != LIBSSH2_ERROR_EAGAIN;
    }
    moved = drain(options, deadline) || moved;
    if (moved) {
      continue;
    }
    if (at_end()) {
      break;
    }
    session.wait(doing, deadline);
  }
  if (!cut) {
    const auto rc = session.drive(doing, deadline, [&]() -> long { return libssh2_channel_wait_closed(channel); });
    cut = rc < 0 && session.lost(rc);
  }
  take_ending();
}

void ChannelHandle::take_ending() {
  char* signal = nullptr;
  std::size_t length = 0;
  libssh2_channel_get_exit_signal(channel, &signal, &length, nullptr, nullptr, nullptr, nullptr);
  if (signal != nullptr) {
    result.signal.assign(signal, length);
    libssh2_free(session.ssh, signal);
  } else if (!cut) {
    result.status = libssh2_channel_get_exit_status(channel);
  }
}

ExecResult Session::exec(std::string_view command, const sys::Deadline& deadline, const ExecOptions& options) {
  const auto handle = ChannelHandle::start(*state_, command, deadline);
  handle->finish(options, deadline);
  if (state_->observer) {
    state_->observer(command, handle->result, handle->watch.elapsed());
  }
  return std::move(handle->result);
}

std::unique_ptr<Session::Channel> Session::open_exec(std::string_view command, const sys::Deadline& deadline) {
  return std::make_unique<Channel>(*state_, ChannelHandle::start(*state_, command, deadline));
}

Session::Channel::Channel(State& session, std::unique_ptr<ChannelHandle> handle) : session_(session), handle_(std::move(handle)) {}
Session::Channel::~Channel() = default;

void Session::Channel::write_all(std::span<const std::byte> bytes) {
  std::string_view rest(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  auto deadline = sys::Deadline::in(15s);
  session_.expect_answer();
  while (!rest.empty() && !ended()) {
    if (const auto sent = handle_->feed(rest, deadline); sent > 0) {
      rest.remove_prefix(sent);
      deadline = sys::Deadline::in(15s);
    } else if (!ended() && !handle_->drain({}, deadline) && !ended()) {
      session_.wait("send data to the guest", deadline);
    }
    sys::check_interrupt();
  }
}

bool Session::Channel::await(std::string_view text, const sys::Deadline& deadline) {
  session_.expect_answer();
  while (handle_->result.out.find(text) == std::string::npos) {
    if (handle_->drain({}, deadline)) {
      continue;
    }
    if (ended()) {
      return false;
    }
    session_.wait(doing, deadline);
  }
  return true;
}

std::string_view Session::Channel::output() {
  while (!ended() && handle_->drain({}, sys::Deadline::in(15s))) {
  }
  return handle_->result.out;
}

void Session::Channel::await_output(sys::Milliseconds limit) {
  (void)session_.sleep(doing, sys::Deadline::in(limit + 1s), limit);
}

bool Session::Channel::ended() const {
  return handle_->at_end();
}

ExecResult Session::Channel::finish(const sys::Deadline& deadline) {
  handle_->finish({}, deadline);
  if (session_.observer) {
    session_.observer(handle_->command, handle_->result, handle_->watch.elapsed());
  }
  return std::move(handle_->result);
}

}  // namespace lumelift
