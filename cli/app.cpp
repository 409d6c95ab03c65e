#include "cli/app.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>

#include "cli/bug_report.hpp"
#include "cli/command_options.hpp"
#include "cli/completion.hpp"
#include "cli/examples.hpp"
#include "cli/login.hpp"
#include "cli/own_key.hpp"
#include "cli/reference.hpp"
#include "cli/settings.hpp"
#include "cli/usage.hpp"
#include "cli/versions.hpp"
#include "host/sys/platform.hpp"
#include "host/sys/process.hpp"
#include "host/sys/time.hpp"

namespace lumelift {
namespace {

namespace fs = std::filesystem;

std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? std::optional<std::string>(value) : std::nullopt;
}

/// What is set for all commands.
struct Global {
  bool json = false, verbose = false, quiet = false;
  std::vector<std::string> command;  ///< what stands behind "--" of a command that runs something
  std::string color = "auto";
  LoginSources login;
};

fs::path first_existing(std::initializer_list<fs::path> candidates) {
  std::error_code fault;
  for (const auto& path : candidates) {
    if (fs::exists(path, fault)) {
      return path;
    }
  }
  return *candidates.begin();
}

/// A folder that a variable names; empty where it names none or a relative one, which would be another in every folder.
fs::path folder_of(const char* variable) {
  const fs::path given = environment(variable).value_or("");
  return given.is_absolute() ? given : fs::path();
}

/// Empty where nothing says where it is.
fs::path state_folder(const fs::path& home) {
  if (const auto given = environment("LUMELIFT_STATE_DIR")) {
    return *given;
  }
  if (const fs::path xdg = folder_of("XDG_STATE_HOME"); !sys::on_macos && !xdg.empty()) {
    return xdg / "lumelift";
  }
  if (home.empty()) {
    return {};
  }
  return sys::on_macos ? home / "Library" / "Application Support" / "lumelift" : home / ".local" / "state" / "lumelift";
}

SettingsFiles settings_files() {
  const fs::path home = folder_of("HOME"), xdg = folder_of("XDG_CONFIG_HOME");
  const fs::path folder = xdg.empty() && !home.empty() ? home / ".config" : xdg;
  return {"lumelift.yaml", folder.empty() ? folder : folder / "lumelift" / "config.yaml", home};
}

Context make_context(Console& console) {
  const fs::path folder = sys::executable_path().parent_path();
  const fs::path home = folder_of("HOME");
  Context context{console, state_folder(home), home, {}, {}, {}};
  const auto kit = environment("LUMELIFT_KIT_DIR");
  // Beside the program in a build folder, else where `cmake --install` puts it.
  context.libexec = kit ? fs::path(*kit) : first_existing({folder / "shim", folder.parent_path() / "libexec" / "lumelift"});
  const auto templates = environment("LUMELIFT_TEMPLATES_DIR");
  context.templates =
      templates ? fs::path(*templates) : first_existing({folder / "templates", folder.parent_path() / "share" / "lumelift"});
  context.user.home = environment("HOME");
  context.user.sudo_uid = environment("SUDO_UID");
  return context;
}

/// Takes a variable out of our environment together with its bytes, which /proc would go on to show.
void forget(const char* name) {
  if (char* value = std::getenv(name)) {
    std::fill_n(value, std::char_traits<char>::length(value), '\0');
  }
  ::unsetenv(name);
}

const CLI::IsMember restart_words{{"auto", "always", "never", "idle"}};

/// Whether a command with these options works without the folder of journal and locks.
bool stateless(const auto& options) {
  using Options = std::remove_cvref_t<decltype(options)>;
  if constexpr (std::is_same_v<Options, InspectOptions> || std::is_same_v<Options, ExplainOptions>) {
    return options.target.vm.empty();
  }
  return std::is_same_v<Options, ReportOptions> || std::is_same_v<Options, EvidenceOptions> || std::is_same_v<Options, BugReportOptions>;
}

/// Whether a command with these options only answers: what it says is all that it does.
bool only_answers(const auto& options) {
  using Options = std::remove_cvref_t<decltype(options)>;
  if constexpr (requires { options.dry_run; }) {
    return options.dry_run;
  } else if constexpr (requires { options.action; }) {
    const auto answers = {"list", "logs", "plan", "status", "verify", "inventory", "issue"};
    return std::find(answers.begin(), answers.end(), options.action) != answers.end();
  }
  return std::is_same_v<Options, StatusOptions> || std::is_same_v<Options, HistoryOptions> || std::is_same_v<Options, DoctorOptions> ||
         std::is_same_v<Options, ProbeOptions> || std::is_same_v<Options, VerifyOptions> || std::is_same_v<Options, InspectOptions> ||
         std::is_same_v<Options, ExplainOptions> || std::is_same_v<Options, ReportOptions> || std::is_same_v<Options, LogsOptions>;
}

/// All options of all commands. The action of the chosen one is left in `action`.
class Commands {
 public:
  explicit Commands(Global& global) : global_(global) { declare(); }

