#include "cli/command_options.hpp"

#include <CLI/CLI.hpp>

#include <cstdlib>

namespace lumelift {
namespace {

/// CLI11's own checks of a range let "nan" pass, which is neither below nor above anything.
CLI::Validator number_between(double low, double high) {
  return {[low, high](const std::string& text) {
            char* end = nullptr;
            const double value = std::strtod(text.c_str(), &end);
            const bool number = !text.empty() && *end == '\0';
            return number && value >= low && value <= high
                       ? std::string()
                       : text + " is no number from " + CLI::detail::to_string(low) + " to " + CLI::detail::to_string(high);
          },
          ""};
}

/// What a spread or a change is compared with, as a fraction.
CLI::Validator limit() {
  return number_between(0, 1000);
}

}  // namespace

void add_options(CLI::App& command, LoginSources& login) {
  command.add_option("--user", login.user, "Account in the guest")->envname("LUMELIFT_USER")->capture_default_str()->group("Login");
  command.add_option("--port", login.port, "SSH port of the guest")
      ->envname("LUMELIFT_PORT")
      ->check(CLI::Range(1, 65535))
      ->capture_default_str()
      ->group("Login");
  command.add_option("--key", login.key_file, "Private key file")->type_name("FILE")->envname("LUMELIFT_KEY")->group("Login");
  // Without one, CLI11 reads the environment for all other commands too, after this one's words and over them.
  command.parse_complete_callback([] {});
  command.add_flag("--agent", login.use_agent, "Also try keys of the SSH agent (two at most)")->group("Login");
  command.add_flag("--via-nc", login.via_nc, "Reach the guest through the system's nc, where Local Network privacy blocks lumelift")
      ->group("Login");
  command.add_option("--password-fd", login.password_fd, "Read the password from this open descriptor")
      ->check(CLI::NonNegativeNumber)
      ->group("Login");
  command.add_option("--password-file", login.password_file, "Read the password from this file (mode 0600)")
      ->type_name("FILE")
      ->group("Login");
  command.add_flag("--ask-password", login.ask_password, "Ask for the password on the terminal; LUMELIFT_PASSWORD also works")
      ->group("Login");
}

void add_target(CLI::App& command, TargetOptions& target, LoginSources& login, bool vm_required) {
  auto* vm = command.add_option("VM", target.vm, "Name of the VM, as lume ls shows it");
  if (vm_required) {
    vm->required();
  }
  command
      .add_option("--timeout", target.timeout_s, "Seconds that a guest has to answer after lumelift started its VM; one that runs has 15")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  add_options(command, login);
}

void add_options(CLI::App& command, LibraryOptions& library) {
  command.add_option("--library", library.files, "A library to inject instead of ours; again for thin files of other architectures")
      ->allow_extra_args(false)
      ->group("Library");
  command.add_option("--accept-sha256", library.accepted, "SHA-256 of a --library that is no published release")
      ->allow_extra_args(false)
      ->group("Library");
}

void add_options(CLI::App& command, FleetOptions& fleet) {
  command.add_option("ACTION", fleet.action, "plan, apply, status, verify, rollback or inventory")
      ->required()
      ->check(CLI::IsMember({"plan", "apply", "status", "verify", "rollback", "inventory"}));
  command.add_option("-f,--file", fleet.file, "The fleet file")->type_name("FILE")->envname("LUMELIFT_FLEET")->capture_default_str();
  command.add_option("--on", fleet.on, "Which host of the file this Mac is");
  command.add_option("--jobs", fleet.jobs, "VMs worked on at a time")->check(CLI::Range(1, 64))->capture_default_str();
  command.add_option("--keep-ready", fleet.keep_ready, "VMs that must keep serving")->check(CLI::Range(0, 64))->capture_default_str();
  command.add_option("--canary", fleet.canary, "So many VMs must succeed before any other is begun")
      ->check(CLI::Range(0, 64))
      ->capture_default_str();
  auto* most =
      command.add_option("--max-fail", fleet.max_fail, "Begin no further VM after more failures than this")->check(CLI::Range(0, 1000));
  command.add_flag("--fail-fast", fleet.fail_fast, "Begin no further VM after the first failure")->excludes(most);
  command.add_flag("--stop-busy", fleet.stop_busy, "Stop VMs in spite of SSH sessions and running workloads");
  command.add_flag("--recheck", fleet.recheck, "Also start VMs that are off, to look at them");
  command.add_flag("--exit-code", fleet.exit_code, "plan: exit status 2 when something would change");
  command.add_option("--out", fleet.out, "plan: save it to this file")->type_name("FILE");
  command.add_option("--plan", fleet.plan, "apply: only if this saved plan still holds")->type_name("FILE");
  command.add_flag("--list", fleet.list, "inventory: all hosts and VMs");
  command.add_option("--host", fleet.one, "inventory: the variables of one of them");
}

void add_options(CLI::App& command, BenchOptions& bench) {
  command.add_option("--profile", bench.profile, "Profile name or file")->type_name("PROFILE")->capture_default_str();
  command.add_option("-m,--model", bench.model, "Model file of this Mac, copied into the guest for the run")
      ->type_name("FILE")
      ->group("Files");
  command
      .add_option("--target", bench.server_url,
                  "Measure a server: it is started for each arm and asked at http://127.0.0.1:PORT in the guest")
      ->type_name("URL");
  command.add_flag("--mlx", bench.mlx, "Measure MLX-LM with a Python of the guest; the model is a folder");
  command.add_option("--bench", bench.bench, "llama-bench, or the server, for the guest; copied likewise")
      ->type_name("FILE")
      ->group("Files");
  command.add_option("--cli", bench.cli, "llama-cli for the guest, copied likewise; default: the one beside llama-bench")
      ->type_name("FILE")
      ->group("Files");
  command.add_option("--file", bench.files, "A library or folder that they need beside them; again for more")
      ->type_name("FILE")
      ->expected(1)
      ->allow_extra_args(false)
      ->group("Files");
  command.add_option("--guest-model", bench.guest_model, "Model that is in the guest already; for Ollama its name")
      ->excludes("--model")
      ->group("Files");
  command.add_option("--guest-bench", bench.guest_bench, "llama-bench, server or Python that is in the guest already")
      ->excludes("--bench")
      ->group("Files");
  command.add_option("--guest-cli", bench.guest_cli, "llama-cli that is in the guest already")->excludes("--cli")->group("Files");
  command.add_option("--host-bench", bench.host_bench, "llama-bench for the bare-metal arm; default: the one on PATH")
      ->type_name("FILE")
      ->group("Files");
  command.add_option("--host-model", bench.host_model, "Model for the bare-metal arm; default: that of --model")
      ->type_name("FILE")
      ->group("Files");
  command.add_flag("--no-host", bench.no_host, "No bare-metal arm");
  command.add_flag("--keep", bench.keep, "Leave the copied files in the guest; rollback removes them");
  command.add_option("-p,--n-prompt", bench.prompts, "Prompt lengths in tokens, as for llama-bench")->capture_default_str();
  command.add_option("-n,--n-gen", bench.generations, "Generation lengths, as for llama-bench")->capture_default_str();
  command.add_option("-r,--repetitions", bench.repetitions, "Repetitions of each test and arm")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command.add_option("--rounds", bench.rounds, "Runs over which an arm's repetitions are spread")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  command.add_option("--order", bench.order, "abab: arms take turns; aabb: one arm after another")
      ->check(CLI::IsMember({"abab", "aabb"}))
      ->capture_default_str();
  command.add_option("--warmup", bench.warm_up, "llama-bench's warm-up before each test: on, off")
      ->check(CLI::IsMember({"on", "off"}))
      ->capture_default_str();
  command.add_option("--cool-down", bench.cool_down_s, "Seconds of rest between two runs")
      ->check(CLI::Range(0, 3600))
      ->capture_default_str();
  command.add_option("--repetition-limit", bench.repetition_limit_s, "Seconds after which a repetition counts as hung")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  command.add_option("--retries", bench.retries, "How often an unsteady arm is measured again")
      ->check(CLI::Range(0, 10))
      ->capture_default_str();
  command.add_option("--spread-limit", bench.spread_reject, "(max - min) / median above which an arm is rejected")
      ->check(limit())
      ->capture_default_str();
  command.add_option("--prompt", bench.prompt, "Prompt of the greedy text that is compared between CPU and GPU")->capture_default_str();
  command.add_option("--text-tolerance", bench.text_tolerance, "Share of that text that may come after the first difference")
      ->check(number_between(0, 1))
      ->capture_default_str();
  command.add_flag("--no-text-check", bench.no_text_check, "Do not compare texts");
  command.add_option("--arg", bench.arguments, "A further word for the program, as --arg=-fa --arg=1")
      ->expected(1)
      ->allow_extra_args(false);
  command.add_option("-o,--output", bench.output, "Folder for the results; default: bench-VM-DATE")->type_name("FOLDER");
}

void add_options(CLI::App& command, ReportOptions& report) {
  command.add_option("FILE", report.inputs, "llama-bench or MLX-LM results, or folders of them");
  command.add_option("--arm", report.arms, "ROLE=FILE with host, stock, unlocked or cpu; again for more")->type_name("ROLE=FILE");
  command.add_option("--format", report.format, "text, json, csv, markdown or html")
      ->check(CLI::IsMember({"text", "json", "csv", "markdown", "html"}))
      ->default_str("text");
  command.add_option("-o,--output", report.output, "Write to this file")->type_name("FILE");
  command.add_option("--spread-flag", report.spread_flag, "Spread above which a row is flagged; default: as measured, or 0.05")
      ->check(limit());
  command.add_option("--spread-reject", report.spread_reject, "Spread above which a row is not used; default: as measured, or 0.5")
      ->check(limit());
  command.add_option("--material", report.material, "Smallest change of a median that counts; default: as measured, or 0.05")
      ->check(limit());
}

}  // namespace lumelift
