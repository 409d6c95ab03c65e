#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/bench_folder.hpp"
#include "cli/bench_guest.hpp"
#include "cli/bench_programs.hpp"
#include "cli/bench_start.hpp"
#include "cli/compat.hpp"
#include "cli/operation.hpp"
#include "host/conditions.hpp"
#include "host/sys/file.hpp"
#include "host/sys/hash.hpp"

namespace lumelift {
namespace {

using nlohmann::ordered_json;
using sys::Deadline;
using sys::Milliseconds;

constexpr Milliseconds answer{15'000}, look_limit{600'000};
constexpr int fast_family = 1007;  // from here on ggml takes its fast kernels

std::string dumped(const ordered_json& object, int indent = 2) {
  return object.dump(indent, ' ', false, ordered_json::error_handler_t::replace) + (indent < 0 ? "" : "\n");
}

ordered_json asked_json(const std::vector<Asked>& all) {
  auto out = ordered_json::array();
  for (const auto& one : all) {
    out.push_back({{"asked", one.command}, {"status", one.status}, {"answer", one.answer}});
  }
  return out;
}

/// What a greedy text showed.
struct TextCheck {
  bool checked = false;
  Agreement agreement;
};

/// A benchmark in a guest that answers and has the files, from the proof of both sides to the last run.
class Bench {
 public:
  Bench(Context& context, const BenchOptions& options, const BenchSettings& settings, const Profile& profile, Operation& operation,
        const BenchPlace& place, const GuestFacts& facts)
      : context_(context),
        options_(options),
        settings_(settings),
        profile_(profile),
        operation_(operation),
        place_(place),
        facts_(facts),
        starter_(*operation.link, settings, profile, place, std::chrono::seconds(options.repetition_limit_s)) {}

  void measure() {
    prove_sides();
    open_folder();
    compare_texts();
    const auto runs = bench_runs(settings_, roles());
    for (const auto& run : runs) {
      make(run);
    }
    arms_ = collect(runs);
    for (int attempt = 0; attempt < options_.retries; ++attempt) {
      const auto again = unsteady(runs);
      if (again.empty()) {
        break;
      }
      for (const auto& run : again) {
        folder_->set_aside(run);
      }
      for (const auto& run : again) {
        make(run);
      }
      arms_ = collect(runs);
    }
    if (seen() != hashes_) {
      throw Error(ErrorKind::unproven, "bench-files-moved", "program or model were changed while they were measured")
          .fix("run it again when nobody else works with these files");
    }
  }

  int report() {
    const Report report = make_report(arms_, limits());
    folder_->write("index.html", render_html(report, sys::read_file(context_.templates / "report.html", 1u << 20)));
    const ordered_json result = {{"schema", 1},
                                 {"vm", operation_.found.name},
                                 {"profile", profile_.name},
                                 {"folder", folder_->path().string()},
                                 {"text", text_json()},
                                 {"notes", notes_},
                                 {"report", ordered_json::parse(render_json(report))}};
    if (!report.refused_something()) {
      folder_->write("result.json", dumped(result));
      remember(compat_records(report, combination(), "result.json " + sys::sha256(dumped(result)), sys::wall_seconds()));
    }
    if (context_.console.json()) {
      context_.console.result_json(dumped(result, -1));
    } else {
      const std::string text = !text_.checked                 ? "not compared"
                               : text_.agreement.share() == 1 ? "yes"
                                                              : fmt::format("the first {:.0f} %", text_.agreement.share() * 100);
      context_.console.result(bench_table(report) + fmt::format("same text from guest CPU and guest GPU: {}     report: {}\n", text,
                                                                (folder_->path() / "index.html").string()));
    }
    for (const auto& note : notes_) {
      context_.console.warn(note);
    }
    return report.refused_something() ? exit_status(ErrorKind::unproven) : 0;
  }

