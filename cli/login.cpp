#include "cli/login.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>

#include "host/sys/error.hpp"
#include "host/sys/file.hpp"
#include "host/sys/time.hpp"

namespace lumelift {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t password_cap = 4096;

Error unreadable(const std::string& why) {
  return Error(ErrorKind::usage, "password-unreadable", "the password cannot be read: " + why);
}

sys::Secret without_newline(std::string text) {
  if (text.ends_with('\n')) {
    text.pop_back();
  }
  if (text.ends_with('\r')) {
    text.pop_back();
  }
  if (text.empty()) {
    throw unreadable("it is empty");
  }
  if (text.find('\0') != std::string::npos) {
    throw unreadable("it holds a NUL byte");
  }
  return sys::Secret(std::move(text));
}

sys::Secret from_descriptor(int fd) {
  std::string text;
  std::array<char, 512> piece{};
  for (;;) {
    const ssize_t n = ::read(fd, piece.data(), piece.size());
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0) {
      throw unreadable(fmt::format("descriptor {} is not open for reading", fd));
    }
    if (n == 0) {
      break;
    }
    text.append(piece.data(), static_cast<std::size_t>(n));
    if (text.size() > password_cap) {
      throw unreadable(fmt::format("descriptor {} gave more than {} bytes", fd, password_cap));
    }
  }
  return without_newline(std::move(text));
}

sys::Secret from_file(const fs::path& file) {
  struct ::stat info {};
  if (::stat(file.c_str(), &info) == 0 && S_ISREG(info.st_mode) && (info.st_mode & 0077) != 0) {
    throw Error(ErrorKind::usage, "password-file-open",
                fmt::format("'{}' can be read by others (mode {:04o})", file.string(), info.st_mode & 07777))
        .fix(fmt::format("chmod 600 {}", file.string()));
  }
  return without_newline(sys::read_file(file, password_cap));
}

/// Terminal echo off for as long as this lives. What was typed before stays to be read.
class Silence {
 public:
  Silence() {
    ::tcgetattr(STDIN_FILENO, &former_);
    termios quiet = former_;
    quiet.c_lflag &= ~static_cast<tcflag_t>(ECHO);
    // Keys that would end or stop us at once leave the terminal silent.
    quiet.c_cc[VQUIT] = quiet.c_cc[VSUSP] = _POSIX_VDISABLE;
    ::tcsetattr(STDIN_FILENO, TCSANOW, &quiet);
  }
  ~Silence() { ::tcsetattr(STDIN_FILENO, TCSANOW, &former_); }
  Silence(const Silence&) = delete;
  Silence& operator=(const Silence&) = delete;

 private:
  termios former_{};
};

void show(std::string_view text) {
  (void)!::write(STDERR_FILENO, text.data(), text.size());
}

/// Throws Interrupted.
std::string typed_line() {
  std::string text;
  for (char c = 0; text.size() < password_cap;) {
    std::array<pollfd, 2> ready{pollfd{STDIN_FILENO, POLLIN, 0}, pollfd{sys::interrupt_fd(), POLLIN, 0}};
    (void)::poll(ready.data(), ready.size(), -1);
    sys::check_interrupt();
    if (ready[0].revents == 0) {
      continue;
    }
    const ssize_t n = ::read(STDIN_FILENO, &c, 1);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n != 1 || c == '\n') {
      break;
    }
    text += c;
  }
  return text;
}

sys::Secret from_prompt(const std::string& user) {
  // Whoever sees the prompt may type already.
  const Silence silence;
  show(fmt::format("Password of {} in the guest: ", user));
  try {
    std::string text = typed_line();
    show("\n");
    return without_newline(std::move(text));
  } catch (const sys::Interrupted&) {
    show("\n");
    throw;
  }
}

}  // namespace

LoginOptions resolve_login(const LoginSources& sources, const fs::path& home, const fs::path& own_key) {
  LoginOptions login;
  login.user = sources.user;
  login.port = sources.port;
  login.key_file = sources.key_file;
  login.use_agent = sources.use_agent;
  login.via_nc = sources.via_nc;
  if (sources.passphrase_env) {
    login.passphrase = sys::Secret(*sources.passphrase_env);
  }
  for (const fs::path& key : {own_key, home / ".ssh" / "id_ed25519", home / ".ssh" / "id_ecdsa"}) {
    std::error_code fault;
    // Without a home those two would be files of whatever folder we were started in.
    if ((key == own_key || !home.empty()) && fs::exists(key, fault)) {
      login.default_keys.push_back(key);
    }
  }
  const bool terminal = ::isatty(STDIN_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1;
  const bool nothing_else = !sources.key_file && !sources.use_agent && login.default_keys.empty();
  if (sources.password_fd) {
    login.password = from_descriptor(*sources.password_fd);
  } else if (sources.password_file) {
    login.password = from_file(*sources.password_file);
  } else if (sources.password_env) {
    login.password = without_newline(*sources.password_env);
  } else if (terminal && (sources.ask_password || (sources.may_ask && nothing_else))) {
    login.password = from_prompt(sources.user);
  } else if (sources.ask_password) {
    throw unreadable("--ask-password needs a terminal").fix("use --password-fd, --password-file or LUMELIFT_PASSWORD");
  }
  return login;
}

}  // namespace lumelift
