#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/guest_kit.hpp"
#include "cli/guest_run.hpp"
#include "cli/guest_verdict.hpp"
#include "cli/json_text.hpp"
#include "cli/library.hpp"
#include "cli/operation.hpp"
#include "cli/receipt.hpp"
#include "host/sys/file.hpp"
#include "remote/inspect.hpp"

namespace lumelift {
namespace {

using nlohmann::json;
using sys::Deadline;
using sys::Milliseconds;

constexpr Milliseconds answer{15'000};
constexpr Milliseconds receipt_late{20'000};  // a first start can be held up by the system's own check of the file
constexpr std::size_t receipt_cap = 64u << 10, kit_cap = 64u << 20;
constexpr int env_not_executable = 126, env_not_found = 127;

/// The library's own word on the process that we started.
class ReceiptWatch {
 public:
  ReceiptWatch(Guest& guest, Transfer& transfer, std::string path) : guest_(guest), transfer_(transfer), path_(std::move(path)) {}

  void look(std::optional<int> pid) {
    const auto seen = parse_receipt(transfer_.read(path_, receipt_cap).value_or(""));
    if (!seen || (pid && seen->pid != *pid)) {
      return;
    }
    text_ = seen->json;
    outcome_ = seen->outcome;
    reason_ = seen->reason;
  }

  /// True when a process should have had the library by now and has not.
  [[nodiscard]] bool overdue(int pid) {
    if (outcome_.empty()) {
      look(pid);
    }
    return outcome_.empty() && since_.elapsed() > receipt_late;
  }

  void discard() { guest_.remove_file(path_); }

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] const std::string& outcome() const { return outcome_; }
  [[nodiscard]] const std::string& reason() const { return reason_; }
  [[nodiscard]] bool proven() const { return outcome_ == "active" || outcome_ == "armed"; }

 private:
  Guest& guest_;
  Transfer& transfer_;
  std::string path_, text_, outcome_, reason_;
  sys::Stopwatch since_;
};

/// One run in a guest that answers, from the verdict to the exit status.
class Run {
 public:
  Run(Context& context, const RunOptions& options, Operation& operation, LibraryOrigin origin = LibraryOrigin::own)
      : context_(context), options_(options), operation_(operation), origin_(origin) {}

  int stock() {
    facts_ = operation_.link->guest().facts(Deadline::in(answer));
    launch_ = launch(guest_files(*operation_.link));
    return report(attached({}), nullptr);
  }

  int injected(const GuestGoal& goal, const GuestFacts& facts, const Profile& profile, const std::vector<Source>& kit) {
    facts_ = facts;
    const FileView files = guest_files(*operation_.link);
    launch_ = launch(files);
    judge(files, kit);
    ReceiptWatch receipt(operation_.link->guest(), operation_.link->transfer(),
                         guest_root(facts.home) + "/run/run-" + fresh_token() + ".json");
    auto variables = profile_environment(profile);
    variables.insert(variables.begin(), {"DYLD_INSERT_LIBRARIES", goal.library});
    if (origin_ == LibraryOrigin::own) {
      variables.emplace_back("LUMELIFT_RECEIPT", receipt.path());
    }
    if (!options_.inherit) {
      variables.emplace_back("LUMELIFT_INHERIT", "0");
    }
    launch_.environment.insert(launch_.environment.begin(), variables.begin(), variables.end());
    const RunEnding ending = attached([&](int pid) {
      if (origin_ != LibraryOrigin::own) {
        return see_mapping(pid, goal.library);
      }
      return receipt.overdue(pid) && !options_.allow_stock;
    });
    if (ending.lost) {
      return report(ending, &receipt);
    }
    if (origin_ == LibraryOrigin::own) {
      receipt.look(ending.pid);
      receipt.discard();
      require_library(ending, receipt);
    } else if (!mapped_) {
      context_.console.warn(
          "this library writes no receipts, and the program ended before its memory was looked at: whether it had the library is not "
          "proven");
    }
    return report(ending, &receipt);
  }

 private:
  Launch launch(const FileView& files) const {
    return launch_in_guest(options_.command, options_.variables, options_.folder, files, facts_.home);
  }

  void judge(const FileView& files, const std::vector<Source>& kit) {
    const auto argv = judged_words(launch_, facts_.home);
    InjectionTerms terms = guest_terms(facts_, slices_of(sys::read_file(kit.front().file, kit_cap)));
    terms.inherit = options_.inherit;
    const InjectionVerdict verdict = injection_verdict(examine(argv, files), terms);
    for (const auto& note : verdict.notes) {
      context_.console.detail(note);
    }
    // What could not be read may still work: the receipt will tell.
    if (verdict.acceptable()) {
      return;
    }
    const std::string text = fmt::format("{}: {}: {}", cleaned(argv.front()), name_of(verdict.outcome), verdict.reason);
    if (options_.force || options_.allow_stock || verdict.outcome == InjectionOutcome::unreadable) {
      return context_.console.warn(text);
    }
    throw Error(ErrorKind::usage, "run-not-injectable", text)
        .fix((verdict.remedy.empty() ? "" : verdict.remedy + "; ") + "--force tries it all the same, --stock runs it without the library");
  }

  RunEnding attached(std::function<bool(int)> watch) {
    RunStreams streams;
    streams.output = context_.console.json() ? RunStreams::Output::keep : RunStreams::Output::pass;
    streams.terminal_type = options_.terminal_type;
    streams.watch = std::move(watch);
    return run_attached(context_.console, operation_.link->session(), launch_, streams);
  }

  /// A library of somebody else's is proven by the process's own mappings. Never asks for the process's end.
  bool see_mapping(int pid, const std::string& library) {
    if (mapped_) {
      return false;
    }
    const auto files = mapped_files(operation_.link->session(), pid);
    mapped_ = std::find(files.begin(), files.end(), library) != files.end();
    return false;
  }

  void require_library(const RunEnding& ending, const ReceiptWatch& receipt) {
    if (receipt.proven()) {
      return;
    }
    const auto status = ending.result.status;
    // env's own word that nothing was started.
    if (receipt.outcome().empty() && (status == env_not_found || status == env_not_executable)) {
      return;
    }
    const bool stock = !receipt.outcome().empty();
    const std::string message =
        stock ? fmt::format("the library left {} stock: {}", cleaned(launch_.command.front()), cleaned(receipt.reason()))
              : fmt::format("{} ran without the library: it wrote no receipt", cleaned(launch_.command.front()));
    if (options_.allow_stock) {
      return context_.console.warn(message);
    }
    Error error(ErrorKind::unproven, stock ? "run-stock" : "run-not-injected", message);
    error.note("the program ended with " + ending.result.ending());
    if (stock) {
      error.note(cleaned(receipt.text(), 600));
    }
    if (!ending.result.err.empty()) {
      error.note("it said: " + cleaned(ending.result.err, 600));
    }
    throw error.fix(
        fmt::format("see: lumelift inspect --vm {} {}; --allow-stock accepts it", operation_.found.name, cleaned(launch_.command.front())));
  }

  int report(const RunEnding& ending, const ReceiptWatch* receipt) {
    Console& console = context_.console;
    if (ending.lost) {
      console.warn(ending.lost_reason.empty() ? "the connection ended before the program did" : ending.lost_reason);
    } else if (!ending.result.signal.empty()) {
      console.say(fmt::format("the program ended by signal {}", cleaned(ending.result.signal, 40)));
    }
    if (receipt != nullptr && !receipt->outcome().empty()) {
      console.detail("library " + receipt->outcome());
    }
    if (!console.json()) {
      return ending.status();
    }
    const auto parsed = receipt == nullptr ? json() : json::parse(receipt->text(), nullptr, false);
    console.result_json(json({{"schema", 1},
                              {"vm", operation_.found.name},
                              {"command", launch_.command},
                              {"stock", options_.stock},
                              {"status", ending.result.status ? json(*ending.result.status) : json()},
                              {"signal", ending.result.signal.empty() ? json() : json(ending.result.signal)},
                              {"exit", ending.status()},
                              {"pid", ending.pid ? json(*ending.pid) : json()},
                              {"stdout", ending.result.out},
                              {"stderr", ending.result.err},
                              {"receipt", parsed.is_object() ? parsed : json()}})
                            .dump(-1, ' ', false, json::error_handler_t::replace));
    return ending.status();
  }

  Context& context_;
  const RunOptions& options_;
  Operation& operation_;
  LibraryOrigin origin_;
  bool mapped_ = false;  ///< a library that writes no receipts was seen in the process
  GuestFacts facts_;
  Launch launch_;
};

}  // namespace

int run_run(Context& context, const RunOptions& options) {
  if (options.command.empty()) {
    throw Error(ErrorKind::usage, "command-missing", "no command is named").fix("example: lumelift run VM -- ./llama-cli -m model.gguf");
  }
  static_cast<void>(variables_from(options.variables));
  if (options.stock) {
    Operation operation(context, options.target, "run", Operation::Touch::nothing);
    operation.link->connect(Deadline::in(answer), GuestLink::Wait::up);
    return Run(context, options, operation).stock();
  }
  const Profile profile = load_profile(options.profile, context.templates);
  auto kit = load_kit(context.libexec);
  const ChosenLibrary library = choose_library(options.library, kit.front(), context.state_dir);
  kit.front() = library.source;
  return with_guest_kit(context, options.target, "run", profile, kit, [&](Operation& operation, const GuestKit& guest) {
    return Run(context, options, operation, library.origin).injected(guest.goal, guest.facts, profile, kit);
  });
}

}  // namespace lumelift