 private:
  [[nodiscard]] CompatKey combination() const {
    return {host_.chip, host_.build, facts_.os, facts_.build, place_.library_sha256, profile_.name, {}};
  }

  /// What `compat` lists and `unlock` says from now on. A measurement is good without it.
  void remember(const std::vector<CompatRecord>& records) {
    try {
      for (const auto& record : records) {
        CompatBook::add(context_.state_dir, record);
      }
    } catch (const Error& error) {
      notes_.push_back("what was proven cannot be kept: " + error.message());
    }
  }

  [[nodiscard]] Guest& guest() { return operation_.link->guest(); }
  [[nodiscard]] Limits limits() const { return {options_.spread_flag, options_.spread_reject, options_.material}; }

  [[nodiscard]] std::vector<Role> roles() const {
    std::vector<Role> out{Role::stock, Role::unlocked, Role::cpu};
    if (place_.host_bench) {
      out.push_back(Role::host);
    }
    return out;
  }

  // ---------------------------------------------------------------- before the first run

  void prove_sides() {
    // The arms differ in nothing but what is meant: looked at in a process that was started like theirs.
    variables_ = relevant_variables(guest_environment(operation_.link->session()));
    if (const auto left = forbidden_in_stock(variables_); !left.empty()) {
      Error error(ErrorKind::unproven, "bench-not-scrubbed",
                  "the guest sets variables of dyld or of the library that cannot be taken away");
      for (const auto& line : left) {
        error.note(cleaned(line, 200));
      }
      throw error.fix("remove them from the start files of the guest's shell");
    }
    probes_ = run_probes(guest(), place_.goal, profile_);
    if (const auto missing = shortfalls(*probes_, profile_); !missing.empty()) {
      Error error(ErrorKind::unproven, "probe-not-unlocked",
                  fmt::format("the guest's answers are not what profile '{}' promises", profile_.name));
      for (const auto& line : missing) {
        error.note(line);
      }
      throw error;
    }
    if (probes_->stock.highest_apple >= fast_family) {
      throw Error(ErrorKind::unproven, "bench-not-stock",
                  fmt::format("the scrubbed probe already sees Apple family {}: there is no stock side to measure",
                              probes_->stock.highest_apple - 1000))
          .fix("look for another library or macOS version that raises the guest's answers");
    }
    if (facts_.os.starts_with("14.")) {
      notes_.emplace_back("macOS 14 guests return stale data through mapped model files; add --arg=-mmp --arg=0 if the texts differ");
    }
    hashes_ = seen();
    if (const auto why = place_.host_differs(hashes_)) {
      throw Error(ErrorKind::usage, "bench-model-differs", *why)
          .fix("name the same file with --host-model, or leave the host out: --no-host");
    }
    if (const auto note = place_.host_note(hashes_)) {
      notes_.push_back(*note);
    }
  }

  /// Checksums of program, model and text program in the guest.
  [[nodiscard]] std::vector<std::string> seen() {
    std::vector<std::string> out;
    const auto paths = place_.paths(*operation_.link);
    const auto all = guest().look(paths, Deadline::in(look_limit));
    for (std::size_t i = 0; i < paths.size(); ++i) {
      if (!all[i].file) {
        throw Error(ErrorKind::usage, "bench-file-missing", fmt::format("there is no readable file {} in the guest", paths[i]))
            .fix("copy it with --bench, --cli or --model, or name its place with --guest-bench, --guest-cli or --guest-model");
      }
      out.push_back(all[i].file->sha256);
    }
    return out;
  }

