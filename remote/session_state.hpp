#pragma once

#include <poll.h>

#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "remote/session.hpp"

struct _LIBSSH2_CHANNEL;
struct _LIBSSH2_SFTP;
struct _LIBSSH2_SFTP_HANDLE;

namespace lumelift {

/// The inside of a Session, shared by the sources that drive libssh2 and by nobody else. Owns the route and the libssh2
/// session. Everything is non-blocking; wait() is the only place that sleeps.
struct Session::State {
  using Clock = std::chrono::steady_clock;
  using Call = std::function<long()>;

  explicit State(Route way);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// Repeats `call` until it no longer has to wait; returns what it returned.
  long drive(const char* doing, const sys::Deadline& deadline, const Call& call);
  /// Repeats `call` only while a packet of its own is half sent (libssh2 takes no other packet before that one is out), so
  /// it may return LIBSSH2_ERROR_EAGAIN.
  long attempt(const char* doing, const sys::Deadline& deadline, const Call& call);
  /// Sleeps until the socket can go on. Throws "guest-timeout", "guest-lost" after 15 s of silence, Interrupted.
  void wait(const char* doing, const sys::Deadline& deadline);
  /// One sleep of at most `limit`: true when the socket or one of `others` is ready. Throws as wait().
  bool sleep(const char* doing, const sys::Deadline& deadline, sys::Milliseconds limit, std::span<pollfd> others = {});
  /// An answer is due from now on: silence is counted from here.
  void expect_answer() { quiet_since = Clock::now(); }
  /// True when `rc` says that the connection is gone; nothing is sent on it any more.
  bool lost(long rc);
  /// Throws the Error that fits the result `rc` of libssh2.
  [[noreturn]] void fail(const char* doing, long rc);
  [[nodiscard]] std::string library_message() const;

  Route route;
  _LIBSSH2_SESSION* ssh = nullptr;
  std::string host_key, host_key_kind, login_method;
  std::vector<Algorithm> algorithms;
  Observer observer;

  bool dead = false;           ///< no byte goes in or out any more
  bool authenticated = false;  ///< keepalives are allowed
  bool send_blocked = false;   ///< a packet is half sent
  Clock::time_point quiet_since = Clock::now();
  Clock::time_point interrupted_since{};
  int io_error = 0;      ///< errno of the last failed send or receive; 0 for an orderly end
  std::string greeting;  ///< the first bytes of the peer, kept until the keys are exchanged
  bool keep_greeting = true;
  std::string farewell;                 ///< the peer's disconnect message
  const sys::Secret* answer = nullptr;  ///< for one keyboard-interactive prompt
  /// Files that could not be closed in time. libssh2 does not free them, nor what was on its way to them, with the session.
  struct OpenFile {
    _LIBSSH2_SFTP* sftp;
    _LIBSSH2_SFTP_HANDLE* handle;  ///< null: closed already
  };
  std::vector<OpenFile> open_files;
};

/// An open channel and what it has said so far. Frees the channel without waiting.
struct ChannelHandle {
  ChannelHandle(Session::State& owner, _LIBSSH2_CHANNEL* open, std::string_view line) : session(owner), channel(open), command(line) {}
  ~ChannelHandle();
  ChannelHandle(const ChannelHandle&) = delete;
  ChannelHandle& operator=(const ChannelHandle&) = delete;

  /// Opens a channel for `command`, which is not started yet.
  static std::unique_ptr<ChannelHandle> open(Session::State& session, std::string_view command, const sys::Deadline& deadline);
  void startup(const sys::Deadline& deadline);
  /// Both in one.
  static std::unique_ptr<ChannelHandle> start(Session::State& session, std::string_view command, const sys::Deadline& deadline);
  /// Takes what has arrived on both streams; true when something had.
  bool drain(const ExecOptions& options, const sys::Deadline& deadline);
  /// Sends a piece of `input`; returns how much went. 0 when the guest takes nothing now.
  std::size_t feed(std::string_view input, const sys::Deadline& deadline);
  [[nodiscard]] bool at_end() const;
  /// Sends end-of-file, drains, waits for the end.
  void finish(const ExecOptions& options, const sys::Deadline& deadline);
  /// Notes how the command ended; for a closed channel.
  void take_ending();

  Session::State& session;
  _LIBSSH2_CHANNEL* channel;
  std::string command;
  sys::Stopwatch watch;
  ExecResult result;
  bool cut = false;  ///< the connection ended under it
};

}  // namespace lumelift