  CLI::App app{"Gives a macOS VM on Apple silicon the Metal capabilities that its GPU really has, and takes everything back exactly."};
  std::function<int(Context&)> action;
  bool bare = false;     ///< the chosen command heeds no settings
  bool answers = false;  ///< it is there for its answer alone

 private:
  template <class Options>
  CLI::App& add(const char* name, const char* text, const std::shared_ptr<Options>& options, int (*run)(Context&, const Options&)) {
    CLI::App& command = *app.add_subcommand(name, text);
    if (const std::string lines = examples_of(name, "  "); !lines.empty()) {
      command.footer("Examples:\n" + lines);
    }
    command.callback([this, options, run] {
      answers = only_answers(*options);
      action = [this, options, run](Context& context) {
        if (context.state_dir.empty() && !stateless(*options)) {
          throw home_unknown();
        }
        resolve(*options, context);
        return run(context, *options);
      };
    });
    return command;
  }

  /// How to log in, for a command that may.
  void resolve(auto& options, const Context& context) const {
    const fs::path own_key = context.state_dir.empty() ? fs::path() : own_key_file(context.state_dir);
    const auto login = [&] { return resolve_login(global_.login, context.home, own_key); };
    if constexpr (requires { options.target.login; }) {
      options.target.login = login();
    }
    if constexpr (requires { options.login; }) {
      options.login = login();
    }
  }

