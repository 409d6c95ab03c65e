#include "host/sys/process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "host/sys/children.hpp"
#include "host/sys/error.hpp"
#include "host/sys/fd.hpp"
#include "host/sys/platform.hpp"

extern char** environ;  // NOLINT: POSIX declares it nowhere

namespace lumelift::sys {
namespace {

/// A child that ignores SIGTERM is given this long before SIGKILL.
constexpr Milliseconds term_grace{2000};
/// How often an open stream is left to see whether the child has ended under it.
constexpr Milliseconds slice{20};
/// After the child's end its own output is already in the pipe; more can only come from a grandchild.
constexpr Milliseconds drain_grace{200};

RunObserver& observer_slot() {
  static RunObserver observer;
  return observer;
}

/// Our own environment with the command's additions, in a form that exec takes.
class Environment {
 public:
  explicit Environment(const std::vector<std::pair<std::string, std::string>>& additions) {
    for (const auto& [name, value] : additions) texts_.push_back(name + "=" + value);
    for (char* const* entry = environ; *entry != nullptr; ++entry) {
      const std::string_view text(*entry);
      const std::string_view name = text.substr(0, text.find('='));
      const bool replaced = std::any_of(additions.begin(), additions.end(), [&](const auto& addition) { return addition.first == name; });
      if (!replaced) texts_.emplace_back(text);
    }
    for (auto& text : texts_) pointers_.push_back(text.data());
    pointers_.push_back(nullptr);
  }
  [[nodiscard]] char** data() { return pointers_.data(); }

