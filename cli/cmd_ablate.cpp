#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/ablation.hpp"
#include "cli/guest_run.hpp"
#include "cli/guest_verdict.hpp"
#include "cli/operation.hpp"
#include "cli/samples.hpp"
#include "cli/statistics.hpp"

namespace lumelift {
namespace {

using nlohmann::json;
using sys::Deadline;
using sys::Milliseconds;

constexpr Milliseconds answer{15'000}, look_limit{60'000}, probe_limit{60'000};
constexpr double material = 0.1;  // a single run of a command says no more than that

using Variables = std::vector<std::pair<std::string, std::string>>;

/// One VM through the four combinations. Each of the two values of the preference is a run of its own in the journal, taken
/// back as a whole before the next, so that a crash at any instant leaves what rollback puts right.
class Ablation {
 public:
  Ablation(Context& context, const AblateOptions& options)
      : context_(context),
        options_(options),
        profile_(load_profile(options.profile, context.templates)),
        kit_(load_kit(context.libexec)),
        operation_(context, options.target, "ablate", Operation::Touch::world) {}

  int go() {
    operation_.finish_former();
    now_ = operation_.host.preference(feature_level_key());
    require_free();
    running_ = operation_.found.power() == Power::running;
    // First as it is: for a VM that runs, that costs no restart.
    for (const bool flip : {false, true}) {
      if (const auto status = with_preference(flip)) {
        return *status;
      }
    }
    show();
    return 0;
  }

 private:
  [[nodiscard]] bool is_on() const { return now_ == PrefValue(true); }

  void require_free() {
    const std::string& vm = operation_.found.name;
    if (std::holds_alternative<PrefContainer>(now_)) {
      throw Error(ErrorKind::usage, "preference-foreign", "the host preference holds a container, which lumelift could not put back");
    }
    if (!operation_.found.power()) {
      throw Error(ErrorKind::busy, "vm-not-ready", fmt::format("'{}' is {}", vm, operation_.found.status))
          .fix("wait until lume lists it as stopped or running");
    }
    if (!operation_.journal->live_runs(vm).empty()) {
      throw Error(ErrorKind::usage, "ablate-unlocked",
                  fmt::format("'{}' is unlocked; what it runs would be in the way of the comparison", vm))
          .fix("first: lumelift rollback " + vm);
    }
    const auto claims = operation_.journal->claims(resource_of(feature_level_key()));
    if (!claims.empty()) {
      throw Error(ErrorKind::busy, "preference-claimed",
                  fmt::format("'{}' is unlocked and relies on the host preference, which would be changed", claims.front().vm))
          .fix("first: lumelift rollback " + claims.front().vm);
    }
  }

  [[nodiscard]] Plan host_part(bool flip) const {
    const StartOptions start = start_options(operation_.found);
    const PrefValue other = is_on() ? PrefValue(PrefAbsent{}) : PrefValue(true);
    Plan plan{operation_.found.name, {}, {}};
    if (flip && running_) {
      plan.steps.emplace_back(SetPower{Power::running, Power::stopped, start});
    }
    if (flip) {
      plan.steps.emplace_back(SetPreference{feature_level_key(), now_, other});
    }
    if (flip || !running_) {
      plan.steps.emplace_back(SetPower{Power::stopped, Power::running, start});
    }
    return plan;
  }

  /// Both arms of one value of the preference, and everything back; an exit status when that is the end.
  std::optional<int> with_preference(bool flip) {
    const RunId run = operation_.journal->begin(operation_.found.name, "ablate");
    try {
      operation_.engine->apply(run, host_part(flip));
      operation_.link->connect(Deadline::in(answer), GuestLink::Wait::up);
      Guest& guest = operation_.link->guest();
      facts_ = guest.facts(Deadline::in(answer));
      goal_ = guest_goal(profile_, std::nullopt, kit_, {}, facts_, {});
      const auto seen = guest.look(goal_.paths(), Deadline::in(look_limit));
      operation_.engine->apply(run, plan_guest(operation_.found.name, goal_, seen, {}, facts_));
      for (const bool library : {false, true}) {
        measure(flip != is_on(), library);
      }
    } catch (Error& error) {
      operation_.take_back(run, error);
      throw;
    } catch (const sys::Interrupted&) {
      return operation_.take_back_interrupted(run);
    }
    const UndoReport report = operation_.undo({operation_.record(run)}, Restart::automatic);
    if (report.complete()) {
      return std::nullopt;
    }
    for (const auto& line : report.kept) {
      context_.console.warn("left alone: " + line);
    }
    for (const auto& line : report.failed) {
      context_.console.warn("could not be undone: " + line);
    }
    return exit_status(ErrorKind::incomplete);
  }

  void measure(bool preference, bool library) {
    AblationArm arm{preference, library, {}, {}, {}};
    Variables variables;
    if (library) {
      variables = profile_environment(profile_);
      variables.insert(variables.begin(), {"DYLD_INSERT_LIBRARIES", goal_.library});
      variables.emplace_back("LUMELIFT_INHERIT", "0");
    }
    context_.console.step("arm", fmt::format("preference {}, library {}", preference ? "on" : "off", library ? "on" : "off"));
    ask(arm, variables);
    if (!options_.command.empty()) {
      run(arm, variables);
    }
    arms_.push_back(std::move(arm));
  }

  void ask(AblationArm& arm, const Variables& variables) {
    const ExecResult result = operation_.link->guest().run_program({goal_.probe, "--functional"}, variables, Deadline::in(probe_limit));
    const ProbeAnswers answers = parse_probe(result.out);
    arm.answers["Apple family"] = std::to_string(answers.highest_apple % 1000);
    for (const auto& [family, yes] : answers.families) {
      if (family >= 2000) {
        arm.answers[fmt::format("family {}", family)] = yes ? "yes" : "no";
      }
    }
    arm.answers["threadgroup memory"] = std::to_string(answers.threadgroup_memory);
    arm.answers["residency set"] = answers.residency;
    const json functional = json::parse(answers.raw, nullptr, false).value("functional", json());
    if (!functional.is_object()) {
      return;
    }
    for (const auto& [kernel, outcome] : functional.items()) {
      if (outcome.is_object()) {
        arm.answers["kernel " + kernel] = outcome.value("result", std::string("unknown"));
      }
    }
  }

  void run(AblationArm& arm, const Variables& variables) {
    Launch launch = launch_in_guest(options_.command, options_.variables, options_.folder, guest_files(*operation_.link), facts_.home);
    launch.environment.insert(launch.environment.begin(), variables.begin(), variables.end());
    RunStreams streams;
    streams.output = RunStreams::Output::keep;
    const sys::Stopwatch watch;
    const RunEnding ending = run_attached(context_.console, operation_.link->session(), launch, streams);
    const double seconds = static_cast<double>(watch.elapsed().count()) / 1000;
    if (ending.lost) {
      throw Error(ErrorKind::failed, "guest-lost", "the connection ended before the command did");
    }
    arm.ending = ending.result.ending();
    if (ending.status() != 0) {
      return context_.console.warn(fmt::format("the command ended with {}: {}", arm.ending, cleaned(ending.result.err, 300)));
    }
    const auto bench = parse_arm(ending.result.out, "command");
    if (!bench || bench->rows.empty()) {
      arm.figures["seconds"] = seconds;
      return;
    }
    for (const auto& row : bench->rows) {
      if (!row.rates.empty()) {
        arm.figures[row.test] = summarise(row.rates).median;
      }
    }
  }

  void show() {
    std::sort(arms_.begin(), arms_.end(), [](const AblationArm& a, const AblationArm& b) {
      return std::pair(a.preference, a.library) < std::pair(b.preference, b.library);
    });
    const Levers found = levers(arms_, material);
    if (context_.console.json()) {
      context_.console.result_json(json_of(found));
    } else {
      context_.console.result(text_of(found));
    }
  }

  [[nodiscard]] std::string json_of(const Levers& found) const {
    json arms = json::array();
    for (const auto& arm : arms_) {
      arms.push_back({{"preference", arm.preference},
                      {"library", arm.library},
                      {"answers", arm.answers},
                      {"figures", arm.figures},
                      {"ending", arm.ending.empty() ? json() : json(arm.ending)}});
    }
    const auto named = [](const std::map<std::string, Lever>& of) {
      json out = json::object();
      for (const auto& [name, lever] : of) {
        out[name] = name_of(lever);
      }
      return out;
    };
    return json({{"schema", 1},
                 {"vm", operation_.found.name},
                 {"profile", profile_.name},
                 {"guest", {{"os", facts_.os}, {"build", facts_.build}}},
                 {"arms", arms},
                 {"levers", {{"answers", named(found.answers)}, {"figures", named(found.figures)}}},
                 {"incomplete", found.incomplete},
                 {"lever",
                  {{"answers", name_of(overall(found.answers))},
                   {"figures", found.figures.empty() ? json() : json(name_of(overall(found.figures)))}}}})
        .dump(-1, ' ', false, json::error_handler_t::replace);
  }

  [[nodiscard]] std::string text_of(const Levers& found) const {
    std::vector<std::vector<std::string>> rows = {{"preference", "off", "off", "on", "on", ""},
                                                  {"library", "off", "on", "off", "on", "lever"}};
    for (const auto& [name, lever] : found.figures) {
      rows.push_back({name});
      for (const auto& arm : arms_) {
        rows.back().push_back(fmt::format("{:.4g}", arm.figures.at(name)));
      }
      rows.back().emplace_back(name_of(lever));
    }
    for (const auto& [name, lever] : found.answers) {
      if (lever == Lever::neither && name.starts_with("family ")) {
        continue;
      }
      rows.push_back({name});
      for (const auto& arm : arms_) {
        rows.back().push_back(cleaned(arm.answers.at(name), 40));
      }
      rows.back().emplace_back(name_of(lever));
    }
    std::string out = table(rows, {1, 2, 3, 4});
    for (const auto& name : found.incomplete) {
      out += fmt::format("{}: not shown by every arm, so not compared\n", cleaned(name, 100));
    }
    out += fmt::format("Answers change by: {}.", name_of(overall(found.answers)));
    if (!found.figures.empty()) {
      out += fmt::format(" What the command achieved changes by: {} (beyond {:.0f} %).", name_of(overall(found.figures)), material * 100);
    }
    return out + " Preference, guest and power are as they were.";
  }

  Context& context_;
  const AblateOptions& options_;
  Profile profile_;
  std::vector<Source> kit_;
  Operation operation_;
  PrefValue now_;
  bool running_ = false;
  GuestFacts facts_;
  GuestGoal goal_;
  std::vector<AblationArm> arms_;
};

}  // namespace

int run_ablate(Context& context, const AblateOptions& options) {
  static_cast<void>(variables_from(options.variables));
  return Ablation(context, options).go();
}

}  // namespace lumelift
