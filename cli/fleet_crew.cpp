#include "cli/fleet_crew.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>

#include "cli/next_step.hpp"
#include "host/sys/excerpt.hpp"

namespace lumelift {
namespace {

using nlohmann::json;
using sys::Deadline;
using sys::Milliseconds;

constexpr Milliseconds redraw{200};
constexpr std::size_t name_most = 24;

std::string text_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// What a command left behind, put into the words of an Error where it failed.
StageDone told(const std::string& what, bool hook, const sys::Outcome& outcome) {
  StageDone done;
  done.what = what;
  done.hook = hook;
  // What a hook means by its status is its own affair.
  done.status = hook ? (outcome.ok() ? 0 : 1) : outcome.status.value_or(1);
  done.out = outcome.out;
  if (done.ok()) {
    return done;
  }
  const json object = json::parse(outcome.out, nullptr, false);
  if (!hook && object.is_object() && object.contains("error") && object["error"].is_object()) {
    const json& error = object["error"];
    done.error_id = text_of(error, "id");
    done.message = text_of(error, "message");
    done.fix = text_of(error, "fix");
    if (const auto details = error.find("details"); details != error.end() && details->is_array()) {
      for (const auto& line : *details) {
        done.details.push_back(line.is_string() ? line.get<std::string>() : line.dump());
      }
    }
    return done;
  }
  if (!hook && object.is_object() && object.contains("checks") && object["checks"].is_array()) {
    for (const json& check : object["checks"]) {
      if (!check.value("passed", true)) {
        done.details.push_back(fmt::format("{}: {}", text_of(check, "id"), text_of(check, "evidence")));
      }
    }
    done.fix = "lumelift verify shows all checks of one VM";
    return done;
  }
  if (!hook && done.status != 1) {
    return done;  // its result object says what is wrong
  }
  done.error_id = hook ? "hook-failed" : "child-failed";
  done.message = fmt::format("{} ended with {}", what, outcome.ending());
  if (!outcome.err.empty()) {
    done.details.push_back("it said: " + excerpt(outcome.err));
  }
  return done;
}

}  // namespace

std::optional<std::string> json_field(const std::string& object, const std::string& key) {
  const json parsed = json::parse(object, nullptr, false);
  if (!parsed.is_object()) {
    return std::nullopt;
  }
  const auto found = parsed.find(key);
  if (found == parsed.end()) {
    return std::nullopt;
  }
  return found->is_string() ? found->get<std::string>() : found->dump();
}

std::vector<StageDone> run_each(Console& console, const std::string& title, int jobs, const std::vector<std::string>& names,
                                const std::vector<Stage>& stages) {
  std::vector<ScheduledVm> scheduled;
  for (const auto& name : names) {
    scheduled.push_back({name, true, false, true, false});
  }
  FleetLimits limits;
  limits.jobs = jobs;
  FleetSchedule schedule(scheduled, limits, 0);
  FleetCrew::Part part;
  part.next = [&](const FleetCrew::Order& order, const std::vector<StageDone>& done) {
    return done.empty() ? std::optional(stages[order.vm]) : std::nullopt;
  };
  part.ended = [](const FleetCrew::Order&, const std::vector<StageDone>& done) {
    return std::make_pair(done.back().ok() ? FleetSchedule::Result::ok : FleetSchedule::Result::failed, true);
  };
  FleetCrew crew(console, title, names, part);
  if (crew.run(schedule)) {
    throw sys::Interrupted{sys::pending_signal()};
  }
  std::vector<StageDone> out;
  for (std::size_t at = 0; at < names.size(); ++at) {
    out.push_back(crew.story(at).stages.front());
  }
  return out;
}

FleetCrew::FleetCrew(Console& console, std::string title, std::vector<std::string> names, Part part)
    : console_(console),
      title_(std::move(title)),
      names_(std::move(names)),
      part_(std::move(part)),
      stories_(names_.size()),
      active_(names_.size()),
      live_(console) {}

void FleetCrew::begin(FleetSchedule& schedule, const Order& order) {
  active_[order.vm].emplace(Active{order, {}, {}, {}, false, {}});
  if (part_.begins) {
    part_.begins(order);
  }
  go_on(schedule, order.vm);
}

/// The VM's next stage, or the end of its order.
void FleetCrew::go_on(FleetSchedule& schedule, std::size_t vm) {
  Active& active = *active_[vm];
  if (auto stage = part_.next(active.order, active.done)) {
    active.what = stage->what;
    active.hook = stage->hook;
    active.said.clear();
    sys::Command command{.argv = std::move(stage->words), .env = std::move(stage->environment), .input = std::move(stage->input)};
    try {
      children_.start(vm, std::move(command), Deadline::in(std::chrono::seconds(stage->limit_s)));
    } catch (const Error& error) {
      active.done.push_back(
          {stage->what, stage->hook, exit_status(error.kind()), {}, error.id(), error.message(), next_step(error), error.details()});
      go_on(schedule, vm);
    }
    return;
  }
  const auto [result, running] = part_.ended(active.order, active.done);
  VmStory& story = stories_[vm];
  const bool retried = result == FleetSchedule::Result::no_room;
  if (active.order.act == FleetSchedule::Act::work) {
    story.stages = active.done;
    story.spent += active.watch.elapsed();
  } else if (result != FleetSchedule::Result::ok && !active.done.empty()) {
    story.trouble = active.done.back().message;
    story.trouble_id = active.done.back().error_id.value_or("");
  }
  const Order order = active.order;
  active_[vm].reset();
  schedule.ended(order, result, running);
  if (retried && schedule.stand(vm) == FleetSchedule::Stand::waiting) {
    live_.clear();
    console_.say(fmt::format("{}: no room for another guest now; later again", names_[vm]));
  }
}

void FleetCrew::hear(std::size_t vm, std::string_view line) {
  const std::size_t from = line.find_first_not_of(' ');
  if (from == std::string_view::npos) {
    return;
  }
  active_[vm]->said = std::string(line.substr(from));
  if (console_.stderr_is_terminal()) {
    return;
  }
  std::size_t width = 0;
  for (const auto& name : names_) {
    width = std::max(width, std::min(name.size(), name_most));
  }
  console_.say(fmt::format("{:<{}}  {}{}", names_[vm], width, active_[vm]->hook ? active_[vm]->what + ": " : "", line));
}

void FleetCrew::show(const FleetSchedule& schedule) {
  using Stand = FleetSchedule::Stand;
  std::size_t over = 0, of = 0, failed = 0;
  for (std::size_t vm = 0; vm < names_.size(); ++vm) {
    const Stand stand = schedule.stand(vm);
    of += stand != Stand::idle ? 1 : 0;
    over += stand == Stand::done || stand == Stand::failed || stand == Stand::skipped ? 1 : 0;
    failed += stand == Stand::failed ? 1 : 0;
  }
  std::vector<std::string> lines;
  for (std::size_t vm = 0; vm < names_.size(); ++vm) {
    if (!active_[vm]) {
      continue;
    }
    const auto& active = *active_[vm];
    lines.push_back(fmt::format("  {:<{}}  {:>5.0f} s  {:<11}  {}", names_[vm], name_most,
                                static_cast<double>(active.watch.elapsed().count()) / 1000, active.what, active.said));
  }
  lines.push_back(fmt::format("{}: {} of {} done{}", title_, over, of, failed > 0 ? fmt::format(", {} failed", failed) : ""));
  live_.show(lines);
}

bool FleetCrew::run(FleetSchedule& schedule) {
  std::optional<sys::Shield> told_all;
  for (;;) {
    if (sys::pending_signal() != 0 && !told_all) {
      // From here on the children take back what they did, and are waited for.
      told_all.emplace();
      schedule.halt("not tried: interrupted");
      children_.signal_all(SIGINT);
      live_.clear();
      console_.say("interrupted: each VM that is being worked on takes back what was done; this can take a while");
    }
    {
      // A look at lume in between must not be cut short: the signal is seen at the next turn.
      const sys::Shield shield;
      while (const auto order = schedule.next()) {
        begin(schedule, *order);
      }
    }
    if (schedule.over()) {
      break;
    }
    show(schedule);
    for (auto& ended : children_.wait(redraw, [this](std::size_t vm, std::string_view line) { hear(vm, line); })) {
      const sys::Shield shield;
      Active& active = *active_[ended.key];
      active.done.push_back(told(active.what, active.hook, ended.outcome));
      go_on(schedule, ended.key);
    }
  }
  live_.clear();
  return told_all.has_value();
}

}  // namespace lumelift