  void declare() {
    app.fallthrough();
    app.add_flag("--json", global_.json, "One JSON object on standard output");
    // Behind --json, which decides how the version is told.
    app.set_version_flag("--version", std::string("lumelift ") + LUMELIFT_VERSION, "Version, with --json those of all libraries too");
    app.add_flag("-v,--verbose", global_.verbose, "Show each command and how long it took");
    app.add_flag("-q,--quiet", global_.quiet, "Only results, warnings and errors");
    app.add_option("--color", global_.color, "auto, always or never")
        ->check(CLI::IsMember({"auto", "always", "never"}))
        ->capture_default_str();
    app.require_subcommand(0, 1);

    auto unlock = std::make_shared<UnlockOptions>();
    CLI::App& unlock_command = add("unlock", "Unlock a VM, prove it, and run a workload with the library in it", unlock, &run_unlock);
    add_target(unlock_command, unlock->target, global_.login, true);
    unlock_command.add_option("--workload", unlock->workload, "Workload file (YAML)")->type_name("FILE");
    unlock_command.add_option("--profile", unlock->profile, "Profile name or file")->type_name("PROFILE")->capture_default_str();
    unlock_command
        .add_option("--restart", unlock->restart, "Restart the VM: auto (when needed), idle (only when nobody uses it), always, never")
        ->check(restart_words)
        ->capture_default_str();
    unlock_command.add_option("--host-preference", unlock->host_preference, "set, or keep it as it is")
        ->check(CLI::IsMember({"set", "keep"}))
        ->capture_default_str();
    unlock_command.add_flag("--install-key", unlock->install_key,
                            "Let later commands log in without a password, by a key of lumelift's own; rollback removes it");
    unlock_command.add_flag("--dry-run", unlock->dry_run, "Show what would be done; change nothing");
    unlock_command.add_flag("--verify", unlock->verify, "Read large files in the guest again instead of trusting its manifest");

    add_options(unlock_command, unlock->library);

    auto rollback = std::make_shared<RollbackOptions>();
    CLI::App& rollback_command = add("rollback", "Take back everything that lumelift did to a VM", rollback, &run_rollback);
    add_target(rollback_command, rollback->target, global_.login, false);
    rollback_command
        .add_option("--restart", rollback->restart,
                    "Restart the VM to make it stock: auto, idle (only when nobody is logged in), always, never")
        ->check(restart_words)
        ->capture_default_str();
    auto* host = rollback_command.add_flag("--host", rollback->host, "Only the host preference");
    rollback_command.add_flag("--all", rollback->all, "Every VM")->excludes(host);
    rollback_command.add_flag("--dry-run", rollback->dry_run, "Show what would be taken back from one VM; change nothing");
    auto power = std::make_shared<PowerOptions>();
    CLI::App& power_command =
        add("power", "Switch a VM on, or cleanly off; or take back what a crash left: power VM on|off|recover", power, &run_power);
    add_target(power_command, power->target, global_.login, true);
    power_command.add_option("STATE", power->to, "on, off or recover")->required()->check(CLI::IsMember({"on", "off", "recover"}));
    power_command.add_flag("--if-idle", power->if_idle, "Do not switch off a VM with other SSH sessions or running workloads");

    auto status = std::make_shared<StatusOptions>();
    add_target(add("status", "Show preference, VMs, claims, workloads and drift; changes nothing", status, &run_status), status->target,
               global_.login, false);
    auto probe = std::make_shared<ProbeOptions>();
    CLI::App& probe_command = add("probe", "Show stock beside unlocked answers of a running VM", probe, &run_probe);
    add_target(probe_command, probe->target, global_.login, true);
    probe_command.add_option("--profile", probe->profile, "Profile name or file")->type_name("PROFILE")->capture_default_str();
    auto history = std::make_shared<HistoryOptions>();
    add("history", "List what was done, oldest first", history, &run_history).add_option("VM", history->vm, "Only this VM");
    auto doctor = std::make_shared<DoctorOptions>();
    add_target(add("doctor", "Check every precondition; each finding with evidence and fix", doctor, &run_doctor), doctor->target,
               global_.login, false);
    auto trust = std::make_shared<TrustOptions>();
    add("trust", "Forget a VM's pinned SSH host key", trust, &run_trust).add_option("VM", trust->vm, "Name of the VM")->required();

    auto inspect = std::make_shared<InspectOptions>();
    CLI::App& inspect_command = add("inspect", "Tell whether the library can be injected into a program", inspect, &run_inspect);
    inspect_command.add_option("FILE", inspect->files, "Programs, scripts, apps")->required();
    inspect_command.add_option("--vm", inspect->target.vm, "The files are in the guest of this VM")->type_name("VM");
    add_options(inspect_command, global_.login);
    auto verify = std::make_shared<VerifyOptions>();
    CLI::App& verify_command = add("verify", "Assert that a VM is unlocked as it was proven; for CI", verify, &run_verify);
    add_target(verify_command, verify->target, global_.login, true);
    verify_command.add_flag("--self-test", verify->self_test, "Show first that the check refuses a stock process");
    auto copy = std::make_shared<CopyOptions>();
    CLI::App& copy_command =
        add("copy", "Copy files and folders into a guest, or out of it with --from: copy VM SRC... DST", copy, &run_copy);
    add_target(copy_command, copy->target, global_.login, true);
    copy_command.add_option("PATH", copy->paths, "Files or folders, and at the end where to; guest paths are relative to its home")
        ->required()
        ->expected(2, -1);
    CLI::Option* from = copy_command.add_flag("--from", copy->from, "Out of the guest: SRC... are there, DST is on this Mac");
    copy_command.add_flag("--dry-run", copy->dry_run, "Show what would be sent into the guest; change nothing")->excludes(from);
    copy_command.add_flag("--verify", copy->verify, "Read what stands there already instead of trusting the guest's manifest");
    copy_command.add_option("--connections", copy->connections, "SSH connections for one large file; default: as many as pay")
        ->check(CLI::Range(1, 4));
    declare_programs();
    declare_agents();
    declare_bench();
    auto report = std::make_shared<ReportOptions>();
    CLI::App& report_command = add("report", "Statistics and charts of benchmark files", report, &run_report);
    add_options(report_command, *report);
    declare_evidence();
    declare_fleet();
    declare_bug_report();
    declare_hidden();
  }

