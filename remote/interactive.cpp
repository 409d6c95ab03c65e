#include "remote/interactive.hpp"

#include <libssh2.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "host/sys/error.hpp"
#include "remote/session.hpp"
#include "remote/session_state.hpp"

namespace lumelift {
namespace {

using namespace std::chrono_literals;
constexpr auto doing = "run a command in the guest";
constexpr std::size_t piece_size = 32u << 10;

/// One command with live streams, from the terminal request to its end.
class Dialogue {
 public:
  Dialogue(ChannelHandle& handle, const Interaction& with) : handle_(handle), session_(handle.session), with_(with) {
    output_.on_output = with.on_output;
    input_open_ = with.input >= 0;
  }

  void ask_for_terminal(const sys::Deadline& deadline) {
    const auto& wanted = *with_.terminal;
    const auto rc = session_.drive(doing, deadline, [&]() -> long {
      return libssh2_channel_request_pty_ex(handle_.channel, wanted.type.data(), static_cast<unsigned>(wanted.type.size()), nullptr, 0,
                                            wanted.size.columns, wanted.size.rows, 0, 0);
    });
    if (rc != 0) {
      session_.fail("get a terminal in the guest", rc);
    }
  }

  void converse() {
    session_.expect_answer();
    while (!handle_.cut) {
      look_up();
      const bool sent = forward();
      const bool got = handle_.drain(output_, alive());
      if (sent || got || handle_.cut) {
        continue;
      }
      if (handle_.at_end() && closed()) {
        break;
      }
      rest();
    }
    handle_.take_ending();
  }

 private:
  /// Every step is short; only the whole has no limit.
  static sys::Deadline alive() { return sys::Deadline::in(15s); }

  void look_up() {
    if (!with_.on_wake || (!woken_ && since_wake_.elapsed() < with_.every)) {
      return;
    }
    woken_ = false;
    since_wake_ = sys::Stopwatch();
    const auto size = with_.on_wake();
    if (!size || !with_.terminal) {
      return;
    }
    session_.attempt(doing, alive(),
                     [&]() -> long { return libssh2_channel_request_pty_size_ex(handle_.channel, size->columns, size->rows, 0, 0); });
  }

  bool forward() {
    if (pending_.empty() && input_open_ && input_ready_) {
      fill();
    }
    if (!pending_.empty()) {
      const auto sent = handle_.feed(pending_, alive());
      pending_.erase(0, sent);
      return sent > 0;
    }
    if (!input_open_ && !told_end_) {
      const auto rc = session_.attempt(doing, alive(), [&]() -> long { return libssh2_channel_send_eof(handle_.channel); });
      if (rc < 0 && rc != LIBSSH2_ERROR_EAGAIN && session_.lost(rc)) {
        handle_.cut = true;
      }
      told_end_ = rc != LIBSSH2_ERROR_EAGAIN;
    }
    return false;
  }

  void fill() {
    input_ready_ = false;
    std::array<char, piece_size> buffer;
    const auto got = ::read(with_.input, buffer.data(), buffer.size());
    if (got > 0) {
      pending_.assign(buffer.data(), static_cast<std::size_t>(got));
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
      input_open_ = false;
    }
  }

  bool closed() {
    const auto rc = session_.attempt(doing, alive(), [&]() -> long { return libssh2_channel_wait_closed(handle_.channel); });
    if (rc == LIBSSH2_ERROR_EAGAIN) {
      return false;
    }
    handle_.cut = rc < 0 && session_.lost(rc);
    return true;
  }

  void rest() {
    // Whoever was kept from looking (a pager that reads no more, a stopped process) has not heard what the guest said.
    if (since_rest_.elapsed() > 5s) {
      session_.expect_answer();
    }
    const bool wants_input = input_open_ && pending_.empty();
    std::array<pollfd, 2> others{pollfd{wants_input ? with_.input : -1, POLLIN, 0}, pollfd{with_.wake, POLLIN, 0}};
    session_.sleep(doing, alive(), with_.every, others);
    input_ready_ = input_ready_ || others[0].revents != 0;
    woken_ = woken_ || others[1].revents != 0;
    since_rest_ = sys::Stopwatch();
  }

  ChannelHandle& handle_;
  Session::State& session_;
  const Interaction& with_;
  ExecOptions output_;
  std::string pending_;  ///< read, not sent
  bool input_open_ = false, input_ready_ = false, told_end_ = false, woken_ = false;
  sys::Stopwatch since_wake_, since_rest_;
};

}  // namespace

ExecResult Session::interact(std::string_view command, const Interaction& with, const sys::Deadline& deadline) {
  const auto handle = ChannelHandle::open(*state_, command, deadline);
  Dialogue dialogue(*handle, with);
  if (with.terminal) {
    dialogue.ask_for_terminal(deadline);
  }
  handle->startup(deadline);
  dialogue.converse();
  if (state_->observer) {
    state_->observer(command, handle->result, handle->watch.elapsed());
  }
  return std::move(handle->result);
}

}  // namespace lumelift
