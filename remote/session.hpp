#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "host/sys/fd.hpp"
#include "host/sys/file.hpp"
#include "host/sys/process.hpp"
#include "host/sys/secret.hpp"
#include "host/sys/time.hpp"

struct _LIBSSH2_SESSION;

namespace lumelift {

struct Interaction;
struct HttpReply;

/// A way to the guest: a socket, and the program that carries its bytes where it is not the network's own.
struct Route {
  Route(sys::Fd connected) : socket(std::move(connected)) {}
  Route(sys::Fd near_end, std::unique_ptr<sys::Companion> program) : socket(std::move(near_end)), carrier(std::move(program)) {}
  sys::Fd socket;
  std::unique_ptr<sys::Companion> carrier = {};
};

/// Connects to host:port. One try of at most 5 s (a first SYN can be swallowed). Throws Error, each its own id:
/// "guest-refused" (connection refused), "guest-silent" (no answer), "guest-blocked" (this Mac's Local Network privacy keeps us
/// from a network that it is on: EHOSTUNREACH, while the system's own nc gets through), "guest-unreachable" (others).
[[nodiscard]] sys::Fd connect_tcp(const std::string& host, int port, const sys::Deadline& deadline);

/// The same by the system's nc, which Local Network privacy lets pass. Returns before it is known whether the guest answers:
/// the key exchange then fails with "guest-refused", "guest-silent" or "guest-unreachable". Throws "host-tool-missing".
[[nodiscard]] Route connect_nc(const std::string& host, int port);

/// What we may log in with; tried in the order agent (at most two keys, those of the named files first), key file, default
/// keys, password, keyboard-interactive, each once.
struct Credentials {
  std::string user;
  std::optional<sys::Secret> password = {};
  std::optional<sys::fs::path> key_file = {};
  std::optional<sys::Secret> passphrase = {};
  bool use_agent = false;
  std::vector<sys::fs::path> default_keys = {};  ///< tried silently when they exist
};

/// How a remote command ended. Exactly one of status and signal is set, or neither: the connection ended first.
struct ExecResult {
  std::optional<int> status;
  std::string signal;  ///< "TERM" and the like; empty when it was not a signal
  std::string out, err;
  bool truncated = false;

  [[nodiscard]] bool ok() const { return status == 0; }
  /// "exit status 3", "signal TERM", "connection lost before an exit status".
  [[nodiscard]] std::string ending() const;
};

/// One kind of algorithm ("key exchange", "host key", "cipher", "message authentication"): what was agreed on, and both
/// lists, comma-separated. From the guest to us where the directions differ.
struct Algorithm {
  std::string what, chosen, ours, theirs;
};

struct ExecOptions {
  std::string_view input = {};
  std::size_t output_cap = 4u << 20;  ///< bytes kept of each stream; the rest is drained
  /// Called with each piece as it comes instead of collecting it; `is_err` tells the stream.
  std::function<void(std::string_view piece, bool is_err)> on_output = {};
};

/// One SSH connection to one guest, not authenticated until authenticate() returns. Owns the socket and the libssh2
/// session, non-blocking inside with our own poll; one thread. Move-only. Never reconnects. Every call takes a deadline and
/// also fails ("guest-lost") when the peer is silent for 15 s while an answer is due; closing never blocks.
/// Throws Error: "guest-lost", "guest-timeout", "guest-kex-mismatch" (names both algorithm lists), "guest-handshake" (reset
/// or garbage before the key exchange: worth a retry), "guest-auth-failed" (lists what was tried and what the server
/// offers), "guest-key-unusable" (names file and reason), "guest-protocol" (the server refused a channel or a command).
/// Throws sys::Interrupted. A connection that ends while a command runs is not an Error: ExecResult says it.
class Session {
 public:
  /// Key exchange on a connected route. Of the server's host keys the one of `preferred_key` ("ssh-ed25519") is asked for
  /// where it has one.
  Session(Route route, const sys::Deadline& deadline, std::string_view preferred_key = {});
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;

  /// "SHA256:…" as ssh-keygen -l prints it. Compare with the pin before authenticate(), so that a stranger gets no password.
  [[nodiscard]] const std::string& host_key() const;
  /// "ssh-ed25519".
  [[nodiscard]] const std::string& host_key_kind() const;
  [[nodiscard]] const std::vector<Algorithm>& algorithms() const;
  /// A server that ends the connection after too many tries gets, at most twice, the connection that `again` makes, which
  /// then takes this one's place; only what the user named is tried on it, where he named something.
  void authenticate(const Credentials& credentials, const sys::Deadline& deadline, const std::function<Session()>& again = {});
  /// "publickey (~/.ssh/id_ed25519)", "password": how authenticate() succeeded.
  [[nodiscard]] const std::string& login_method() const;

  /// Runs one command line in the guest's login shell. The line is built with quote() only.
  [[nodiscard]] ExecResult exec(std::string_view command, const sys::Deadline& deadline, const ExecOptions& options = {});

  /// Runs one command line with its streams passed on as they come, for as long as it takes: there is no deadline but the 15 s
  /// in which the guest must show a sign of life. `deadline` is for its start. A signal ends nothing while a relay takes it.
  [[nodiscard]] ExecResult interact(std::string_view command, const Interaction& with, const sys::Deadline& deadline);

  /// Opens a channel for a program that is fed by write_all() and closed by finish(); for transfers.
  class Channel;
  [[nodiscard]] std::unique_ptr<Channel> open_exec(std::string_view command, const sys::Deadline& deadline);

  /// Called after every exec with the command, how it ended and how long it took; for --verbose.
  using Observer = std::function<void(std::string_view command, const ExecResult&, sys::Milliseconds)>;
  void observe(Observer observer);

  struct State;  ///< the inside, known to the sources of this folder only

 private:
  std::unique_ptr<State> state_;
  friend class Transfer;
  friend class SftpFile;
  friend std::optional<HttpReply> http(Session&, int, std::string_view, std::string_view, const sys::Deadline&);
};

/// A remote program being fed. Not thread-safe; lives no longer than its Session.
class Session::Channel {
 public:
  Channel(State& session, std::unique_ptr<struct ChannelHandle> handle);
  ~Channel();
  /// Writes all of `bytes`; the deadline is renewed by progress: it fails when nothing moved for 15 s. Throws as Session.
  void write_all(std::span<const std::byte> bytes);
  /// Waits until the program's standard output holds `text`; false when it ended without. Throws as Session.
  [[nodiscard]] bool await(std::string_view text, const sys::Deadline& deadline);
  /// What the program has printed so far, without waiting.
  [[nodiscard]] std::string_view output();
  /// Waits at most `limit` for the program, or another channel of this session, to say something. Throws as Session.
  void await_output(sys::Milliseconds limit);
  /// True when the program ended before it took all input; further writes do nothing.
  [[nodiscard]] bool ended() const;
  /// Sends end-of-file, drains output, waits for the end.
  [[nodiscard]] ExecResult finish(const sys::Deadline& deadline);

 private:
  State& session_;
  std::unique_ptr<struct ChannelHandle> handle_;
};

}  // namespace lumelift
