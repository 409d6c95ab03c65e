#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "host/lume.hpp"
#include "host/lume_command.hpp"
#include "host/lume_server.hpp"
#include "host/lume_text.hpp"
#include "host/sys/error.hpp"
#include "host/sys/file.hpp"

namespace lumelift {
namespace {

using lume_text::StartFailure;
using sys::Deadline;
using sys::Milliseconds;

constexpr Milliseconds run_limit{30'000}, stop_limit{20'000};
/// Right after a stop lume rewrites the VM's configuration: for some seconds a failed look means nothing.
constexpr Milliseconds look_patience{5'000};
/// A process that is about to end may hold the VM's lock for a while longer than lume lists the VM.
constexpr Milliseconds lock_patience{3'000}, lock_nap{500};
/// Between two looks that must agree, because lume infers a VM's state from files and ports.
constexpr Milliseconds second_look{300};
constexpr Milliseconds first_nap{50}, longest_nap{1'000};
constexpr std::size_t log_cap = 16u << 10;

Error unknown(const std::string& name) {
  return Error(ErrorKind::usage, "vm-unknown", fmt::format("lume knows no VM named '{}'", name)).fix("see: lume ls");
}

Error not_ready(const Vm& vm) {
  return Error(ErrorKind::busy, "vm-not-ready", fmt::format("VM '{}' is {}", vm.name, vm.status))
      .fix("wait until lume lists it as stopped or running, or put it right with lume");
}

/// Looks at one VM again and again, and forgives lume for a while.
class Watch {
 public:
  Watch(const Lume& lume, const std::string& name) : lume_(lume), name_(name) {}

  /// The VM; nothing while lume cannot say. Throws once that has lasted.
  [[nodiscard]] std::optional<Vm> look() {
    try {
      if (auto vm = lume_.find(name_)) {
        trouble_since_.reset();
        last_seen_ = vm->status;
        return vm;
      }
      last_seen_ = "unknown to lume";
      if (lasting()) throw unknown(name_);
    } catch (const Error& error) {
      if (error.id() == "lume-missing" || error.id() == "vm-name-invalid" || lasting()) throw;
      last_seen_ = error.message();
    }
    return std::nullopt;
  }

  /// Status or trouble at the last look; for messages.
  [[nodiscard]] const std::string& last_seen() const { return last_seen_; }

 private:
  bool lasting() {
    if (!trouble_since_) trouble_since_.emplace();
    return trouble_since_->elapsed() > look_patience;
  }

  const Lume& lume_;
  const std::string& name_;
  std::optional<sys::Stopwatch> trouble_since_;
  std::string last_seen_ = "not looked at";
};

/// Waits until the VM is seen in `power` twice in a row; false at the deadline.
bool settle(Watch& watch, Power power, const Deadline& deadline) {
  int agreed = 0;
  for (Milliseconds nap = first_nap;; nap = std::min(nap * 2, longest_nap)) {
    const auto vm = watch.look();
    agreed = vm && vm->power() == power ? agreed + 1 : 0;
    if (agreed == 2) return true;
    if (deadline.expired()) return false;
    sys::pause(agreed == 1 ? second_look : nap, deadline);
  }
}

/// The log of one VM's start, from where it ended before.
class StartLog {
 public:
  StartLog(const std::filesystem::path& home, const std::string& vm) : path_(usual_folder(home) / (vm + ".log")) {
    size_before_ = size_of(path_);
  }

  /// lume says where it writes. In a place that we did not measure only what is yet to come can be told from old lines.
  void at(const std::optional<std::string>& path) {
    if (!path || *path == path_) return;
    path_ = *path;
    size_before_ = size_of(path_);
  }

  [[nodiscard]] std::string gained() const { return sys::read_tail(path_, size_before_, log_cap); }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  static std::filesystem::path usual_folder(std::filesystem::path home) {
    if (home.empty()) {
      const passwd* user = ::getpwuid(::geteuid());
      home = user != nullptr ? user->pw_dir : "/";
    }
    return home / "Library" / "Logs" / "lume";
  }
  static std::uint64_t size_of(const std::filesystem::path& path) {
    std::error_code missing;
    const auto size = std::filesystem::file_size(path, missing);
    return missing ? 0 : size;
  }

  std::filesystem::path path_;
  std::uint64_t size_before_ = 0;
};

std::vector<std::string> run_words(const std::string& name, const StartOptions& options) {
  std::vector<std::string> argv{"lume", "run", name, "--detach", "--display", "none"};
  if (!options.storage.empty()) argv.insert(argv.end(), {"--storage", options.storage});
  if (options.network) argv.insert(argv.end(), {"--network", *options.network});
  for (const auto& dir : options.shared_dirs) {
    argv.insert(argv.end(), {"--shared-dir", dir.host_path + (dir.read_only ? ":ro" : ":rw")});
  }
  return argv;
}

/// Who takes the slots, for the message about the limit; lume's own list may be of no use in such a moment.
std::string running_guests(const Lume& lume) {
  std::string names;
  try {
    for (const Vm& vm : lume.list()) {
      if (vm.os == "linux" || vm.power() != Power::running) continue;
      names += (names.empty() ? "running now: " : ", ") + vm.name;
    }
  } catch (const Error& error) {
    return error.message();
  }
  if (!names.empty()) return names;
  return "lume lists no running macOS VM: another program's VM, or a leftover process of the virtualization framework, holds "
         "the place; restarting the Mac frees it";
}

[[noreturn]] void start_failed(const Lume& lume, const std::string& name, StartFailure why, std::string_view text) {
  const std::string words = lume_text::quoted(text);
  switch (why) {
    case StartFailure::limit:
      throw Error(ErrorKind::failed, "vm-limit", fmt::format("VM '{}' did not start: macOS runs at most two macOS guests at a time", name))
          .note(running_guests(lume))
          .note(words)
          .fix("stop another macOS VM, then try again");
    case StartFailure::locked:
      throw Error(ErrorKind::busy, "vm-locked", fmt::format("VM '{}' is already running in another process", name))
          .note(words)
          .fix("stop it where it was started, then try again");
    case StartFailure::keychain:
      throw Error(ErrorKind::failed, "vm-start-failed",
                  fmt::format("VM '{}' did not start: macOS could not use the login keychain, where it keeps a key for VMs", name))
          .note(words)
          .fix("log in at the Mac's screen once, or run: security unlock-keychain login.keychain-db");
    case StartFailure::display:
      throw Error(ErrorKind::failed, "vm-start-failed", fmt::format("VM '{}' did not start: lume looked for a display", name))
          .note(words)
          .fix("log in at the Mac's screen once, then try again");
    case StartFailure::none:
    case StartFailure::other:
      break;
  }
  throw Error(ErrorKind::failed, "vm-start-failed", fmt::format("VM '{}' did not start", name))
      .note(words)
      .fix(fmt::format("start it by hand to see more: lume run {} --display none", sys::shown({name})));
}

bool has_ended(std::optional<int> pid) {
  return pid && ::kill(*pid, 0) != 0 && errno == ESRCH;
}

/// Waits until the VM is listed as running twice. `lume run --detach` tells nothing about success: the VM's log does.
void await_start(const Lume& lume, const std::string& name, std::optional<int> pid, const StartLog& log, const Deadline& deadline) {
  Watch watch(lume, name);
  int running = 0, hopeless = 0;
  for (Milliseconds nap = first_nap;; nap = std::min(nap * 2, longest_nap)) {
    const bool ended = has_ended(pid);
    const auto vm = watch.look();
    running = vm && vm->power() == Power::running ? running + 1 : 0;
    if (running == 2) return;
    const std::string text = log.gained();
    const StartFailure why = running == 0 ? lume_text::start_failure_in(text) : StartFailure::none;
    // An error that we do not know may be one that lume gets over, and a process may hand over to another: look again.
    const bool bad = why == StartFailure::other || (ended && running == 0);
    hopeless = bad ? hopeless + 1 : 0;
    if ((why != StartFailure::none && why != StartFailure::other) || hopeless == 3) start_failed(lume, name, why, text);
    if (deadline.expired()) {
      throw Error(ErrorKind::failed, "vm-start-failed",
                  fmt::format("VM '{}' was not listed as running in time; last seen: {}", name, watch.last_seen()))
          .note(text.empty() ? fmt::format("nothing new in {}", log.path().string()) : lume_text::quoted(text))
          .fix(fmt::format("see: lume get {}", sys::shown({name})));
    }
    sys::pause(running == 1 ? second_look : nap, deadline);
  }
}

}  // namespace

void Lume::start(const std::string& name, const StartOptions& options, const Deadline& deadline) const {
  for (const Deadline patience = deadline.at_most(lock_patience);;) {
    try {
      return start_once(name, options, deadline);
    } catch (const Error& error) {
      if (error.id() != "vm-locked" || patience.expired()) throw;
    }
    sys::pause(lock_nap, patience);
  }
}

void Lume::start_once(const std::string& name, const StartOptions& options, const Deadline& deadline) const {
  // Looked up first, always: lume would download an image for a name that it does not know.
  const auto vm = find(name, deadline.at_most(look_patience));
  if (!vm) throw unknown(name);
  if (!vm->power()) throw not_ready(*vm);
  if (vm->power() == Power::running) return;
  StartLog log(home_, vm->name);
  const auto argv = run_words(vm->name, options);
  const auto outcome = lume_command(argv, deadline.at_most(run_limit));
  if (outcome.timed_out) lume_failed(argv, outcome);
  if (!outcome.ok()) {
    const auto why = lume_text::start_failure_in(outcome.err);
    if (why == StartFailure::none) lume_failed(argv, outcome);
    start_failed(*this, vm->name, why, outcome.err);
  }
  const auto detached = lume_text::detached_in(outcome.out);
  log.at(detached.log);
  await_start(*this, vm->name, detached.pid, log, deadline);
}

void Lume::stop(const std::string& name, const std::string& storage, const Deadline& deadline) const {
  const auto vm = find(name, deadline.at_most(look_patience));
  if (!vm) throw unknown(name);
  if (!vm->power()) throw not_ready(*vm);
  Watch watch(*this, vm->name);
  if (vm->power() == Power::stopped && settle(watch, Power::stopped, deadline.at_most(2 * second_look))) return;

  if (stop_in_server(vm->name, deadline)) {
    if (settle(watch, Power::stopped, deadline)) return;
    throw Error(ErrorKind::failed, "vm-stop-failed",
                fmt::format("VM '{}' did not stop: its lume server says that it did, and lume then says: {}", vm->name, watch.last_seen()))
        .fix(fmt::format("look with: lume get {}", sys::shown({vm->name})));
  }
  std::vector<std::string> argv{"lume", "stop", vm->name};
  if (!storage.empty()) argv.insert(argv.end(), {"--storage", storage});
  const auto outcome = lume_command(argv, deadline.at_most(stop_limit));
  const bool accepted = outcome.ok() || lume_text::says_not_running(outcome.err);
  // Whatever lume says about its own success, only its list counts; after a refusal there is little to wait for.
  if (settle(watch, Power::stopped, accepted ? deadline : deadline.at_most(look_patience))) return;
  if (!accepted) lume_failed(argv, outcome);
  throw Error(ErrorKind::failed, "vm-stop-failed",
              fmt::format("VM '{}' did not stop: `{}` ended with {}, and lume then says: {}", vm->name, sys::shown(argv), outcome.ending(),
                          watch.last_seen()))
      .fix(fmt::format("look with: lume get {}", sys::shown({vm->name})));
}

bool Lume::wait_stopped(const std::string& name, const Deadline& deadline) const {
  const std::string stored = stored_name(name);
  Watch watch(*this, stored);
  return settle(watch, Power::stopped, deadline);
}

}  // namespace lumelift