  /// Many VMs of this Mac by one file.
  void declare_fleet() {
    auto fleet = std::make_shared<FleetOptions>();
    CLI::App& command = add("fleet", "Many VMs by one file: plan, apply, status, verify, rollback, inventory", fleet, &run_fleet);
    add_options(command, *fleet);
    add_options(command, global_.login);
  }

  void declare_bench() {
    auto bench = std::make_shared<BenchOptions>();
    CLI::App& command =
        add("bench", "Measure llama-bench, a server or MLX-LM: stock, unlocked, on the guest's CPU and on this Mac", bench, &run_bench);
    add_target(command, bench->target, global_.login, true);
    add_options(command, *bench);
  }

  /// Commands that run a program; what it is stands behind "--" and is cut off before the options are read.
  void declare_programs() {
    auto run = std::make_shared<RunOptions>();
    CLI::App& run_command = add("run", "Run one program in the guest with the library in it: run VM -- CMD ARG...", run, &run_run);
    add_target(run_command, run->target, global_.login, true);
    run_command.add_option("--profile", run->profile, "Profile name or file")->type_name("PROFILE")->capture_default_str();
    auto* stock = run_command.add_flag("--stock", run->stock, "Without the library, and without any of its variables");
    run_command.add_flag("--allow-stock", run->allow_stock, "Accept a program that did not get the library")->excludes(stock);
    run_command.add_flag("--force", run->force, "Try a program that the library cannot be injected into");
    run_command.add_flag("--inherit", run->inherit, "Children get the library too");
    add_options(run_command, run->library);
    run_command.add_option("--env", run->variables, "NAME=VALUE for the program; again for more")
        ->type_name("NAME=VALUE")
        ->expected(1)
        ->allow_extra_args(false);
    run_command.add_option("--dir", run->folder, "Working directory in the guest");
    run_command.preparse_callback([this, run](std::size_t) {
      run->command = global_.command;
      run->terminal_type = environment("TERM").value_or("");
    });
    auto explain = std::make_shared<ExplainOptions>();
    CLI::App& explain_command =
        add("explain", "Tell what an unlock would change for a program: explain VM -- CMD ARG..., or --trace FILE", explain, &run_explain);
    add_target(explain_command, explain->target, global_.login, false);
    explain_command.add_option("--profile", explain->profile, "Profile name or file")->capture_default_str();
    explain_command.add_option("--trace", explain->trace, "A trace file of the library instead of a run");
    explain_command.add_option("--runtime", explain->runtime, "What the program is built on, where that is not seen");
    explain_command.add_option("--env", explain->variables, "NAME=VALUE for the program; again for more")
        ->expected(1)
        ->allow_extra_args(false);
    explain_command.add_option("--dir", explain->folder, "Working directory in the guest");
    explain_command.preparse_callback([this, explain](std::size_t) { explain->command = global_.command; });
    auto ablate = std::make_shared<AblateOptions>();
    CLI::App& ablate_command =
        add("ablate", "Tell which lever matters here, host preference or library: ablate VM [-- CMD ARG...]", ablate, &run_ablate);
    add_target(ablate_command, ablate->target, global_.login, true);
    ablate_command.add_option("--profile", ablate->profile, "Profile name or file")->capture_default_str();
    ablate_command.add_option("--env", ablate->variables, "NAME=VALUE for the command; again for more")
        ->expected(1)
        ->allow_extra_args(false);
    ablate_command.add_option("--dir", ablate->folder, "Working directory in the guest");
    ablate_command.preparse_callback([this, ablate](std::size_t) { ablate->command = global_.command; });
  }

