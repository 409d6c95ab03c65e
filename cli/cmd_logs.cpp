#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "cli/agents.hpp"
#include "cli/log_text.hpp"
#include "remote/log.hpp"

namespace lumelift {
namespace {

using nlohmann::json;
using sys::Deadline;
using sys::Milliseconds;

constexpr Milliseconds answer{15'000}, look_every{500};
constexpr std::uint64_t most_at_once = 1u << 20;   // bytes of each log
constexpr std::size_t unfinished_cap = 64u << 10;  // of a line that does not end

/// One of the agent's two logs and how much of it was shown.
struct Log {
  std::string name, path;
  std::optional<std::uint64_t> seen;
  std::string unfinished;  ///< the start of a line whose end has not come yet

  /// Whole lines that came in since the last call.
  std::string more(Session& session, std::optional<LogPiece>& last) {
    last = read_log(session, path, seen, most_at_once);
    if (!last) {
      return {};
    }
    if (seen && last->from != *seen) {
      unfinished.clear();
    }
    // The first piece begins where it may, in the middle of a line.
    const bool cut_in = !seen && last->from > 0;
    seen = last->from + last->text.size();
    std::string text = unfinished + last->text;
    if (cut_in) {
      text.erase(0, std::min(text.find('\n'), text.size() - 1) + 1);
    }
    const auto end = text.rfind('\n');
    const std::size_t whole = text.size() > unfinished_cap && end == text.npos ? text.size() : end == text.npos ? 0 : end + 1;
    unfinished = text.substr(whole);
    return text.substr(0, whole);
  }
};

/// Each line behind the name of its log where there are two.
std::string labelled(const std::string& text, const std::string& name) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find('\n', at), text.size());
    out += name + "  " + cleaned(text.substr(at, end - at)) + "\n";
    at = end + 1;
  }
  return out;
}

std::array<Log, 2> logs_of(Operation& operation, const std::string& label) {
  const AgentNow now = look_at_agent(*operation.link, find_agent(*operation.journal, operation.found.name, label));
  if (now.stdout_log.empty() && now.stderr_log.empty()) {
    throw Error(ErrorKind::failed, "agent-no-logs", fmt::format("the plist of {} in the guest names no logs", label))
        .fix(fmt::format("see: lumelift status {}", operation.found.name));
  }
  return {Log{"out", now.stdout_log, {}, {}}, Log{"err", now.stderr_log == now.stdout_log ? "" : now.stderr_log, {}, {}}};
}

}  // namespace

int run_logs(Context& context, const LogsOptions& options) {
  std::optional<std::int64_t> since;
  if (!options.since.empty()) {
    since = duration_from(options.since);
    if (!since) {
      throw Error(ErrorKind::usage, "duration-invalid", fmt::format("'{}' is no duration", options.since))
          .fix("examples: 90s, 15m, 2h, 3d");
    }
  }
  if (options.follow && context.console.json()) {
    throw Error(ErrorKind::usage, "follow-json", "--json gives one object, --follow has no end");
  }
  Operation operation(context, options.target, "logs", Operation::Touch::nothing);
  operation.link->connect(Deadline::in(answer), GuestLink::Wait::up);
  Session& session = operation.link->session();
  auto logs = logs_of(operation, options.label);
  const GuestClock clock = since ? guest_clock(session) : GuestClock{};
  json object = {{"schema", 1}, {"vm", operation.found.name}, {"label", options.label}};
  for (auto& log : logs) {
    if (log.path.empty()) {
      continue;
    }
    std::optional<LogPiece> piece;
    std::string text = log.more(session, piece);
    if (!options.follow) {
      text += std::exchange(log.unfinished, {});
    }
    if (since) {
      text = lines_since(text, clock.now - *since, piece ? piece->changed_at : 0, clock.offset);
    }
    if (piece && piece->from > 0) {
      context.console.say(
          fmt::format("{}: only the last {} of {} are shown", log.path, shown_bytes(most_at_once), shown_bytes(piece->size)));
    }
    object[log.name == "out" ? "stdout" : "stderr"] = {{"path", log.path}, {"exists", piece.has_value()}, {"text", text}};
    if (!context.console.json() && !text.empty()) {
      context.console.result(labelled(text, log.name));
    }
  }
  if (context.console.json()) {
    context.console.result_json(object.dump(-1, ' ', false, json::error_handler_t::replace));
  }
  while (options.follow) {
    try {
      sys::pause(look_every, Deadline::in(look_every));
      for (auto& log : logs) {
        if (log.path.empty()) {
          continue;
        }
        std::optional<LogPiece> piece;
        if (!log.seen) {
          log.seen = 0;
        }
        const std::string text = log.more(session, piece);
        if (!text.empty()) {
          context.console.result(labelled(text, log.name));
        }
      }
    } catch (const sys::Interrupted&) {
      // How a follower ends.
      return 0;
    }
  }
  return 0;
}

}  // namespace lumelift
