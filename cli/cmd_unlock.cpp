#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/compat.hpp"
#include "cli/guest_verdict.hpp"
#include "cli/in_use.hpp"
#include "cli/large.hpp"
#include "cli/library.hpp"
#include "cli/operation.hpp"
#include "cli/own_key.hpp"
#include "cli/readiness.hpp"
#include "cli/share.hpp"
#include "cli/unlock_input.hpp"
#include "cli/unlock_report.hpp"
#include "cli/verification.hpp"
#include "host/sys/file.hpp"

namespace lumelift {
namespace {

using sys::Deadline;
using sys::Milliseconds;

constexpr Milliseconds guest_answer{15'000};
constexpr Milliseconds look_limit{120'000};  // hashing what stands in the guest already
constexpr Milliseconds agent_limit{20'000};
constexpr std::size_t library_cap = 64u << 20;

/// One unlock from the first look to the report. Holds what was learned on the way.
class Unlock {
 public:
  Unlock(Context& context, const UnlockOptions& options)
      : context_(context),
        options_(options),
        input_(read_unlock_input(context, options.profile, options.workload, options.library)),
        share_(input_, context.state_dir),
        operation_(context, options.target, "unlock", options.dry_run ? Operation::Touch::nothing : Operation::Touch::world) {}

  int go() {
    operation_.finish_former();
    look_at_host();
    Plan host_plan = plan_host(view_, restart_from(options_.restart), options_.host_preference == "set");
    share_.add_to(host_plan);
    if (options_.dry_run) {
      return show_plan(host_plan);
    }
    try {
      carry_out(host_plan);
      commit();
    } catch (Error& error) {
      if (run_) {
        operation_.take_back(*run_, error);
      }
      throw;
    } catch (const sys::Interrupted&) {
      if (run_) {
        return operation_.take_back_interrupted(*run_);
      }
      throw;
    }
    show_report();
    return 0;
  }

 private:
  Console& console() { return context_.console; }

  void look_at_host() {
    report_.host = operation_.host.facts();
    view_.vm = operation_.vm();
    share_.forget_used(view_.vm);
    view_.preference = operation_.host.preference(feature_level_key());
    view_.claims = operation_.journal->claims(resource_of(feature_level_key()));
    for (const auto& claim : view_.claims) {
      if (const auto set = claimed_up(claim)) {
        view_.preference_since = std::max(view_.preference_since.value_or(0), *set);
      }
    }
    report_.vm = view_.vm.name;
    report_.lume = operation_.lume_version;
    report_.profile = input_.profile;
    report_.goal = goal_digest(input_);
    report_.kit = kit_digest(input_);
    report_.preference_before = view_.preference;
    if (view_.vm.power() == Power::running && options_.restart != "always") {
      look_at_running_guest();
    }
    console().say(report_.headline());
  }

  /// A running guest tells when it was booted. One that cannot be asked is not restarted: that would be to pull its plug.
  void look_at_running_guest() {
    try {
      operation_.link->connect(Deadline::in(guest_answer), GuestLink::Wait::up);
    } catch (Error& error) {
      if (is_silence(error)) {
        error.fix(fmt::format(
            "look at its screen, check Remote Login, --port and --user; --restart always would stop '{}' hard and start it again",
            view_.vm.name));
      }
      throw;
    }
    report_.guest = operation_.link->guest().facts(Deadline::in(guest_answer));
    view_.running_since = booted_up(*report_.guest);
    judge_workload();
  }

  [[nodiscard]] GuestGoal goal(const GuestFacts& facts) const {
    GuestGoal goal = guest_goal(input_.profile, input_.workload, input_.kit, input_.sources, facts, input_.skeleton);
    goal.receipts = input_.library.origin == LibraryOrigin::own;
    return goal;
  }

  Plan look_at_guest() {
    Guest& guest = operation_.link->guest();
    goal_ = goal(*report_.guest);
    judge_workload();
    const bool read_all = options_.verify || operation_.engine->plug_pulled();
    const auto seen = look_at(guest, goal_, read_all ? Trust::nothing : Trust::manifest, Deadline::in(look_limit));
    std::vector<AgentSeen> agents;
    for (std::size_t i = 0; i < goal_.agents.size(); ++i) {
      const auto& plist = goal_.files.at(goal_.files.size() - goal_.agents.size() + i);
      agents.push_back(guest.lint_and_agent(plist.content, goal_.agents[i].domain, goal_.agents[i].label));
      glimpses_.push_back({agents.back(), {}});
    }
    log_marks_ = mark_logs(operation_.link->session(), goal_.agents);
    Plan plan = plan_guest(view_.vm.name, goal_, seen, agents, *report_.guest);
    // First, so that an undo, which goes backwards, can log in with it to the end.
    if (options_.install_key) {
      const auto steps = key_steps(guest);
      plan.steps.insert(plan.steps.begin(), steps.begin(), steps.end());
    }
    return plan;
  }

  /// With what only the guest tells: its SIP, its release, what lies there already. Before a running one is stopped.
  void judge_workload() {
    if (!input_.workload || std::exchange(judged_, true)) {
      return;
    }
    const InjectionTerms terms = guest_terms(*report_.guest, slices_of(sys::read_file(input_.kit.front().file, library_cap)));
    const FileView files = copied_layout(*input_.workload, input_.sources, report_.guest->home, guest_files(*operation_.link));
    for (const auto& remark : judge_agents(*input_.workload, files, report_.guest->home, terms, Absent::refused)) {
      if (std::find(input_.remarks.begin(), input_.remarks.end(), remark) == input_.remarks.end()) {
        console().warn(remark);
      }
    }
  }

  std::vector<Step> key_steps(Guest& guest) {
    const std::string& home = report_.guest->home;
    const auto folder = guest.look({home + "/.ssh"}, Deadline::in(guest_answer)).front();
    // A key that is yet to be made cannot stand in the guest.
    const auto key = options_.dry_run ? public_key(own_key_file(context_.state_dir)) : std::optional(make_own_key(context_.state_dir));
    const bool there = folder.kind == PathKind::folder;
    const LineSeen line = there ? guest.line_in(authorized_keys(home), key.value_or("")) : LineSeen::no_file;
    return plan_key(home, key.value_or(""), folder, key ? line : std::min(line, LineSeen::missing));
  }

  int show_plan(const Plan& host_plan) {
    Plan whole = host_plan;
    bool guest_known = false;
    if (operation_.link->connected()) {
      const Plan guest_plan = look_at_guest();
      whole.steps.insert(whole.steps.end(), guest_plan.steps.begin(), guest_plan.steps.end());
      guest_known = true;
    } else {
      whole.notes.emplace_back("the guest does not run, so what would change in it is not known yet");
    }
    const auto former = other_promise();
    if (former) {
      whole.notes.push_back(fmt::format("profile on record {} → {}", former->name, input_.profile.name));
    }
    print_plan(console(), whole, guest_known, former.has_value());
    return 0;
  }

  /// The profile that the last unlock promised, if it is another one.
  [[nodiscard]] std::optional<Profile> other_promise() const {
    auto former = proven_by(operation_.journal->live_runs(view_.vm.name)).profile;
    return former && *former != input_.profile ? former : std::nullopt;
  }

  void apply(const Plan& plan) {
    for (const auto& note : plan.notes) {
      console().say("  " + note);
    }
    if (plan.steps.empty()) {
      return;
    }
    if (!run_) {
      run_ = operation_.journal->begin(view_.vm.name, "unlock");
    }
    operation_.engine->apply(*run_, plan);
    report_.steps.insert(report_.steps.end(), plan.steps.begin(), plan.steps.end());
  }

  void carry_out(const Plan& host_plan) {
    const bool stops = std::any_of(host_plan.steps.begin(), host_plan.steps.end(), [](const Step& step) {
      const auto* power = std::get_if<SetPower>(&step);
      return power != nullptr && power->after == Power::stopped;
    });
    if (stops && options_.restart == "idle") {
      refuse_in_use(operation_, Counted::sessions_and_workloads);
    }
    apply(host_plan);
    operation_.link->connect(Deadline::in(guest_answer), GuestLink::Wait::up);
    if (!report_.guest || operation_.engine->started_ago()) {
      report_.guest = operation_.link->guest().facts(Deadline::in(guest_answer));
      check_fresh_boot();
    }
    share_.find(operation_.link->guest(), view_.vm, console());
    const Plan guest_plan = look_at_guest();
    share_.require_for(guest_plan);
    operation_.engine->use_shares(share_.sources());
    apply(guest_plan);
    share_.settle();
    prove();
  }

  /// A guest that claims to be up for longer than since we started it is another one, or was never stopped.
  void check_fresh_boot() {
    const auto started = operation_.engine->started_ago();
    constexpr std::int64_t clock_slack_s = 10;
    if (!started || report_.guest->up_seconds <= started->count() / 1000 + clock_slack_s) {
      return;
    }
    throw Error(ErrorKind::failed, "guest-not-restarted",
                fmt::format("the guest that answers for '{}' at {} is up for {} s, but the VM was started {} s ago", view_.vm.name,
                            operation_.link->address(), report_.guest->up_seconds, started->count() / 1000))
        .fix("another VM may have got its address: see lume ls");
  }

  void prove() {
    Guest& guest = operation_.link->guest();
    report_.probes = run_probes(guest, goal_, input_.profile);
    const auto missing = shortfalls(*report_.probes, input_.profile);
    if (!missing.empty()) {
      Error error(ErrorKind::unproven, "probe-not-unlocked",
                  fmt::format("the guest's answers are not what profile '{}' promises", input_.profile.name));
      for (const auto& line : missing) {
        error.note(line);
      }
      throw error;
    }
    console().step("probe", report_.probe_line());
    for (std::size_t i = 0; i < goal_.agents.size(); ++i) {
      prove(goal_.agents[i], glimpses_.at(i));
    }
    if (!goal_.agents.empty()) {
      await_ready();
    }
  }

  void prove(const GuestGoal::Agent& agent, const AgentGlimpse& before) {
    const auto& loaded = operation_.engine->loaded_agents();
    const auto since = loaded.find(agent.label);
    GuestLink& link = *operation_.link;
    const Deadline deadline = Deadline::in(agent_limit);
    report_.agents.push_back(
        {agent, goal_.receipts ? prove_agent(link.session(), link.guest(), agent, since == loaded.end() ? before : since->second, deadline)
                               : prove_agent_by_mapping(link.session(), agent, goal_.library, deadline)});
    console().step("agent", report_.agents.back().line());
    if (report_.agents.back().proof.library == AgentProof::Library::armed) {
      report_.warnings.push_back(
          fmt::format("{} has asked for no GPU yet: the library is in it and armed, its answers are not seen yet", agent.label));
    }
  }

  void await_ready() {
    for (const auto& agent : report_.agents) {
      const bool started = operation_.engine->loaded_agents().contains(agent.goal.label);
      if (const auto how = lumelift::await_ready(*operation_.link, agent.goal, agent.proof.pid, started ? log_marks_ : LogMarks{})) {
        console().step("ready", fmt::format("{}: {}", agent.goal.label, *how));
      }
    }
  }

  /// Whether this combination is published, proven here or untested; a first success is remembered.
  void take_standing() {
    const CompatKey key{report_.host.chip,
                        report_.host.build,
                        report_.guest->os,
                        report_.guest->build,
                        input_.kit.front().state.sha256,
                        input_.profile.name,
                        input_.workload ? input_.workload->name : ""};
    try {
      const Standing standing = CompatBook::load(context_.state_dir).standing(key);
      report_.standing = standing_text(standing);
      const bool news = standing != Standing::proven_here && standing != Standing::unlocked_here && standing != Standing::failing;
      if (run_ && news) {
        CompatBook::add(context_.state_dir, {key, Outcome::reported_only, fmt::format("run {}", *run_), sys::wall_seconds()});
      }
    } catch (const Error& error) {
      report_.warnings.push_back("what is known of this combination cannot be kept: " + error.message());
    }
  }

  /// From here on the run stands: a signal or a failure before its end takes everything back.
  void commit() {
    take_standing();
    for (auto& file : goal_.files) {
      if (const auto hash = operation_.engine->hashes().find(file.path); hash != operation_.engine->hashes().end()) {
        file.state.sha256 = hash->second;
      }
    }
    report_.files = goal_.files;
    report_.library = to_json(input_.library);
    const auto remarks = share_.remarks();
    report_.warnings.insert(report_.warnings.end(), remarks.begin(), remarks.end());
    report_.warnings.insert(report_.warnings.end(), operation_.engine->warnings().begin(), operation_.engine->warnings().end());
    report_.preference = operation_.host.preference(feature_level_key());
    report_.total = watch_.elapsed();
    report_.vm_time = operation_.engine->vm_time();
    report_.connections = operation_.link->connections();
    // Nothing may have changed but what is promised.
    if (!run_ && other_promise()) {
      run_ = operation_.journal->begin(view_.vm.name, "unlock");
    }
    if (run_) {
      operation_.journal->set_run(*run_, RunState::committed, report_.json());
    }
  }

  void show_report() {
    for (const auto& warning : report_.warnings) {
      console().warn(warning);
    }
    if (console().json()) {
      console().result_json(report_.json());
    } else {
      console().result(report_.text(console()));
    }
  }

  sys::Stopwatch watch_;
  Context& context_;
  const UnlockOptions& options_;
  UnlockInput input_;
  UnlockShare share_;
  Operation operation_;
  HostView view_;
  GuestGoal goal_;
  bool judged_ = false;
  std::vector<AgentGlimpse> glimpses_;  ///< of each agent before anything was done about it
  LogMarks log_marks_;
  std::optional<RunId> run_;
  UnlockReport report_;
};

}  // namespace

int run_unlock(Context& context, const UnlockOptions& options) {
  return Unlock(context, options).go();
}

}  // namespace lumelift