  /// What lumelift runs in a guest, and what that printed.
  void declare_agents() {
    auto agents = std::make_shared<AgentsOptions>();
    CLI::App& agents_command =
        add("agents", "List, start, stop, restart, read or remove what lumelift runs in a guest", agents, &run_agents);
    add_target(agents_command, agents->target, global_.login, true);
    agents_command.add_option("ACTION", agents->action, "list, start, stop, restart, rotate, logs or remove")
        ->check(CLI::IsMember({"list", "start", "stop", "restart", "rotate", "logs", "remove"}))
        ->capture_default_str();
    agents_command.add_option("LABEL", agents->label, "Label of the agent");
    agents_command.add_flag("-f,--follow", agents->follow, "logs: go on until interrupted");
    agents_command.add_option("--since", agents->since, "logs: only what is younger than this: 90s, 15m, 2h, 3d");
    auto logs = std::make_shared<LogsOptions>();
    CLI::App& logs_command = add("logs", "Show what an agent printed", logs, &run_logs);
    add_target(logs_command, logs->target, global_.login, true);
    logs_command.add_option("LABEL", logs->label, "Label of the agent")->required();
    logs_command.add_flag("-f,--follow", logs->follow, "Go on until interrupted");
    logs_command.add_option("--since", logs->since, "Only what is younger than this: 90s, 15m, 2h, 3d");
  }

  /// Bundles of raw outputs, and what was proven on this host.
  void declare_evidence() {
    auto evidence = std::make_shared<EvidenceOptions>();
    CLI::App& evidence_command = add("evidence", "Pack, verify or post a bundle of raw benchmark outputs", evidence, &run_evidence);
    evidence_command.add_option("ACTION", evidence->action, "pack, verify or issue")
        ->required()
        ->check(CLI::IsMember({"pack", "verify", "issue"}));
    evidence_command.add_option("FOLDER", evidence->folder, "Raw outputs (pack), or the bundle")->required();
    evidence_command.add_option("BUNDLE", evidence->bundle, "The bundle to make (pack)");
    evidence_command.add_option("--fact", evidence->facts, "KEY=VALUE for the environment record; again for more")->type_name("KEY=VALUE");
    evidence->local_user = environment("USER").value_or("");
    evidence->local_host = environment("HOSTNAME").value_or("");
    auto compat = std::make_shared<CompatOptions>();
    CLI::App& compat_command = add("compat", "What was proven on this host: list, add BUNDLE, forget [WORKLOAD]", compat, &run_compat);
    compat_command.add_option("ACTION", compat->action, "list, add or forget")
        ->check(CLI::IsMember({"list", "add", "forget"}))
        ->capture_default_str();
    compat_command.add_option_function<std::string>(
        "ARGUMENT", [compat](const std::string& value) { compat->bundle = compat->workload = value; },
        "Bundle to add, or workload to forget");
  }

  void declare_bug_report() {
    auto report = std::make_shared<BugReportOptions>();
    CLI::App& command = add("bug-report", "Gather what a bug report needs, with names and addresses taken out", report, &run_bug_report);
    command.add_option("VM", report->vm, "Look at this VM's guest too");
    command.add_option("-o,--output", report->output, "File to write")->type_name("FILE")->capture_default_str();
    command.preparse_callback([report](std::size_t) {
      report->user = environment("USER").value_or("");
      report->host = environment("HOSTNAME").value_or("");
      report->version = versions_json(LUMELIFT_VERSION);
      const SettingsFiles files = settings_files();
      report->settings = {files.project, files.user};
      for (const char* name : {"LUMELIFT_STATE_DIR", "LUMELIFT_KIT_DIR", "LUMELIFT_TEMPLATES_DIR", "LUMELIFT_USER", "LUMELIFT_PORT",
                               "LUMELIFT_KEY", "NO_COLOR", "PATH"}) {
        report->variables.emplace_back(name, environment(name).value_or("not set"));
      }
    });
  }

