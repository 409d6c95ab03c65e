#include "host/lume.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "host/lume_command.hpp"
#include "host/lume_text.hpp"
#include "host/sys/error.hpp"

namespace lumelift {
namespace {

using sys::Deadline;
using sys::Milliseconds;

constexpr const char* oldest_version = "0.5.0";
constexpr Milliseconds question_limit{10'000};

enum class Expect { any, some };

std::vector<Vm> vms_of(const std::vector<std::string>& argv, const sys::Outcome& outcome, Expect expect) {
  auto vms = outcome.truncated ? std::nullopt : lume_text::vms_in(outcome.out);
  if (!vms || (vms->empty() && expect == Expect::some)) {
    throw Error(ErrorKind::failed, "lume-unreadable", fmt::format("`{}` printed no VM", sys::shown(argv)))
        .note(lume_text::quoted(outcome.out))
        .fix("run that command by hand; lumelift knows lume 0.5.0 to 0.5.3");
  }
  return std::move(*vms);
}

}  // namespace

sys::Outcome lume_command(const std::vector<std::string>& argv, const Deadline& deadline) {
  try {
    return sys::run({.argv = argv, .env = {{"LUME_LOG_LEVEL", "error"}}}, deadline);
  } catch (const Error& error) {
    if (error.id() != "host-tool-missing") throw;
    throw Error(ErrorKind::failed, "lume-missing", error.message())
        .fix(fmt::format("install lume {} or newer and see that its folder is on PATH", oldest_version));
  }
}

void lume_failed(const std::vector<std::string>& argv, const sys::Outcome& outcome) {
  if (outcome.timed_out) {
    throw Error(ErrorKind::failed, "lume-no-answer", fmt::format("`{}` gave {}", sys::shown(argv), outcome.ending()))
        .fix("run that command by hand; if it hangs too, see what other lume commands are at work");
  }
  throw Error(ErrorKind::failed, "lume-failed", fmt::format("`{}` ended with {}", sys::shown(argv), outcome.ending()))
      .note(lume_text::quoted(outcome.err.empty() ? outcome.out : outcome.err))
      .fix("run that command by hand");
}

const char* shown(Power power) {
  return power == Power::running ? "running" : "stopped";
}

std::optional<Power> Vm::power() const {
  if (status == "running") return Power::running;
  if (status == "stopped") return Power::stopped;
  return std::nullopt;
}

StartOptions start_options(const Vm& vm) {
  return {vm.storage, vm.network, vm.shared_dirs};
}

std::string Lume::version() const {
  const std::vector<std::string> argv{"lume", "--version"};
  const auto outcome = lume_command(argv, Deadline::in(question_limit));
  if (!outcome.ok()) lume_failed(argv, outcome);
  const auto version = lume_text::version_in(outcome.out);
  if (!version) {
    throw Error(ErrorKind::failed, "lume-unreadable", "`lume --version` printed no version")
        .note(lume_text::quoted(outcome.out))
        .fix("see which `lume` comes first on PATH");
  }
  if (!lume_text::at_least(*version, oldest_version)) {
    throw Error(ErrorKind::failed, "lume-too-old",
                fmt::format("lume is {}, but detached starts exist from {} on", *version, oldest_version))
        .fix("update lume");
  }
  return *version;
}

std::optional<std::string> Lume::bad_name(const std::string& name) {
  if (name.empty()) return "it is empty";
  if (name.size() > 255) return "it is longer than 255 bytes";
  if (name.front() == '-') return "it begins with '-', which lume would take for an option";
  if (name.find('/') != std::string::npos) return "it holds '/'";
  if (name == "." || name.find("..") != std::string::npos) return "it names a folder above";
  const auto control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
  if (std::any_of(name.begin(), name.end(), control)) return "it holds a control character";
  return std::nullopt;
}

std::string Lume::stored_name(const std::string& name) {
  std::string stored = name;
  std::replace(stored.begin(), stored.end(), ':', '_');
  return stored;
}

std::optional<Vm> Lume::find(const std::string& name) const {
  if (const auto why = bad_name(name)) {
    throw Error(ErrorKind::usage, "vm-name-invalid", fmt::format("'{}' cannot be the name of a VM: {}", name, *why)).fix("see: lume ls");
  }
  const std::string stored = stored_name(name);
  const std::vector<std::string> argv{"lume", "get", stored, "--format", "json"};
  const auto outcome = lume_command(argv, Deadline::in(question_limit));
  if (outcome.status == 1 && lume_text::says_not_found(outcome.err)) return std::nullopt;
  if (!outcome.ok()) lume_failed(argv, outcome);
  // A VM that does not exist is told by the status; success without a word is a broken answer, and must not pass for "gone".
  const auto vms = vms_of(argv, outcome, Expect::some);
  const auto exact = std::find_if(vms.begin(), vms.end(), [&](const Vm& vm) { return vm.name == stored; });
  return exact == vms.end() ? std::nullopt : std::optional(*exact);
}

std::optional<Vm> Lume::find(const std::string& name, const Deadline& patience) const {
  for (;;) {
    auto vm = find(name);
    if (vm || patience.expired()) return vm;
    sys::pause(Milliseconds{200}, patience);
  }
}

std::vector<Vm> Lume::list() const {
  return list_vms(Deadline::in(question_limit));
}

std::vector<Vm> list_vms(const Deadline& deadline) {
  const std::vector<std::string> argv{"lume", "ls", "--format", "json"};
  const auto outcome = lume_command(argv, deadline);
  if (!outcome.ok()) lume_failed(argv, outcome);
  return vms_of(argv, outcome, Expect::any);
}

}  // namespace lumelift
