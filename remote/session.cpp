#include "remote/session.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <libssh2.h>
#include <libssh2_sftp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "host/sys/error.hpp"
#include "remote/kex.hpp"
#include "remote/key_file.hpp"
#include "remote/session_state.hpp"

namespace lumelift {
namespace {

using namespace std::chrono_literals;

constexpr auto silence_limit = 15s;
constexpr auto half_sent_grace = 2s;
constexpr std::size_t greeting_cap = 16u << 10;

#ifdef MSG_NOSIGNAL
constexpr int send_flags = MSG_NOSIGNAL;
#else
constexpr int send_flags = 0;
#endif

Session::State& state_of(void** abstract) {
  return *static_cast<Session::State*>(*abstract);
}

ssize_t receive(libssh2_socket_t fd, void* buffer, std::size_t length, int, void** abstract) {
  auto& state = state_of(abstract);
  if (state.dead) {
    return 0;
  }
  const auto got = ::recv(fd, buffer, length, 0);
  if (got < 0) {
    if (errno == EINTR || errno == EWOULDBLOCK) {
      return -EAGAIN;
    }
    if (errno != EAGAIN) {
      state.io_error = errno;
    }
    return -errno;
  }
  if (got == 0) {
    return 0;
  }
  state.quiet_since = Session::State::Clock::now();
  if (state.keep_greeting && state.greeting.size() < greeting_cap) {
    state.greeting.append(static_cast<const char*>(buffer), std::min(static_cast<std::size_t>(got), greeting_cap - state.greeting.size()));
  }
  return got;
}

ssize_t transmit(libssh2_socket_t fd, const void* buffer, std::size_t length, int, void** abstract) {
  auto& state = state_of(abstract);
  if (state.dead) {
    return -EPIPE;
  }
  const auto sent = ::send(fd, buffer, length, send_flags);
  if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
    state.send_blocked = true;
    return -EAGAIN;
  }
  if (sent < 0) {
    state.io_error = errno;
    return -errno;
  }
  // While the peer takes nothing, our own bytes moving is the sign of life; otherwise only its bytes count.
  if (state.send_blocked) {
    state.quiet_since = Session::State::Clock::now();
  }
  state.send_blocked = static_cast<std::size_t>(sent) < length;
  return sent;
}

void disconnected(LIBSSH2_SESSION*, int, const char* message, int length, const char*, int, void** abstract) {
  if (message != nullptr && length > 0) {
    state_of(abstract).farewell.assign(message, static_cast<std::size_t>(std::min(length, 500)));
  }
}

void initialise_once() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (libssh2_init(0) != 0) {
      throw Error(ErrorKind::failed, "guest-protocol", "cannot initialise libssh2");
    }
  });
}

}  // namespace

Session::State::State(Route way) : route(std::move(way)) {
  initialise_once();
  ::fcntl(route.socket.get(), F_SETFL, ::fcntl(route.socket.get(), F_GETFL) | O_NONBLOCK);
  ssh = libssh2_session_init_ex(nullptr, nullptr, nullptr, this);
  if (ssh == nullptr) {
    throw Error(ErrorKind::failed, "guest-protocol", "no memory for an SSH session");
  }
  libssh2_session_set_blocking(ssh, 0);
  libssh2_session_callback_set(ssh, LIBSSH2_CALLBACK_RECV, reinterpret_cast<void*>(&receive));
  libssh2_session_callback_set(ssh, LIBSSH2_CALLBACK_SEND, reinterpret_cast<void*>(&transmit));
  libssh2_session_callback_set(ssh, LIBSSH2_CALLBACK_DISCONNECT, reinterpret_cast<void*>(&disconnected));
}

Session::State::~State() {
  if (!dead && !send_blocked) {
    libssh2_session_disconnect(ssh, "done");
  }
  // From here on the callbacks answer at once, so freeing cannot wait for a peer.
  dead = true;
  ::shutdown(route.socket.get(), SHUT_RDWR);
  for (const auto& file : open_files) {
    if (file.handle != nullptr) {
      libssh2_sftp_close_handle(file.handle);
    }
    libssh2_sftp_shutdown(file.sftp);
  }
  for (int i = 0; i < 100 && libssh2_session_free(ssh) == LIBSSH2_ERROR_EAGAIN; ++i) {
  }
}

