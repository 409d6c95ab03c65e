#include "cli/bench_guest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>

#include "cli/bench.hpp"
#include "host/sys/process.hpp"

namespace lumelift {
namespace {

using sys::Deadline;
using sys::Milliseconds;

constexpr Milliseconds start_limit{20'000}, tool_limit{15'000};
constexpr Milliseconds jump{2'000};  // more than whole seconds and a slow tick make, less than any sleep
constexpr std::size_t keep_cap = 64u << 20;
constexpr int by_signal = 128;
constexpr double clock_slack_s = 3;
constexpr std::size_t words_cap = 300;

/// Compares this Mac's two clocks. They drift apart when it slept or when somebody set the time.
class ClockPair {
 public:
  [[nodiscard]] std::optional<std::string> jumped() const {
    const Milliseconds drift = std::chrono::seconds(sys::wall_seconds() - wall_) - watch_.elapsed();
    if (std::chrono::abs(drift) < jump) {
      return std::nullopt;
    }
    return fmt::format("this Mac's clocks went {:.1f} s apart", static_cast<double>(drift.count()) / 1000);
  }

 private:
  std::int64_t wall_ = sys::wall_seconds();
  sys::Stopwatch watch_;
};

void keep(std::string& text, std::string_view piece) {
  text.append(piece.substr(0, keep_cap - std::min(keep_cap, text.size())));
}

Asked asked(const std::string& command, const std::string& answer, std::optional<int> status) {
  return {command, answer, status.value_or(-1), {}};
}

}  // namespace

void kill_in_guest(Session& session, int pid, std::string_view signal) {
  static_cast<void>(session.exec(fmt::format("/bin/kill -{} {}", signal, pid), Deadline::in(tool_limit)));
}

Watched run_watched(Session& session, const Launch& launch, const Watching& watching) {
  const std::string token = fresh_token();
  MarkCutter cutter(token);
  Watched ran;
  const ClockPair clocks;
  sys::Stopwatch quiet;
  Interaction with;
  with.every = watching.every;
  with.on_output = [&](std::string_view piece, bool is_err) {
    if (!is_err) {
      quiet = sys::Stopwatch();
    }
    keep(is_err ? ran.err : ran.out, is_err ? std::string(piece) : cutter.feed(piece));
  };
  with.on_wake = [&]() -> std::optional<sys::WindowSize> {
    if (!ran.clock_jump) {
      ran.clock_jump = clocks.jumped();
    }
    if (!cutter.pid()) {
      return std::nullopt;
    }
    if (watching.silence.count() > 0 && quiet.elapsed() > watching.silence) {
      kill_in_guest(session, *cutter.pid(), ran.defect.empty() ? "TERM" : "KILL");
      ran.defect = fmt::format("killed: no test was done within {} s", watching.silence.count() / 1000);
    }
    if (watching.conduct) {
      watching.conduct(*cutter.pid());
    }
    return std::nullopt;
  };
  RunEnding ending;
  try {
    ending.result = session.interact(launch_line(launch, token), with, Deadline::in(start_limit));
  } catch (...) {
    const sys::Shield shield;
    try {
      if (cutter.pid()) {
        kill_in_guest(session, *cutter.pid(), "KILL");
      }
    } catch (const Error&) {
      // The connection itself is what broke: the first failure is the one to tell.
    }
    throw;
  }
  keep(ran.out, cutter.rest());
  ran.pid = cutter.pid();
  ran.status = ending.status();
  ran.ending = ran.defect.empty() ? ending.result.ending() : ran.defect;
  if (!ran.clock_jump) {
    ran.clock_jump = clocks.jumped();
  }
  return ran;
}

Watched run_on_host(const std::vector<std::string>& argv, Milliseconds limit) {
  const ClockPair clocks;
  std::vector<std::string> words{"/usr/bin/env"};
  for (const auto& line : forbidden_in_stock(relevant_variables(host_environment()))) {
    words.emplace_back("-u");
    words.push_back(line.substr(0, line.find('=')));
  }
  words.insert(words.end(), argv.begin(), argv.end());
  const auto outcome = sys::run({.argv = words, .output_cap = keep_cap}, Deadline::in(limit));
  Watched ran;
  ran.out = outcome.out;
  ran.err = outcome.err;
  if (outcome.timed_out) {
    ran.defect = outcome.ending();
  }
  ran.status = outcome.status ? *outcome.status : by_signal + outcome.signal.value_or(9);
  ran.ending = outcome.ending();
  ran.clock_jump = clocks.jumped();
  return ran;
}

std::vector<Asked> ask_guest(Guest& guest) {
  static const std::vector<std::vector<std::string>> questions = {
      {"/bin/date", "-u", "+%s"}, {"/usr/bin/uptime"}, {"/usr/bin/vm_stat"}, {"/usr/bin/pmset", "-g", "therm"}};
  std::vector<Asked> answers;
  for (const auto& question : questions) {
    const auto result = guest.run_program(question, {}, Deadline::in(tool_limit), {.output_cap = 16u << 10});
    answers.push_back(asked(sys::shown(question), result.out.empty() ? result.err : result.out, result.status));
  }
  return answers;
}

std::vector<Asked> ask_host() {
  static const std::vector<std::vector<std::string>> questions = {{"uptime"}, {"vm_stat"}, {"pmset", "-g", "therm"}};
  std::vector<Asked> answers;
  for (const auto& question : questions) {
    try {
      const auto outcome = sys::run({.argv = question, .output_cap = 16u << 10}, Deadline::in(tool_limit));
      answers.push_back(asked(sys::shown(question), outcome.out.empty() ? outcome.err : outcome.out, outcome.status));
    } catch (const Error& error) {
      answers.push_back(asked(sys::shown(question), error.message(), std::nullopt));
    }
  }
  return answers;
}

std::optional<std::int64_t> guest_clock(const std::vector<Asked>& asked_all) {
  if (asked_all.empty() || asked_all.front().status != 0) {
    return std::nullopt;
  }
  const auto& text = asked_all.front().answer;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end != text.data() ? std::optional(value) : std::nullopt;
}

std::string guest_environment(Session& session) {
  return run_watched(session, {{"/usr/bin/env"}, {}, {}}, {.silence = tool_limit}).out;
}

std::string host_environment() {
  return sys::run({.argv = {"/usr/bin/env"}}, Deadline::in(tool_limit)).out;
}

std::string last_words(const Watched& ran) {
  std::string text = ran.err.empty() ? ran.out : ran.err;
  while (!text.empty() && text.back() == '\n') {
    text.pop_back();
  }
  if (text.size() > words_cap) {
    text.erase(0, text.size() - words_cap);
    text.erase(0, text.find('\n') + 1);  // whole lines
  }
  return cleaned(text, words_cap);
}

std::optional<std::string> guest_jump(const std::vector<Asked>& before, const std::vector<Asked>& after) {
  const auto a = guest_clock(before), b = guest_clock(after);
  if (!a || !b) {
    return std::nullopt;
  }
  const double passed = static_cast<double>((before.front().since.elapsed() - after.front().since.elapsed()).count()) / 1000;
  const auto moved = *b - *a;
  // Both readings are whole seconds, and asking takes its time too; a guest may drift by a thousandth.
  if (std::abs(static_cast<double>(moved) - passed) <= clock_slack_s + passed / 1000) {
    return std::nullopt;
  }
  return fmt::format("the guest's clock moved {} s in {:.1f} s", moved, passed);
}

std::vector<std::string> host_variables() {
  auto found = relevant_variables(host_environment());
  std::erase_if(found, [](const std::string& line) { return !forbidden_in_stock({line}).empty(); });
  return found;
}

}  // namespace lumelift
