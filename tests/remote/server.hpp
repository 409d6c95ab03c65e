#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "host/sys/error.hpp"
#include "remote/session.hpp"

namespace lumelift::test {

namespace fs = std::filesystem;

/// A folder of this test's own, removed at the end.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  [[nodiscard]] const fs::path& path() const { return path_; }
  fs::path write(const std::string& name, std::string_view content, unsigned mode = 0600) const;

 private:
  fs::path path_;
};

/// One server process on a free loopback port, with a home of its own. Killed, with its children, at the end.
class Server {
 public:
  /// OpenSSH's sshd with our key and `lines` in front of its configuration.
  static Server openssh(const std::vector<std::string>& lines = {});
  /// tests/remote/odd_server.py with these arguments.
  static Server odd(const std::vector<std::string>& arguments);
  ~Server();
  Server(Server&& other) noexcept;

  [[nodiscard]] int port() const { return port_; }
  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] const fs::path& home() const { return folder_->path(); }
  [[nodiscard]] fs::path key() const { return folder_->path() / "user_key"; }
  [[nodiscard]] std::string user() const;
  /// Credentials with our key.
  [[nodiscard]] Credentials login() const;
  /// A session as far as the key exchange.
  [[nodiscard]] Session greet(std::string_view host_key = {}) const;
  /// A connected session; authenticated with our key.
  [[nodiscard]] Session connect() const;
  [[nodiscard]] Session connect(const Credentials& credentials) const;

 private:
  Server() = default;
  void start(const std::vector<std::string>& argv);
  std::unique_ptr<TempFolder> folder_;
  pid_t pid_ = -1;
  int port_ = 0;
};

/// A running guest of the rehearsal lab. Taken down at the end.
class LabGuest {
 public:
  /// `options`: a JSON object of the lab's VM options.
  explicit LabGuest(const std::string& options = "{}");
  ~LabGuest();
  LabGuest(const LabGuest&) = delete;
  LabGuest& operator=(const LabGuest&) = delete;

  [[nodiscard]] Session connect() const;
  /// The same over a way of the test's own, which begins with dial().
  [[nodiscard]] Session connect(Route route) const;
  [[nodiscard]] sys::Fd dial() const;
  /// The guest's home folder, as host and guest alike name it.
  [[nodiscard]] const std::string& home() const { return home_; }
  /// Where the guest's absolute tool names lead.
  [[nodiscard]] const std::string& root() const { return root_; }
  /// Adds a fault: words of `lab fault DIR …`.
  void fault(const std::vector<std::string>& words) const;

 private:
  TempFolder folder_;
  std::string address_, port_, key_, home_, root_;
};

/// The id of the Error that `action` throws, or "none".
template <class Action>
std::string error_id(Action action);
/// Message, details and fix of the Error that `action` throws, joined by newlines.
template <class Action>
std::string error_text(Action action);

std::string joined(const Error& error);

template <class Action>
std::string error_id(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.id();
  }
  return "none";
}

template <class Action>
std::string error_text(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return joined(error);
  }
  return "none";
}

/// Runs a program of this host and returns what it printed; fails the test when it fails.
std::string host_run(const std::vector<std::string>& argv, const std::string& input = {});

}  // namespace lumelift::test