bool Session::State::sleep(const char* doing, const sys::Deadline& deadline, sys::Milliseconds limit, std::span<pollfd> others) {
  // An interrupted wait must not leave a half-sent packet behind: the undo that follows uses this very connection.
  const bool finishing = send_blocked && (interrupted_since == Clock::time_point{} || Clock::now() - interrupted_since < half_sent_grace);
  if (!finishing) {
    if (send_blocked && sys::pending_signal() != 0) {
      dead = true;
    }
    sys::check_interrupt();
  }
  if (finishing && sys::pending_signal() != 0 && interrupted_since == Clock::time_point{}) {
    interrupted_since = Clock::now();
  }
  const auto silence = std::chrono::duration_cast<sys::Milliseconds>(Clock::now() - quiet_since);
  if (silence >= silence_limit) {
    dead = true;
    throw Error(ErrorKind::failed, "guest-lost", fmt::format("{}: the guest said nothing for 15 s", doing))
        .fix("see whether the VM still runs, then try again");
  }
  if (deadline.expired()) {
    dead = dead || send_blocked;
    throw Error(ErrorKind::failed, "guest-timeout", fmt::format("{}: no answer within the time allowed", doing));
  }
  auto span = std::min({deadline.left(), sys::Milliseconds(silence_limit) - silence, limit});
  if (authenticated && !send_blocked) {
    int next = 0;
    libssh2_keepalive_send(ssh, &next);
    span = std::min(span, sys::Milliseconds(std::max(next, 1) * 1000));
  }
  std::vector<pollfd> ready{pollfd{route.socket.get(), static_cast<short>(send_blocked ? POLLOUT : POLLIN), 0},
                            pollfd{finishing ? -1 : sys::interrupt_fd(), POLLIN, 0}};
  ready.insert(ready.end(), others.begin(), others.end());
  const int count = ::poll(ready.data(), static_cast<nfds_t>(ready.size()), static_cast<int>(std::max<long>(span.count(), 1)));
  std::copy(ready.begin() + 2, ready.end(), others.begin());
  return count > 0 &&
         (ready[0].revents != 0 || std::any_of(others.begin(), others.end(), [](const pollfd& fd) { return fd.revents != 0; }));
}

void Session::State::wait(const char* doing, const sys::Deadline& deadline) {
  while (!sleep(doing, deadline, sys::Milliseconds(5000))) {
  }
}

long Session::State::attempt(const char* doing, const sys::Deadline& deadline, const Call& call) {
  for (;;) {
    const long rc = call();
    if (rc != LIBSSH2_ERROR_EAGAIN || !send_blocked) {
      return rc;
    }
    wait(doing, deadline);
  }
}

long Session::State::drive(const char* doing, const sys::Deadline& deadline, const Call& call) {
  expect_answer();
  for (;;) {
    const long rc = call();
    if (rc != LIBSSH2_ERROR_EAGAIN) {
      return rc;
    }
    wait(doing, deadline);
  }
}

bool Session::State::lost(long rc) {
  switch (rc) {
    case LIBSSH2_ERROR_SOCKET_NONE:
    case LIBSSH2_ERROR_SOCKET_SEND:
    case LIBSSH2_ERROR_SOCKET_RECV:
    case LIBSSH2_ERROR_SOCKET_DISCONNECT:
    case LIBSSH2_ERROR_SOCKET_TIMEOUT:
      dead = true;
      return true;
    default:
      return dead;
  }
}

std::string Session::State::library_message() const {
  char* text = nullptr;
  libssh2_session_last_error(ssh, &text, nullptr, 0);
  return text == nullptr ? std::string{} : std::string(text);
}

void Session::State::fail(const char* doing, long rc) {
  if (lost(rc)) {
    Error error(ErrorKind::failed, "guest-lost",
                fmt::format("{}: the connection ended ({})", doing, io_error != 0 ? std::strerror(io_error) : "closed by the guest"));
    if (!farewell.empty()) {
      error.note("the server said: " + farewell);
    }
    throw error;
  }
  throw Error(ErrorKind::failed, "guest-protocol", fmt::format("{}: {} (libssh2 {})", doing, library_message(), rc));
}

Session::Session(Route route, const sys::Deadline& deadline, std::string_view preferred_key)
    : state_(std::make_unique<State>(std::move(route))) {
  auto& state = *state_;
  constexpr auto doing = "exchange SSH keys with the guest";
  prefer_host_key(state.ssh, preferred_key);
  long rc = 0;
  try {
    rc = state.drive(doing, deadline, [&] { return libssh2_session_handshake(state.ssh, state.route.socket.get()); });
  } catch (const Error& error) {
    if (error.id() != "guest-lost") {
      throw;
    }
    throw handshake_error(state, LIBSSH2_ERROR_SOCKET_TIMEOUT);
  }
  if (rc != 0) {
    throw handshake_error(state, rc);
  }
  state.algorithms = agreed_algorithms(state);
  state.host_key_kind = state.algorithms[1].chosen;
  state.keep_greeting = false;
  state.greeting = {};
  const char* hash = libssh2_hostkey_hash(state.ssh, LIBSSH2_HOSTKEY_HASH_SHA256);
  if (hash == nullptr) {
    throw handshake_error(state, LIBSSH2_ERROR_HOSTKEY_INIT);
  }
  state.host_key = "SHA256:" + base64({hash, 32});
}

Session::~Session() = default;
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;

const std::string& Session::host_key() const {
  return state_->host_key;
}
const std::string& Session::host_key_kind() const {
  return state_->host_key_kind;
}
const std::vector<Algorithm>& Session::algorithms() const {
  return state_->algorithms;
}
const std::string& Session::login_method() const {
  return state_->login_method;
}
void Session::observe(Observer observer) {
  state_->observer = std::move(observer);
}

}  // namespace lumelift