  void open_folder() {
    host_ = operation_.host.facts();
    preference_ = shown(operation_.host.preference(feature_level_key()));
    auto words = ordered_json::array();
    for (const auto role : roles()) {
      words.push_back(role_name(role));
    }
    const ordered_json parameters = {
        {"schema", 1},
        {"vm", operation_.found.name},
        {"guest", {{"identity", facts_.identity}, {"os", facts_.os}, {"build", facts_.build}}},
        {"host", {{"chip", host_.chip}, {"os", host_.os}, {"build", host_.build}, {"preference", preference_}}},
        {"profile", profile_environment(profile_)},
        {"library_sha256", place_.library_sha256},
        {"subject", subject_name(settings_.subject)},
        {"program", place_.program()},
        {"model", place_.model},
        {"port", settings_.port},
        {"files_sha256", hashes_},
        {"host_files_sha256", place_.host_hashes},
        {"arms", words},
        {"prompts", settings_.prompts},
        {"generations", settings_.generations},
        {"repetitions", settings_.repetitions},
        {"rounds", settings_.rounds},
        {"order", options_.order},
        {"warm_up", settings_.warm_up},
        {"cool_down_s", options_.cool_down_s},
        {"arguments", settings_.extra}};
    folder_ = BenchFolder::open(options_.output, ".", operation_.found.name, dumped(parameters));
    if (folder_->resumed()) {
      context_.console.say(fmt::format("going on with {}", folder_->path().string()));
    }
    folder_->write("probe-stock.json", probes_->stock.raw + "\n");
    folder_->write("probe-unlocked.json", probes_->unlocked.raw + "\n");
    ordered_json environment = {{"chip", host_.chip},
                                {"memory_bytes", host_.memory},
                                {"host_os", host_.os},
                                {"host_build", host_.build},
                                {"guest_os", facts_.os},
                                {"guest_build", facts_.build},
                                {"lume", operation_.lume_version},
                                {"library_sha256", place_.library_sha256},
                                {"profile", profile_.name},
                                {"host_preference", preference_}};
    if (const int cores = gpu_cores(); cores > 0) {
      environment["gpu_cores"] = cores;
    }
    folder_->write("environment.json", dumped(environment));
  }

  void compare_texts() {
    if (options_.no_text_check) {
      notes_.emplace_back("texts were not compared: fast figures of a GPU that computes something else would not be noticed");
      return;
    }
    const std::string cpu = greedy(Role::cpu), unlocked = greedy(Role::unlocked);
    folder_->write("text-cpu.txt", cpu);
    folder_->write("text-unlocked.txt", unlocked);
    text_ = {true, agreement(cpu, unlocked)};
    if (text_.agreement.share() >= 1 - options_.text_tolerance) {
      return context_.console.step(
          "text", fmt::format("guest CPU and unlocked GPU: {} of {} words the same", text_.agreement.common, text_.agreement.words));
    }
    auto failing = combination();
    failing.workload = place_.workload_name();
    remember({{failing, Outcome::failing, "guest CPU and unlocked GPU write different texts", sys::wall_seconds()}});
    throw Error(ErrorKind::unproven, "bench-text-differs",
                fmt::format("guest CPU and unlocked GPU write different texts: the same for {} of {} words; at least {:.0f} % is needed",
                            text_.agreement.common, text_.agreement.words, (1 - options_.text_tolerance) * 100))
        .note("CPU: " + cleaned(cpu, 200))
        .note("GPU: " + cleaned(unlocked, 200))
        .note("no speed is reported for a GPU that computes something else")
        .fix("try --arg=-mmp --arg=0 for the benchmark, or another build; both texts are in " + folder_->path().string());
  }

  std::string greedy(Role role) {
    const Started started = starter_.write_text(role, options_.prompt, options_.text_tokens);
    if (started.ran.status != 0 || !started.why.empty()) {
      throw Error(ErrorKind::unproven, "bench-text-failed",
                  fmt::format("the {} text: {}", role_name(role),
                              started.why.empty() ? "the program ended with " + started.ran.ending : started.why))
          .note(last_words(started.ran))
          .fix("see: lumelift inspect; --cli names another program, --no-text-check goes without");
    }
    return started.ran.out;
  }

  // ---------------------------------------------------------------- one run

