#include "cli/readiness.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/console.hpp"
#include "cli/proof.hpp"
#include "host/sys/error.hpp"
#include "remote/inspect.hpp"
#include "remote/log.hpp"

namespace lumelift {
namespace {

using nlohmann::json;
using sys::Deadline;
using sys::Milliseconds;

constexpr Milliseconds command_limit{30'000}, first_pause{100}, longest_pause{1'000};
constexpr int cannot_run = 126, not_found = 127;  // what a shell says of a command
constexpr std::uint64_t log_piece = 256u << 10;   // bytes read at a time

/// One look after the other at what the workload names. `waiting_for` says what is still missing.
class Watch {
 public:
  Watch(GuestLink& link, const GuestGoal::Agent& agent, int pid, const LogMarks& marks)
      : link_(link), agent_(agent), pid_(pid), read_(marks) {}

  [[nodiscard]] std::optional<std::string> look() {
    if (agent_.ready.port) {
      return port(*agent_.ready.port);
    }
    return agent_.ready.log.empty() ? command() : log();
  }
  [[nodiscard]] const std::string& waiting_for() const { return waiting_for_; }
  /// What it looks at cannot come: the command is none.
  [[nodiscard]] bool hopeless() const { return hopeless_; }

 private:
  std::optional<std::string> port(int number) {
    const auto pids = listeners(link_.session(), number);
    if (std::find(pids.begin(), pids.end(), pid_) != pids.end()) {
      return fmt::format("listens on port {}", number);
    }
    waiting_for_ = pids.empty() ? fmt::format("nothing listens on port {}", number)
                                : fmt::format("port {} belongs to pid {}, not to its pid {}", number, pids.front(), pid_);
    return std::nullopt;
  }

  std::optional<std::string> log() {
    waiting_for_ = fmt::format("'{}' stands in neither of its logs", cleaned(agent_.ready.log, 200));
    for (const auto& path : {agent_.stdout_log, agent_.stderr_log}) {
      for (;;) {
        std::uint64_t& from = read_[path];
        const auto piece = read_log(link_.session(), path, from, log_piece);
        if (!piece || piece->text.empty()) {
          break;
        }
        std::string& text = tail_[path];
        text += piece->text;
        from = piece->from + piece->text.size();
        if (text.find(agent_.ready.log) != std::string::npos) {
          return fmt::format("its log says '{}'", cleaned(agent_.ready.log, 200));
        }
        // The text may stand across two pieces.
        text.erase(0, text.size() - std::min(text.size(), agent_.ready.log.size()));
      }
    }
    return std::nullopt;
  }

  std::optional<std::string> command() {
    const ExecResult result = link_.guest().run_program(agent_.ready.command, {}, Deadline::in(command_limit));
    if (result.status == 0) {
      return fmt::format("{} ended with 0", cleaned(agent_.ready.command.front(), 200));
    }
    waiting_for_ = fmt::format("{} ended with {}", cleaned(agent_.ready.command.front(), 200), result.ending());
    hopeless_ = result.status == cannot_run || result.status == not_found;
    return std::nullopt;
  }

  GuestLink& link_;
  const GuestGoal::Agent& agent_;
  int pid_;
  LogMarks read_;
  std::map<std::string, std::string> tail_;
  std::string waiting_for_;
  bool hopeless_ = false;
};

}  // namespace

LogMarks mark_logs(Session& session, const std::vector<GuestGoal::Agent>& agents) {
  LogMarks marks;
  for (const auto& agent : agents) {
    if (agent.ready.log.empty()) {
      continue;
    }
    for (const auto& path : {agent.stdout_log, agent.stderr_log}) {
      const auto piece = read_log(session, path, std::nullopt, 0);
      marks[path] = piece ? piece->size : 0;
    }
  }
  return marks;
}

std::optional<std::string> await_ready(GuestLink& link, const GuestGoal::Agent& agent, int pid, const LogMarks& marks) {
  if (!agent.ready.wanted()) {
    return std::nullopt;
  }
  Watch watch(link, agent, pid, marks);
  const Deadline deadline = Deadline::in(std::chrono::seconds(agent.ready.within_s));
  const auto not_ready = [&](const std::string& why) {
    Error error(ErrorKind::unproven, "workload-not-ready", fmt::format("{} runs with the library, but is not ready: {}", agent.label, why));
    add_last_words(error, link.session(), agent);
    return error;
  };
  for (Milliseconds pause = first_pause;; pause = std::min(pause * 3 / 2, longest_pause)) {
    if (auto how = watch.look()) {
      return how;
    }
    const AgentSeen seen = link.guest().agent(agent.domain, agent.label);
    if (seen.pid != pid) {
      throw not_ready(seen.pid
                          ? fmt::format("its pid {} was replaced by pid {}", pid, *seen.pid)
                          : fmt::format("its process ended{}", seen.last_exit ? fmt::format(" with {}", *seen.last_exit) : std::string()))
          .fix("mend what it says");
    }
    if (watch.hopeless()) {
      throw not_ready("its command under 'ready' cannot be run: " + watch.waiting_for())
          .fix("name a program that the guest has, with its whole path");
    }
    if (deadline.expired()) {
      throw not_ready(fmt::format("after {} s {}", agent.ready.within_s, watch.waiting_for()))
          .fix("give it more time with 'within' under 'ready'");
    }
    sys::pause(pause, deadline);
  }
}

std::string to_json(const Readiness& ready) {
  if (!ready.wanted()) {
    return "null";
  }
  json out = {{"within", ready.within_s}};
  if (ready.port) {
    out["port"] = *ready.port;
  }
  if (!ready.log.empty()) {
    out["log"] = ready.log;
  }
  if (!ready.command.empty()) {
    out["command"] = ready.command;
  }
  return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

Readiness readiness_from_json(const std::string& text) {
  Readiness ready;
  const json object = json::parse(text, nullptr, false);
  if (!object.is_object()) {
    return ready;
  }
  try {
    ready.within_s = object.at("within").get<int>();
    if (object.contains("port")) {
      ready.port = object.at("port").get<int>();
    }
    ready.log = object.value("log", std::string());
    ready.command = object.value("command", std::vector<std::string>());
  } catch (const json::exception&) {
    return {};
  }
  return ready;
}

}  // namespace lumelift
