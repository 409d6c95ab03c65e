#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/explanation.hpp"
#include "cli/guest_kit.hpp"
#include "cli/guest_run.hpp"
#include "cli/guest_verdict.hpp"
#include "host/sys/file.hpp"

namespace lumelift {
namespace {

using nlohmann::json;

constexpr std::size_t trace_cap = 1u << 20, kit_cap = 64u << 20;

/// Everything that the answer is made of.
struct Explained {
  Trace trace;
  const Runtime* runtime = nullptr;
  Explanation explanation;
  json program;  ///< how the command ended; null for a trace file
};

std::string asked(const Question& question) {
  switch (question.about) {
    case Question::About::family:
      return fmt::format("supportsFamily {} ({})", family_name(question.family), question.family);
    case Question::About::threadgroup_memory:
      return "maxThreadgroupMemory";
    case Question::About::working_set:
      return "recommendedMaxWorkingSetSize";
  }
  return {};
}

std::string answer(const Question& question, std::uint64_t value) {
  return question.about == Question::About::family ? (value != 0 ? "yes" : "no") : std::to_string(value);
}

std::string headline(Outlook outlook) {
  switch (outlook) {
    case Outlook::large_gain:
      return "Large gain expected.";
    case Outlook::no_gain:
      return "No gain: already fast, or nothing changes.";
    case Outlook::breaks_with_metal3:
      return "Breaks when Metal 3 is claimed, which lumelift never does.";
    case Outlook::unknown:
      return "Unknown.";
  }
  return {};
}

std::string text_of(const Console& console, const Explained& all, const Profile& profile) {
  std::vector<std::vector<std::string>> rows = {{"asked", "stock answer", fmt::format("with '{}'", profile.name), "times"}};
  for (const auto& question : all.trace.questions) {
    const std::uint64_t given = with_profile(question, profile);
    const bool kept = question.about == Question::About::family && question.stock == 0 && given == 0;
    const std::string shown = answer(question, given) + (kept ? " (kept)" : "");
    rows.push_back({asked(question), answer(question, question.stock), given == question.stock ? shown : console.styled(shown, Style::good),
                    std::to_string(question.count)});
  }
  std::string out = table(rows, {3});
  if (all.trace.lost != 0) {
    out += fmt::format("{} more questions did not fit into the trace.\n", all.trace.lost);
  }
  for (const Outlook outlook : all.explanation.outlooks) {
    out += headline(outlook) + "\n";
  }
  out += cleaned(all.explanation.reason) + ".";
  if (all.runtime != nullptr) {
    out += fmt::format("\nSource: {} ({})", all.runtime->source, all.runtime->date);
  }
  return out;
}

std::string json_of(const std::string& vm, const Explained& all, const Profile& profile) {
  json questions = json::array();
  for (const auto& question : all.trace.questions) {
    const bool family = question.about == Question::About::family;
    const auto value = [&](std::uint64_t number) { return family ? json(number != 0) : json(number); };
    questions.push_back({{"selector", family                                           ? "supportsFamily:"
                                      : question.about == Question::About::working_set ? "recommendedMaxWorkingSetSize"
                                                                                       : "maxThreadgroupMemoryLength"},
                         {"family", family ? json(question.family) : json()},
                         {"stock", value(question.stock)},
                         {"unlocked", value(with_profile(question, profile))},
                         {"count", question.count}});
  }
  json outlooks = json::array();
  for (const Outlook outlook : all.explanation.outlooks) {
    outlooks.push_back(name_of(outlook));
  }
  json runtime;
  if (all.runtime != nullptr) {
    runtime = {{"name", all.runtime->name}, {"source", all.runtime->source}, {"date", all.runtime->date}};
  }
  return json({{"schema", 1},
               {"vm", vm.empty() ? json() : json(vm)},
               {"profile", profile.name},
               {"questions", questions},
               {"lost", all.trace.lost},
               {"complete", all.trace.complete},
               {"runtime", runtime},
               {"verdicts", outlooks},
               {"reason", all.explanation.reason},
               {"granted", all.explanation.granted},
               {"program", all.program}})
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

void show(Context& context, const std::string& vm, const Explained& all, const Profile& profile) {
  if (context.console.json()) {
    context.console.result_json(json_of(vm, all, profile));
  } else {
    context.console.result(text_of(context.console, all, profile));
  }
}

/// A command, run stock with a library that only listens.
class TracedRun {
 public:
  TracedRun(Context& context, const ExplainOptions& options, Operation& operation, const GuestKit& guest)
      : context_(context), options_(options), operation_(operation), guest_(guest), files_(guest_files(*operation.link)) {}

  Explained go(const Profile& profile, const std::vector<Runtime>& table, const std::vector<Source>& kit) {
    prepare();
    const Program program = examined(kit);
    Explained out;
    out.runtime = options_.runtime.empty() ? recognised(table, program) : &named_runtime(table, options_.runtime);
    const RunEnding ending = run();
    out.trace = traced(ending);
    out.explanation = explain(out.trace, profile, out.runtime);
    out.program = {{"command", launch_.command}, {"exit", ending.status()}, {"stdout", ending.result.out}, {"stderr", ending.result.err}};
    return out;
  }

 private:
  void prepare() {
    launch_ = launch_in_guest(options_.command, options_.variables, options_.folder, files_, guest_.facts.home);
    path_ = guest_root(guest_.facts.home) + "/run/trace-" + fresh_token() + ".json";
    // No ceiling: the answers stay the device's own. The trace is the first process's, and children start without the library.
    const std::vector<std::pair<std::string, std::string>> own = {
        {"DYLD_INSERT_LIBRARIES", guest_.goal.library}, {"LUMELIFT_TRACE", path_}, {"LUMELIFT_INHERIT", "0"}};
    launch_.environment.insert(launch_.environment.begin(), own.begin(), own.end());
  }

  Program examined(const std::vector<Source>& kit) {
    const auto argv = judged_words(launch_, guest_.facts.home);
    Program program = examine(argv, files_);
    const InjectionVerdict verdict =
        injection_verdict(program, guest_terms(guest_.facts, slices_of(sys::read_file(kit.front().file, kit_cap))));
    if (verdict.acceptable()) {
      return program;
    }
    const std::string text = fmt::format("{}: {}: {}", cleaned(argv.front()), name_of(verdict.outcome), verdict.reason);
    if (verdict.outcome != InjectionOutcome::unreadable) {
      throw Error(ErrorKind::usage, "explain-not-injectable", text).fix(verdict.remedy);
    }
    context_.console.warn(text);
    return program;
  }

  const Runtime* recognised(const std::vector<Runtime>& table, const Program& program) const {
    std::string content;
    if (program.file && program.chain.found()) {
      content = files_.read(program.chain.program().path);
    }
    return recognise(table, program, launch_.command, content);
  }

  RunEnding run() {
    RunStreams streams;
    streams.output = context_.console.json() ? RunStreams::Output::keep : RunStreams::Output::pass;
    return run_attached(context_.console, operation_.link->session(), launch_, streams);
  }

  Trace traced(const RunEnding& ending) {
    if (ending.lost) {
      throw Error(ErrorKind::failed, "guest-lost", "the connection ended before the program did, and its trace is out of reach");
    }
    const auto text = operation_.link->transfer().read(path_, trace_cap);
    if (text) {
      operation_.link->guest().remove_file(path_);
    }
    if (ending.status() != 0) {
      context_.console.warn("the program ended with " + ending.result.ending());
    }
    if (text) {
      return parse_trace(*text);
    }
    // The file is written with the first question.
    Error error(
        ErrorKind::unproven, "explain-no-trace",
        fmt::format("{} left no trace: it asked its device nothing, or it ran without the library", cleaned(launch_.command.front())));
    throw error.note("the program ended with " + ending.result.ending())
        .fix(fmt::format("see: lumelift inspect --vm {} {}", operation_.found.name, cleaned(launch_.command.front())));
  }

  Context& context_;
  const ExplainOptions& options_;
  Operation& operation_;
  const GuestKit& guest_;
  FileView files_;
  Launch launch_;
  std::string path_;
};

int explain_file(Context& context, const ExplainOptions& options, const Profile& profile, const std::vector<Runtime>& table) {
  Explained out;
  out.trace = parse_trace(sys::read_file(*options.trace, trace_cap));
  Program program;
  program.chain.links.push_back({ChainLink::Role::program, out.trace.executable, 0, false});
  out.runtime = options.runtime.empty() ? recognise(table, program, {}, {}) : &named_runtime(table, options.runtime);
  out.explanation = explain(out.trace, profile, out.runtime);
  show(context, {}, out, profile);
  return 0;
}

}  // namespace

int run_explain(Context& context, const ExplainOptions& options) {
  const bool file = options.trace.has_value();
  if (file != options.target.vm.empty() || file != options.command.empty()) {
    throw Error(ErrorKind::usage, "usage", "explain needs a VM and a command, or --trace FILE")
        .fix("examples: lumelift explain VM -- ./llama-cli -m model.gguf; lumelift explain --trace trace.json");
  }
  const Profile profile = load_profile(options.profile, context.templates);
  const auto table = load_runtimes(context.templates);
  if (!options.runtime.empty()) {
    static_cast<void>(named_runtime(table, options.runtime));
  }
  if (file) {
    return explain_file(context, options, profile, table);
  }
  static_cast<void>(variables_from(options.variables));
  const auto kit = load_kit(context.libexec);
  return with_guest_kit(context, options.target, "explain", profile, kit, [&](Operation& operation, const GuestKit& guest) {
    const Explained out = TracedRun(context, options, operation, guest).go(profile, table, kit);
    show(context, operation.found.name, out, profile);
    return 0;
  });
}

}  // namespace lumelift