  void make(const BenchRun& run) {
    if (failed_.contains(run.role)) {
      return;
    }
    if (const auto former = folder_->arm(run)) {
      if (former->refusals.empty()) {
        return context_.console.step(run.name() + " ", "finished before");
      }
      folder_->set_aside(run);
    }
    if (std::exchange(warm_, true)) {
      sys::pause(std::chrono::seconds(options_.cool_down_s), Deadline::in(std::chrono::seconds(options_.cool_down_s + 1)));
    }
    ordered_json conditions = {{"role", role_name(run.role)},
                               {"round", run.round},
                               {"started", sys::iso_utc(sys::wall_seconds())},
                               {"host_preference", shown(operation_.host.preference(feature_level_key()))}};
    const auto before = conditions_now(run, conditions, "before");
    const sys::Stopwatch watch;
    Started started = run.role == Role::host ? on_host(run) : starter_.measure(run);
    const Watched& ran = started.ran;
    const auto took = watch.elapsed();
    const auto after = conditions_now(run, conditions, "after");
    if (const auto jump = ran.clock_jump ? ran.clock_jump : guest_jump(before, after)) {
      started.why = "dropped: " + *jump;
    }
    conditions["command"] = started.launch.command;
    conditions["variables_found"] = run.role == Role::host ? host_variables() : variables_;
    conditions["variables_set"] = started.launch.environment;
    conditions["seconds"] = static_cast<double>(took.count()) / 1000;
    conditions["ending"] = ran.ending;
    store(run, started, conditions);
    if (ran.status != 0) {
      failed_.insert(run.role);
      return context_.console.warn(fmt::format("{}: the run ended with {}: {}", run.name(), ran.ending, last_words(ran)));
    }
    context_.console.step(run.name() + " ", summary(run, took));
  }

  [[nodiscard]] Started on_host(const BenchRun& run) const {
    Started started;
    started.launch.command = bench_words(settings_, run, place_.host_model->string());
    started.launch.command.insert(started.launch.command.begin(), place_.host_bench->string());
    started.ran =
        run_on_host(started.launch.command, silence_limit(run, std::chrono::seconds(options_.repetition_limit_s)) * test_count(settings_));
    started.why = started.ran.defect;
    return started;
  }

  std::vector<Asked> conditions_now(const BenchRun& run, ordered_json& conditions, const char* when) {
    conditions[when]["host"] = asked_json(ask_host());
    if (run.role == Role::host) {
      return {};
    }
    auto asked = ask_guest(guest());
    conditions[when]["guest"] = asked_json(asked);
    return asked;
  }

  void store(const BenchRun& run, const Started& started, const ordered_json& conditions) const {
    const auto name = run.name();
    folder_->write(name + ".json", started.ran.out);
    folder_->write(name + ".stderr", started.ran.err);
    folder_->write(name + ".conditions.json", dumped(conditions));
    if (!started.receipt.empty()) {
      folder_->write(name + ".receipt.json", started.receipt);
    }
    if (!started.why.empty()) {
      folder_->write(name + ".refused", started.why);
    }
    folder_->write(name + ".status", fmt::format("{}\n", started.ran.status));
  }

  std::string summary(const BenchRun& run, Milliseconds took) const {
    const auto arm = folder_->arm(run);
    std::string text;
    for (const auto& row : arm->rows) {
      if (!row.rates.empty()) {
        text += fmt::format("{} {}  ", row.test, rate_figure(summarise(row.rates).median));
      }
    }
    if (!arm->refusals.empty()) {
      text = "refused: " + arm->refusals.front() + "  ";
    }
    return text + fmt::format("{:.1f} s", static_cast<double>(took.count()) / 1000);
  }

  // ---------------------------------------------------------------- after the runs

  std::vector<Arm> collect(const std::vector<BenchRun>& runs) const {
    std::vector<Arm> arms;
    for (const auto& run : runs) {
      if (auto arm = folder_->arm(run)) {
        arms.push_back(std::move(*arm));
      }
    }
    return arms;
  }