  /// For shells and packagers; nobody types them.
  void declare_hidden() {
    CLI::App& complete = *app.add_subcommand("complete", "What can stand where the cursor is: complete -- WORD...")->group("");
    complete.callback([this] {
      bare = true;
      action = [this](Context& context) { return run_complete(context, reference_of(app), global_.command); };
    });
    auto folder = std::make_shared<std::string>();
    CLI::App& reference = *app.add_subcommand("reference", "Write man pages, tables and schemas into a folder")->group("");
    reference.add_option("FOLDER", *folder, "Where to")->required();
    reference.callback([this, folder] {
      bare = true;
      action = [this, folder](Context&) {
        write_reference(reference_of(app), *folder, LUMELIFT_VERSION);
        return 0;
      };
    });
  }

  Global& global_;
};

Console::Options console_options(const Global& global) {
  Console::Options options;
  options.json = global.json;
  options.verbosity = global.verbose ? 1 : global.quiet ? -1 : 0;
  options.color = global.color == "always" ? ColorMode::always : global.color == "never" ? ColorMode::never : ColorMode::automatic;
  options.no_color_env = environment("NO_COLOR").has_value();
  return options;
}

int run(int argc, char** argv) {
  Global global;
  Commands commands(global);
  global.command = cut_command(commands.app, argc, argv);
  const auto refused = [&](const Error& error) {
    // What is wrong may stand before the words that ask for JSON were taken in.
    global.json = global.json || asks_for_json(argc, argv);
    Console console(console_options(global));
    console.error(error);
    return console.finish(exit_status(error.kind()));
  };
  try {
    commands.app.parse(argc, argv);
    if (commands.app.get_subcommands().empty()) {
      // Nothing was chosen: the overview, which heeds what status does and asks for no password.
      global.login.may_ask = false;
      std::vector<std::string> words = {"status"};
      words.insert(words.end(), std::reverse_iterator(argv + argc), std::reverse_iterator(argv + 1));
      commands.app.parse(std::move(words));
    }
    if (!commands.bare) {
      apply_settings(commands.app, settings_files());
    }
  } catch (const CLI::CallForHelp&) {
    Console console(console_options(global));
    console.result(commands.app.help());
    return console.finish(0, Console::Purpose::answer);
  } catch (const CLI::CallForVersion& version) {
    Console console(console_options(global));
    global.json ? console.result_json(versions_json(LUMELIFT_VERSION)) : console.result(version.what());
    return console.finish(0, Console::Purpose::answer);
  } catch (const CLI::ParseError& problem) {
    return refused(
        usage_error(problem, commands.app, argc, argv, [](const std::string& name) { return environment(name.c_str()).has_value(); }));
  } catch (const Error& error) {
    return refused(error);
  }
  global.login.password_env = environment("LUMELIFT_PASSWORD");
  global.login.passphrase_env = environment("LUMELIFT_KEY_PASSPHRASE");
  // No child of ours is to see them.
  forget("LUMELIFT_PASSWORD");
  forget("LUMELIFT_KEY_PASSPHRASE");
  Console console(console_options(global));
  sys::arm_signals();
  sys::observe_runs([&console](const sys::Command& command, const sys::Outcome& outcome) {
    console.detail(fmt::format("host  {:>5} ms  {}  {}", outcome.elapsed.count(), outcome.ending(), sys::shown(command.argv)));
  });
  const auto end = [&](int status) { return console.finish(status, commands.answers ? Console::Purpose::answer : Console::Purpose::act); };
  try {
    Context context = make_context(console);
    const int status = commands.action(context);
    if (sys::pending_signal() != 0) {
      console.interrupted();
    }
    return end(status);
  } catch (const Error& error) {
    console.error(error);
    return end(exit_status(error.kind()));
  } catch (const sys::Interrupted&) {
    console.say("interrupted; nothing was changed");
    console.interrupted();
    return end(130);
  } catch (const std::exception& fault) {
    console.error(Error(ErrorKind::failed, "internal", fmt::format("unexpected: {}", fault.what()))
                      .fix("please report this with what `lumelift bug-report` gathers"));
    return end(exit_status(ErrorKind::failed));
  }
}

}  // namespace

int run_app(int argc, char** argv) noexcept {
  try {
    return run(argc, argv);
  } catch (...) {
    return exit_status(ErrorKind::failed);
  }
}

}  // namespace lumelift