 private:
  std::vector<std::string> texts_;
  std::vector<char*> pointers_;
};

/// posix_spawn's two option objects, with the setup that every child of ours gets.
class SpawnSetup {
 public:
  SpawnSetup(int in, int out, int err) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawnattr_init(&attributes_);
    if (in < 0) {
      posix_spawn_file_actions_addopen(&actions_, 0, "/dev/null", O_RDONLY, 0);
    } else {
      posix_spawn_file_actions_adddup2(&actions_, in, 0);
    }
    posix_spawn_file_actions_adddup2(&actions_, out, 1);
    posix_spawn_file_actions_adddup2(&actions_, err, 2);
    sigset_t none, pipe;
    sigemptyset(&none);
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &pipe);
    posix_spawnattr_setpgroup(&attributes_, 0);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~SpawnSetup() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnSetup(const SpawnSetup&) = delete;
  SpawnSetup& operator=(const SpawnSetup&) = delete;

  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

[[noreturn]] void cannot_start(const Command& command, int error) {
  const std::string& program = command.argv.front();
  if (error == ENOENT || error == EACCES || error == ENOEXEC || error == ENOTDIR) {
    throw Error(ErrorKind::failed, "host-tool-missing", fmt::format("cannot run `{}`: {}", program, std::strerror(error)))
        .fix(on_macos ? fmt::format("put the folder of `{}` on PATH: macOS has it", program)
                      : "lumelift runs on a Mac; docs/tutorial.md shows how to try it here, in the rehearsal lab");
  }
  throw Error(ErrorKind::failed, "host-no-process", fmt::format("cannot start `{}`: {}", program, std::strerror(error)))
      .fix("the system has no room for another process: end some, then try again");
}

/// Starts it in a process group of its own. `in` may be -1: nothing to read.
pid_t start(const Command& command, int in, int out, int err) {
  const SpawnSetup setup(in, out, err);
  Environment environment(command.env);
  std::vector<char*> argv;
  for (const auto& word : command.argv) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_t pid = -1;
  const int error = ::posix_spawnp(&pid, argv[0], &setup.actions_, &setup.attributes_, argv.data(), environment.data());
  if (error != 0) cannot_start(command, error);
  return pid;
}

/// One running child with its streams. Whatever happens, it is reaped. `noted`: a second signal ends it together with us.
class Child {
 public:
  enum class Noted { yes, no };
  Child(const Command& command, Outcome& outcome, Noted noted) : command_(command), outcome_(outcome), noted_(noted == Noted::yes) {
    spawn();
  }
  ~Child() {
    if (pid_ <= 0) return;
    ::kill(-pid_, SIGKILL);
    reap();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// True once the child is a zombie. It stays one until it is reaped, which keeps its group's number from being reused.
  [[nodiscard]] bool ended() const {
    siginfo_t info{};
    while (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
      if (errno != EINTR) return true;
    }
    return info.si_pid == pid_;
  }

  /// Moves bytes for at most `wait`; returns sooner when something happened.
  void pump(Milliseconds wait) {
    std::array<pollfd, 4> fds{};
    watch(fds.data());
    fds[3] = {interrupt_fd(), POLLIN, 0};
    if (::poll(fds.data(), fds.size(), static_cast<int>(wait.count())) > 0) move(fds.data());
  }

  /// What to wait for: three entries.
  void watch(pollfd* fds) const {
    fds[0] = {out_.get(), POLLIN, 0};
    fds[1] = {err_.get(), POLLIN, 0};
    fds[2] = {in_.get(), POLLOUT, 0};
  }
  /// Moves what those three say is there.
  void move(const pollfd* fds) {
    if (fds[0].revents != 0) take(out_, outcome_.out);
    if (fds[1].revents != 0) take(err_, outcome_.err);
    if (fds[2].revents != 0) feed();
  }

  void tell(int signal) const { ::kill(pid_, signal); }

  [[nodiscard]] bool streams_open() const { return out_ || err_; }

  /// Takes what the streams hold now, without waiting for a grandchild that keeps them open.
  void drain() {
    const Deadline end = Deadline::in(drain_grace);
    while (out_ && !end.expired() && take(out_, outcome_.out)) {
    }
    while (err_ && !end.expired() && take(err_, outcome_.err)) {
    }
  }

  /// Ends the whole group: SIGTERM, then SIGKILL for what is left.
  void end_group() {
    ::kill(-pid_, SIGTERM);
    const Deadline end = Deadline::in(term_grace);
    in_.reset();
    while (!ended() && !end.expired()) {
      std::array<pollfd, 2> fds{{{out_.get(), POLLIN, 0}, {err_.get(), POLLIN, 0}}};
      ::poll(fds.data(), fds.size(), streams_open() ? static_cast<int>(slice.count()) : 1);
      if (fds[0].revents != 0) take(out_, outcome_.out);
      if (fds[1].revents != 0) take(err_, outcome_.err);
    }
    ::kill(-pid_, SIGKILL);
  }

  int reap() {
    int status = 0;
    if (noted_) note_child_group(0);
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return status;
  }

 private:
  void spawn() {
    Pipe out = make_pipe(), err = make_pipe(), in;
    if (!command_.input.empty()) in = make_pipe();
    for (const int fd : {out.read.get(), err.read.get(), in.write.get()}) {
      if (fd >= 0) ::fcntl(fd, F_SETFL, O_NONBLOCK);
    }
    pid_ = start(command_, in.read.get(), out.write.get(), err.write.get());
    if (noted_) note_child_group(pid_);
    out_ = std::move(out.read);
    err_ = std::move(err.read);
    in_ = std::move(in.write);
  }

  /// Reads once. False when nothing was there; closes the stream at its end. Bytes beyond the cap are dropped, but read:
  /// a child must never hang on a full pipe.
  bool take(Fd& fd, std::string& text) {
    std::array<char, 65536> block;
    const auto got = ::read(fd.get(), block.data(), block.size());
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (got <= 0) {
      fd.reset();
      return false;
    }
    const auto size = static_cast<std::size_t>(got);
    const std::size_t kept = std::min(size, command_.output_cap - std::min(command_.output_cap, text.size()));
    text.append(block.data(), kept);
    if (kept < size) outcome_.truncated = true;
    return true;
  }

  void feed() {
    const auto rest = std::string_view(command_.input).substr(fed_);
    const auto put = ::write(in_.get(), rest.data(), rest.size());
    if (put > 0) fed_ += static_cast<std::size_t>(put);
    const bool broken = put < 0 && errno != EAGAIN && errno != EINTR;
    if (broken || fed_ == command_.input.size()) in_.reset();
  }

  const Command& command_;
  Outcome& outcome_;
  bool noted_;
  pid_t pid_ = -1;
  Fd out_, err_, in_;
  std::size_t fed_ = 0;
};

void conduct(Child& child, Outcome& outcome, const Deadline& deadline) {
  Milliseconds nap{1};
  while (!child.ended()) {
    check_interrupt();
    if (deadline.expired()) {
      outcome.timed_out = true;
      return;
    }
    // With both streams closed only looking tells when the child is gone; most are gone within the millisecond.
    const Milliseconds wait = child.streams_open() ? slice : nap;
    if (!child.streams_open()) nap = std::min(nap * 2, slice);
    child.pump(std::min(wait, deadline.left()));
  }
}

/// Takes what is left of an ended or overdue child and says how it ended.
void finish(Child& child, Outcome& outcome, const Stopwatch& watch) {
  outcome.elapsed = watch.elapsed();
  if (outcome.timed_out) child.end_group();
  child.drain();
  const int status = child.reap();
  if (!outcome.timed_out && WIFEXITED(status)) outcome.status = WEXITSTATUS(status);
  if (!outcome.timed_out && WIFSIGNALED(status)) outcome.signal = WTERMSIG(status);
}

}  // namespace

std::string Outcome::ending() const {
  if (timed_out) return fmt::format("no answer within {:.1f} s", static_cast<double>(elapsed.count()) / 1000.0);
  if (signal) return fmt::format("signal {}", *signal);
  return fmt::format("exit status {}", status.value_or(-1));
}

Outcome run(const Command& command, const Deadline& deadline) {
  check_interrupt();
  Outcome outcome;
  const Stopwatch watch;
  Child child(command, outcome, Child::Noted::yes);
  try {
    conduct(child, outcome, deadline);
  } catch (const Interrupted&) {
    child.end_group();
    throw;
  }
  finish(child, outcome, watch);
  if (observer_slot()) observer_slot()(command, outcome);
  return outcome;
}

Companion::Companion(std::vector<std::string> argv, const Fd& stream) {
  command_.argv = std::move(argv);
  Pipe err = make_pipe();
  ::fcntl(err.read.get(), F_SETFL, O_NONBLOCK);
  const int out = stream.get() < 0 ? err.write.get() : stream.get();
  pid_ = start(command_, stream.get(), out, err.write.get());
  err_ = std::move(err.read);
}

Companion::~Companion() {
  ::kill(-pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

std::string Companion::said() {
  constexpr std::size_t cap = 4096;
  std::array<char, cap> block;
  for (;;) {
    const auto got = ::read(err_.get(), block.data(), block.size());
    if (got <= 0) return text_;
    text_.append(block.data(), std::min(static_cast<std::size_t>(got), cap - std::min(cap, text_.size())));
  }
}

struct Children::Entry {
  Entry(Key own_key, Command own_command, const Deadline& own_deadline)
      : key(own_key), command(std::move(own_command)), deadline(own_deadline), child(command, outcome, Child::Noted::no) {}

  /// Hands on the lines that are whole by now; at the end also one that is not.
  void hear(const Listener& said, bool at_end) {
    for (std::size_t end; (end = outcome.err.find('\n', heard)) != std::string::npos; heard = end + 1) {
      said(key, std::string_view(outcome.err).substr(heard, end - heard));
    }
    if (at_end && heard < outcome.err.size()) said(key, std::string_view(outcome.err).substr(heard));
  }

  Key key;
  Command command;
  Deadline deadline;
  Outcome outcome;
  Stopwatch watch;
  std::size_t heard = 0;  ///< of standard error
  Child child;
};

Children::Children() = default;
Children::~Children() = default;
std::size_t Children::count() const {
  return entries_.size();
}

void Children::start(Key key, Command command, const Deadline& deadline) {
  entries_.push_back(std::make_unique<Entry>(key, std::move(command), deadline));
}

void Children::signal_all(int signal) {
  for (const auto& entry : entries_) entry->child.tell(signal);
}

std::vector<Children::Ended> Children::wait(Milliseconds longest, const Listener& said) {
  const Deadline end = Deadline::in(longest);
  std::vector<Ended> ended;
  while (!entries_.empty() && ended.empty()) {
    std::vector<pollfd> fds(entries_.size() * 3 + 1);
    for (std::size_t i = 0; i < entries_.size(); ++i) entries_[i]->child.watch(&fds[i * 3]);
    fds.back() = {interrupt_fd(), POLLIN, 0};
    if (::poll(fds.data(), static_cast<nfds_t>(fds.size()), static_cast<int>(std::min(slice, end.left()).count())) < 0) {
      for (auto& fd : fds) fd.revents = 0;
    }
    for (std::size_t i = 0; i < entries_.size();) {
      Entry& entry = *entries_[i];
      entry.child.move(&fds[i * 3]);
      const bool gone = entry.child.ended();
      entry.outcome.timed_out = !gone && entry.deadline.expired();
      const bool over = gone || entry.outcome.timed_out;
      if (over) finish(entry.child, entry.outcome, entry.watch);
      entry.hear(said, over);
      if (!over) {
        ++i;
        continue;
      }
      if (observer_slot()) observer_slot()(entry.command, entry.outcome);
      ended.push_back({entry.key, std::move(entry.outcome)});
      entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(i));
      fds.erase(fds.begin() + static_cast<std::ptrdiff_t>(i * 3), fds.begin() + static_cast<std::ptrdiff_t>(i * 3 + 3));
    }
    if (end.expired() || fds.back().revents != 0) break;
  }
  return ended;
}

void observe_runs(RunObserver observer) {
  observer_slot() = std::move(observer);
}

std::string shown(const std::vector<std::string>& argv) {
  const auto plain = [](unsigned char c) { return std::isalnum(c) != 0 || std::strchr("-_./:=@,+%", c) != nullptr; };
  std::string line;
  for (const auto& word : argv) {
    if (!line.empty()) line += ' ';
    if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) {
      line += word;
      continue;
    }
    line += '\'';
    for (const char c : word) line += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += '\'';
  }
  return line;
}

}  // namespace lumelift::sys