  /// Runs to make again: all of an arm whose samples lie too far apart, and each during which a clock jumped.
  std::vector<BenchRun> unsteady(const std::vector<BenchRun>& runs) const {
    std::set<Role> arms;
    for (const auto& workload : make_report(arms_, limits()).workloads) {
      for (const auto& test : workload.tests) {
        for (const auto& [role, cell] : test.cells) {
          if (cell.rejected) {
            arms.insert(role);
          }
        }
      }
    }
    std::vector<BenchRun> again;
    for (const auto& run : runs) {
      const bool dropped = folder_->read(run.name() + ".refused").value_or("").starts_with("dropped: ");
      if (!failed_.contains(run.role) && (dropped || arms.contains(run.role))) {
        again.push_back(run);
      }
    }
    return again;
  }

  ordered_json text_json() const {
    return {{"checked", text_.checked},
            {"words", text_.agreement.words},
            {"common", text_.agreement.common},
            {"tolerance", options_.text_tolerance}};
  }

  Context& context_;
  const BenchOptions& options_;
  const BenchSettings& settings_;
  const Profile& profile_;
  Operation& operation_;
  const BenchPlace& place_;
  const GuestFacts& facts_;
  std::optional<ProbePair> probes_;
  std::vector<std::string> variables_, hashes_, notes_;
  std::string preference_;
  HostFacts host_;
  std::optional<BenchFolder> folder_;
  TextCheck text_;
  BenchStarter starter_;
  std::vector<Arm> arms_;
  std::set<Role> failed_;  ///< arms whose program does not run: their further rounds would not either
  bool warm_ = false;      ///< something was measured just now
};

}  // namespace

int run_bench(Context& context, const BenchOptions& options) {
  const BenchSettings settings = bench_settings(options);
  if (options.output) {
    BenchFolder::require_free(*options.output);
  }
  const Profile profile = load_profile(options.profile, context.templates);
  const auto kit = load_kit(context.libexec);
  const BenchSources sources = bench_sources(options, settings.subject, kit, context.templates);
  for (const auto& remark : sources.remarks) {
    context.console.warn(remark);
  }
  Operation operation(context, options.target, "bench", Operation::Touch::world);
  const auto awake = stay_awake();
  if (!awake) {
    context.console.warn("caffeinate is missing: nothing keeps this Mac from sleeping meanwhile");
  }
  operation.finish_former();
  operation.link->connect(Deadline::in(answer), GuestLink::Wait::up);
  const GuestFacts facts = operation.link->guest().facts(Deadline::in(answer));
  const BenchPlace place = bench_place(options, settings.subject, sources, profile, kit, facts, *operation.link);
  const Plan plan =
      plan_guest(operation.found.name, place.goal, operation.link->guest().look(place.goal.paths(), Deadline::in(look_limit)), {}, facts);

  // Programs and model go in through the journal like any other change, and out again.
  std::optional<RunId> run;
  Bench bench(context, options, settings, profile, operation, place, facts);
  try {
    if (!plan.steps.empty()) {
      run = operation.journal->begin(operation.found.name, "bench");
      operation.engine->apply(*run, plan);
    }
    bench.measure();
  } catch (Error& error) {
    if (run) {
      operation.take_back(*run, error);
    }
    throw;
  } catch (const sys::Interrupted&) {
    context.console.say("finished runs are kept; the same command goes on with them");
    if (run) {
      return operation.take_back_interrupted(*run);
    }
    throw;
  }
  if (run && options.keep) {
    operation.journal->set_run(*run, RunState::committed);
    context.console.say(fmt::format("the files stay in the guest; lumelift rollback {} removes them", operation.found.name));
  } else if (run && !operation.undo({operation.record(*run)}, Restart::never).complete()) {
    static_cast<void>(bench.report());
    return exit_status(ErrorKind::incomplete);
  }
  return bench.report();
}

}  // namespace lumelift
