#include "host/sys/terminal.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <utility>

namespace lumelift::sys {
namespace {

// What a handler can reach; lock-free.
std::atomic<int> relay_write{-1};
static_assert(std::atomic<int>::is_always_lock_free);

extern "C" void lumelift_relay_signal(int signal) {
  const int saved_errno = errno;
  const auto byte = static_cast<unsigned char>(signal);
  [[maybe_unused]] const auto ignored = ::write(relay_write.load(), &byte, 1);
  errno = saved_errno;
}

constexpr std::array relayed{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH};

constexpr std::array<std::pair<int, const char*>, 13> names{{{SIGHUP, "HUP"},
                                                             {SIGINT, "INT"},
                                                             {SIGQUIT, "QUIT"},
                                                             {SIGILL, "ILL"},
                                                             {SIGABRT, "ABRT"},
                                                             {SIGFPE, "FPE"},
                                                             {SIGKILL, "KILL"},
                                                             {SIGUSR1, "USR1"},
                                                             {SIGSEGV, "SEGV"},
                                                             {SIGUSR2, "USR2"},
                                                             {SIGPIPE, "PIPE"},
                                                             {SIGALRM, "ALRM"},
                                                             {SIGTERM, "TERM"}}};

}  // namespace

std::optional<WindowSize> window_size(int fd) {
  ::winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return std::nullopt;
  return WindowSize{size.ws_col, size.ws_row};
}

RawTerminal::RawTerminal(int fd) : fd_(fd) {
  ::termios now{};
  if (::tcgetattr(fd, &now) != 0) return;
  before_ = now;
  ::cfmakeraw(&now);
  ::tcsetattr(fd, TCSADRAIN, &now);
}

RawTerminal::~RawTerminal() {
  if (before_) ::tcsetattr(fd_, TCSADRAIN, &*before_);
}

SignalRelay::SignalRelay() : pipe_(make_pipe()) {
  ::fcntl(pipe_.read.get(), F_SETFL, O_NONBLOCK);
  ::fcntl(pipe_.write.get(), F_SETFL, O_NONBLOCK);
  relay_write = pipe_.write.get();
  for (const int signal : relayed) {
    struct ::sigaction former {};
    // What was ignored when we were started (nohup) stays so.
    if (::sigaction(signal, nullptr, &former) != 0 || former.sa_handler == SIG_IGN) continue;
    struct ::sigaction action {};
    action.sa_handler = lumelift_relay_signal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    ::sigaction(signal, &action, nullptr);
    former_.push_back({signal, former});
  }
}

SignalRelay::~SignalRelay() {
  for (const auto& [signal, action] : former_) ::sigaction(signal, &action, nullptr);
  relay_write = -1;
}

std::vector<int> SignalRelay::take() {
  std::vector<int> out;
  unsigned char byte = 0;
  while (::read(pipe_.read.get(), &byte, 1) == 1) out.push_back(byte);
  return out;
}

std::optional<std::string> signal_name(int signal) {
  for (const auto& [number, name] : names) {
    if (number == signal) return name;
  }
  return std::nullopt;
}

std::optional<int> signal_number(const std::string& name) {
  for (const auto& [number, known] : names) {
    if (name == known) return number;
  }
  return std::nullopt;
}

}  // namespace lumelift::sys
