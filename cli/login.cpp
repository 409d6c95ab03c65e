#include "cli/login.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "host/sys/error.hpp"
#include "host/sys/file.hpp"

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

/// Terminal echo off for as long as this lives.
class Silence {
 public:
  Silence() {
    ::tcgetattr(STDIN_FILENO, &former_);
    termios quiet = former_;
    quiet.c_lflag &= ~static_cast<tcflag_t>(ECHO);
    ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &quiet);
  }
  ~Silence() { ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &former_); }
  Silence(const Silence&) = delete;
  Silence& operator=(const Silence&) = delete;

 private:
  termios former_{};
};

sys::Secret from_prompt(const std::string& user) {
  const std::string prompt = fmt::format("Password of {} in the guest: ", user);
  (void)!::write(STDERR_FILENO, prompt.data(), prompt.size());
  std::string text;
  {
    const Silence silence;
    char c = 0;
    while (::read(STDIN_FILENO, &c, 1) == 1 && c != '\n' && text.size() < password_cap) {
      text += c;
    }
  }
  (void)!::write(STDERR_FILENO, "\n", 1);
  return without_newline(std::move(text));
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
    if (fs::exists(key, fault)) {
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
