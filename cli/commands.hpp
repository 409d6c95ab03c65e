#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/console.hpp"
#include "host/host.hpp"
#include "host/sys/secret.hpp"

namespace lumelift {

/// What the composition root found out once: nothing below it reads the environment.
struct Context {
  Console& console;
  std::filesystem::path state_dir;  ///< journal and locks
  std::filesystem::path home;       ///< of the user
  std::filesystem::path libexec;    ///< folder with liblumelift-metal.dylib and lumelift-probe
  std::filesystem::path templates;  ///< folder with profiles and skeletons
  Invoker user = {};                ///< who runs this, as the environment says
};

/// How to log in to a guest; shared by all commands that do.
struct LoginOptions {
  std::string user = "lume";
  int port = 22;
  std::optional<sys::Secret> password;
  std::optional<std::filesystem::path> key_file;
  std::optional<sys::Secret> passphrase;
  bool use_agent = false;
  bool via_nc = false;                              ///< the system's nc carries the connection
  std::vector<std::filesystem::path> default_keys;  ///< tried when they exist
};

/// How much a command may restart, set and wait; see cli/plan.hpp for Restart.
struct TargetOptions {
  std::string vm;
  LoginOptions login;
  int timeout_s = 180;  ///< from starting the VM until its guest answers
};

/// A library that the user brings instead of ours; see cli/library.hpp.
struct LibraryOptions {
  std::vector<std::filesystem::path> files;  ///< one, or thin ones to be joined; empty: our own
  std::vector<std::string> accepted;         ///< SHA-256 of each that is not a published release
};

/// One function per subcommand; each returns the exit status of the process and throws Error for failures.

struct InspectOptions {
  TargetOptions target;  ///< vm: the files are in its guest; empty: on this Mac
  std::vector<std::string> files;
};
[[nodiscard]] int run_inspect(Context& context, const InspectOptions& options);

struct ReportOptions {
  std::vector<std::string> inputs;    ///< files or folders
  std::vector<std::string> arms;      ///< "ROLE=FILE" with host, stock, unlocked or cpu
  std::optional<std::string> format;  ///< text, json, csv, markdown, html; absent: text, or JSON for --json
  std::optional<std::string> output;  ///< file for the report; stdout when absent
  // Absent: what the folder of a benchmark says it was judged by, else as Limits has them.
  std::optional<double> spread_flag;    ///< (max - min) / median above which a row is flagged
  std::optional<double> spread_reject;  ///< and above which it is not used
  std::optional<double> material;       ///< smallest change of a median that counts
};
[[nodiscard]] int run_report(Context& context, const ReportOptions& options);

struct EvidenceOptions {
  std::string action;              ///< pack, verify, issue
  std::filesystem::path folder;    ///< pack: the raw outputs; else the bundle
  std::filesystem::path bundle;    ///< pack: the bundle to make
  std::vector<std::string> facts;  ///< pack: "KEY=VALUE" for the environment record
  std::string local_user;          ///< pack: names to take out wherever they stand
  std::string local_host;
};
[[nodiscard]] int run_evidence(Context& context, const EvidenceOptions& options);

struct CompatOptions {
  std::string action = "list";   ///< list, add, forget
  std::filesystem::path bundle;  ///< add: a verified evidence bundle of this host
  std::string workload;          ///< forget: this one; empty: all
};
[[nodiscard]] int run_compat(Context& context, const CompatOptions& options);

struct UnlockOptions {
  TargetOptions target;
  std::string profile = "tested";
  std::optional<std::filesystem::path> workload;
  std::string restart = "auto";         ///< auto, always, never
  std::string host_preference = "set";  ///< set, keep
  LibraryOptions library;
  bool dry_run = false;
  bool install_key = false;  ///< put a key of lumelift's own into the guest's authorized_keys
  bool verify = false;       ///< read large files in the guest again, whatever its manifest says
};
[[nodiscard]] int run_unlock(Context& context, const UnlockOptions& options);

struct RollbackOptions {
  TargetOptions target;
  std::string restart = "auto";  ///< auto, always, never
  bool host = false;             ///< the preference alone
  bool all = false;              ///< every VM
  bool dry_run = false;          ///< show what would be taken back; one VM
};
[[nodiscard]] int run_rollback(Context& context, const RollbackOptions& options);

struct StatusOptions {
  TargetOptions target;  ///< vm may be empty: all
};
[[nodiscard]] int run_status(Context& context, const StatusOptions& options);

struct ProbeOptions {
  TargetOptions target;
  std::string profile = "tested";
};
[[nodiscard]] int run_probe(Context& context, const ProbeOptions& options);

struct HistoryOptions {
  std::string vm;  ///< empty: all
};
[[nodiscard]] int run_history(Context& context, const HistoryOptions& options);

struct DoctorOptions {
  TargetOptions target;  ///< vm may be empty: the host alone
};
[[nodiscard]] int run_doctor(Context& context, const DoctorOptions& options);

struct TrustOptions {
  std::string vm;
};
[[nodiscard]] int run_trust(Context& context, const TrustOptions& options);

struct RunOptions {
  TargetOptions target;
  std::string profile = "tested";
  bool stock = false;        ///< without the library, and proven scrubbed
  bool allow_stock = false;  ///< a process that did not get the library is fine
  bool force = false;        ///< in spite of the verdict
  bool inherit = false;      ///< children get the library too
  LibraryOptions library;
  std::vector<std::string> variables;  ///< "NAME=VALUE"
  std::string folder;                  ///< working directory in the guest; empty: home
  std::string terminal_type;           ///< TERM of the caller; empty: no terminal is asked for
  std::vector<std::string> command;
};
[[nodiscard]] int run_run(Context& context, const RunOptions& options);

struct CopyOptions {
  TargetOptions target;
  std::vector<std::string> paths;  ///< what is copied, and at the end where to
  bool from = false;               ///< out of the guest
  bool verify = false;             ///< read everything that stands there already, whatever the manifest says
  bool dry_run = false;            ///< into the guest only
  unsigned connections = 0;        ///< 0: as many as pay
};
[[nodiscard]] int run_copy(Context& context, const CopyOptions& options);

struct ExplainOptions {
  TargetOptions target;  ///< vm empty: a trace file is explained
  std::string profile = "tested";
  std::optional<std::filesystem::path> trace;
  std::string runtime;                 ///< row of the table; empty: recognised by the program
  std::vector<std::string> variables;  ///< as for run
  std::string folder;
  std::vector<std::string> command;
};
[[nodiscard]] int run_explain(Context& context, const ExplainOptions& options);

struct AblateOptions {
  TargetOptions target;
  std::string profile = "tested";
  std::vector<std::string> variables;  ///< as for run
  std::string folder;
  std::vector<std::string> command;  ///< may be empty: only the answers are compared
};
[[nodiscard]] int run_ablate(Context& context, const AblateOptions& options);

struct VerifyOptions {
  TargetOptions target;
  bool self_test = false;  ///< show that the process check refuses a stock process
};
[[nodiscard]] int run_verify(Context& context, const VerifyOptions& options);

struct AgentsOptions {
  TargetOptions target;
  std::string action = "list";  ///< list, start, stop, restart, rotate, logs, remove
  std::string label;            ///< empty for list
  bool follow = false;          ///< logs: as in LogsOptions
  std::string since;
};
[[nodiscard]] int run_agents(Context& context, const AgentsOptions& options);

struct LogsOptions {
  TargetOptions target;
  std::string label;
  bool follow = false;
  std::string since;  ///< "15m"; empty: all
};
[[nodiscard]] int run_logs(Context& context, const LogsOptions& options);

struct BenchOptions {
  TargetOptions target;
  std::string profile = "tested";
  std::optional<std::filesystem::path> model, bench, cli;       ///< files of this Mac, copied into the guest for the run
  std::vector<std::filesystem::path> files;                     ///< what the programs need beside them: libraries, folders
  std::string guest_model, guest_bench, guest_cli;              ///< or what is there already
  std::string server_url;                                       ///< "http://127.0.0.1:PORT": `bench` is a server that is asked there
  bool mlx = false;                                             ///< `guest_bench` is a Python with mlx-lm
  std::optional<std::filesystem::path> host_model, host_bench;  ///< for the bare-metal arm
  bool no_host = false;                                         ///< no bare-metal arm even where llama-bench is on PATH
  std::string prompts = "512", generations = "128";
  int repetitions = 10, rounds = 2;
  std::string order = "abab";    ///< abab, aabb
  std::string warm_up = "on";    ///< on, off
  int cool_down_s = 5;           ///< seconds of rest before each run but the first
  int repetition_limit_s = 120;  ///< seconds after which one repetition counts as hung
  int retries = 1;               ///< how often an arm with too wide a spread, or a run with a clock jump, is repeated
  double spread_flag = 0.05, spread_reject = 0.5, material = 0.05;
  std::string prompt = "Name the planets of the solar system in order.";
  int text_tokens = 32;
  double text_tolerance = 0.5;  ///< share of the text behind the first difference that is let pass
  bool no_text_check = false;
  std::vector<std::string> arguments;  ///< further words for llama-bench
  std::optional<std::filesystem::path> output;
  bool keep = false;  ///< leave the files in the guest; rollback removes them
};
[[nodiscard]] int run_bench(Context& context, const BenchOptions& options);

}  // namespace lumelift
