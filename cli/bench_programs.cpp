#include "cli/bench_programs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "cli/guest_verdict.hpp"
#include "host/sys/hash.hpp"
#include "host/sys/process.hpp"

namespace lumelift {
namespace {

namespace fs = std::filesystem;

constexpr sys::Milliseconds tool_limit{10'000};
constexpr const char* bench_name = "llama-bench";
constexpr const char* cli_name = "llama-cli";
constexpr const char* harness_name = "mlx_harness.py";
constexpr const char* python_name = "python3";

/// llama-bench garbles names that are not ASCII in its JSON.
std::string plain_name(const fs::path& path) {
  std::string name = path.filename().string();
  std::replace_if(
      name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) > 126 || static_cast<unsigned char>(c) < 33; }, '_');
  return name;
}

/// llama-bench prints no text: another program writes it, named or beside the benchmark.
std::optional<fs::path> text_source(const BenchOptions& options, Subject subject) {
  if (subject != Subject::llama_bench) {
    return std::nullopt;
  }
  if (options.no_text_check || options.cli || !options.guest_cli.empty()) {
    return options.cli;
  }
  std::error_code fault;
  if (!options.bench) {
    return std::nullopt;
  }
  const auto beside = options.bench->parent_path() / cli_name;
  return fs::exists(beside, fault) ? std::optional(beside) : std::nullopt;
}

void add_folders(GuestGoal& goal, const std::string& root, std::string path) {
  std::vector<std::string> missing;
  for (; path.size() > root.size(); path = fs::path(path).parent_path().string()) {
    const bool known = std::any_of(goal.folders.begin(), goal.folders.end(), [&](const GuestGoal::Folder& f) { return f.path == path; });
    if (!known) {
      missing.push_back(path);
    }
  }
  for (auto next = missing.rbegin(); next != missing.rend(); ++next) {
    goal.folders.push_back({*next, 0755, false});
  }
}

std::optional<fs::path> on_path(const char* program) {
  try {
    const auto outcome = sys::run({.argv = {"which", program}}, sys::Deadline::in(tool_limit));
    const auto line = outcome.out.substr(0, outcome.out.find('\n'));
    return outcome.ok() && line.starts_with("/") ? std::optional<fs::path>(line) : std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
}

void find_host(const BenchOptions& options, BenchPlace& place) {
  if (options.no_host || place.subject != Subject::llama_bench) {
    return;
  }
  const auto bench = options.host_bench ? options.host_bench : on_path(bench_name);
  const auto model = options.host_model ? options.host_model : options.model;
  if (!bench || !model) {
    return;
  }
  place.host_bench = fs::absolute(*bench);
  place.host_model = fs::absolute(*model);
  place.host_hashes = {sys::sha256_file(*place.host_bench), sys::sha256_file(*place.host_model)};
}

/// The files that make a folder the model it is.
std::vector<std::string> model_parts(GuestLink& link, const std::string& folder) {
  const auto listed = link.guest().run_program({"/bin/ls", folder}, {}, sys::Deadline::in(tool_limit));
  std::vector<std::string> names;
  for (std::string_view rest = listed.out; !rest.empty();) {
    const auto name = fs::path(rest.substr(0, rest.find('\n')));
    rest.remove_prefix(std::min(rest.size(), name.native().size() + 1));
    if (name.extension() == ".json" || name.extension() == ".safetensors") {
      names.push_back(name.string());
    }
  }
  if (!names.empty()) {
    return names;
  }
  throw Error(ErrorKind::usage, "bench-file-missing", fmt::format("there is no model of MLX-LM in {} of the guest", folder))
      .fix("--model FOLDER copies one, --guest-model PATH names the folder of one that is there");
}

}  // namespace

Subject bench_subject(const BenchOptions& options) {
  const auto refused = [](std::string why) { return Error(ErrorKind::usage, "bench-options", std::move(why)); };
  if (options.server_url.empty() && !options.mlx) {
    return Subject::llama_bench;
  }
  if (options.host_bench || options.host_model) {
    throw refused("the bare-metal arm is there for llama-bench only");
  }
  if (options.cli || !options.guest_cli.empty()) {
    throw refused("--cli goes with llama-bench; servers and MLX-LM write the text themselves");
  }
  if (options.mlx) {
    if (!options.server_url.empty()) {
      throw refused("--mlx and --target are two different things to measure");
    }
    if (options.bench) {
      throw refused("MLX-LM runs in a Python of the guest: --guest-bench names it");
    }
    return Subject::mlx;
  }
  if (!options.bench && options.guest_bench.empty()) {
    throw refused("which server is to be started for each arm?")
        .fix("--bench FILE copies one into the guest, --guest-bench PATH names one that is there");
  }
  const auto program = options.bench ? options.bench->filename().string() : fs::path(options.guest_bench).filename().string();
  if (program != "ollama") {
    return Subject::llama_server;
  }
  if (options.model || options.guest_model.empty()) {
    throw refused("Ollama keeps its models itself").fix("--guest-model NAME, as `ollama list` shows it");
  }
  return Subject::ollama;
}

BenchSettings bench_settings(const BenchOptions& options) {
  BenchSettings settings;
  settings.subject = bench_subject(options);
  if (is_server(settings.subject)) {
    settings.port = target_port(options.server_url);
  }
  settings.prompts = options.prompts;
  settings.generations = options.generations;
  settings.repetitions = options.repetitions;
  settings.rounds = options.rounds;
  settings.arm_by_arm = options.order == "aabb";
  settings.warm_up = options.warm_up != "off";
  settings.extra = options.arguments;
  check_bench(settings);
  return settings;
}

BenchSources bench_sources(const BenchOptions& options, Subject subject, const std::vector<Source>& kit, const fs::path& templates) {
  if (!options.model && options.guest_model.empty()) {
    throw Error(ErrorKind::usage, "bench-model-missing", "no model is named")
        .fix("--model FILE copies one into the guest, --guest-model PATH names one that is there");
  }
  Workload workload;
  BenchSources out;
  const auto add = [&](const fs::path& from, const std::string& to) {
    workload.files.push_back({fs::absolute(from), to});
    return to;
  };
  if (options.bench) {
    out.bench = add(*options.bench, subject == Subject::llama_bench ? bench_name : plain_name(*options.bench));
  }
  if (subject == Subject::mlx) {
    out.harness = add(templates / harness_name, harness_name);
  }
  if (const auto cli = text_source(options, subject)) {
    out.cli = add(*cli, cli_name);
  }
  if (options.model) {
    out.model = add(*options.model, plain_name(*options.model));
  }
  for (const auto& file : options.files) {
    add(file, plain_name(file));
  }
  out.files = gather(workload, LargeFiles::unhashed);
  for (const auto& program : {out.bench, out.cli}) {
    workload.agents = {WorkloadAgent{}};
    workload.agents.front().executable = program;
    for (auto& remark : preflight(workload, out.files, kit)) {
      if (std::find(out.remarks.begin(), out.remarks.end(), remark) == out.remarks.end()) {
        out.remarks.push_back(std::move(remark));
      }
    }
  }
  return out;
}

BenchPlace bench_place(const BenchOptions& options, Subject subject, const BenchSources& sources, const Profile& profile,
                       const std::vector<Source>& kit, const GuestFacts& facts, GuestLink& link) {
  BenchPlace place;
  place.subject = subject;
  place.goal = guest_goal(profile, std::nullopt, kit, {}, facts, {});
  place.library_sha256 = kit.front().state.sha256;
  const std::string root = guest_root(facts.home), own = root + "/bench";
  for (const auto& source : sources.files) {
    const std::string path = own + "/" + source.to;
    add_folders(place.goal, root, fs::path(path).parent_path().string());
    FileState state = source.state;
    if (source.to == sources.bench || source.to == sources.cli) {
      state.mode = 0755;
    }
    place.goal.files.push_back({path, source.file, {}, state});
  }
  place.folder = facts.home;
  const auto at = [&](const std::string& copied, const std::string& named) {
    return copied.empty() ? guest_path(named, facts.home) : own + "/" + copied;
  };
  // Ollama's model is a name, not a path.
  place.model = subject == Subject::ollama ? options.guest_model : at(sources.model, options.guest_model);
  place.harness = sources.harness.empty() ? "" : own + "/" + sources.harness;
  const char* usual = subject == Subject::mlx ? python_name : bench_name;
  const std::string named = options.guest_bench.empty() ? program_path({usual}, guest_files(link)) : options.guest_bench;
  if (sources.bench.empty() && named.find('/') == std::string::npos) {
    throw Error(ErrorKind::usage, "bench-program-missing", fmt::format("no {} is named, and the guest's PATH has none", usual))
        .fix("--bench FILE copies one into the guest, --guest-bench PATH names one that is there");
  }
  place.bench = at(sources.bench, named);
  if (!options.no_text_check && subject == Subject::llama_bench) {
    if (sources.cli.empty() && options.guest_cli.empty()) {
      throw Error(ErrorKind::usage, "bench-cli-missing",
                  "no llama-cli is named, and none lies beside llama-bench: whether the GPU computes the right text cannot be seen")
          .fix("--cli FILE or --guest-cli PATH; --no-text-check goes without the comparison");
    }
    place.cli = at(sources.cli, options.guest_cli);
  }
  find_host(options, place);
  return place;
}

std::string BenchPlace::workload_name() const {
  const auto name = fs::path(model).filename();
  return fmt::format("{} ({})", name.extension() == ".gguf" ? name.stem().string() : name.string(), subject_name(subject));
}

std::vector<std::string> BenchPlace::program() const {
  return harness.empty() ? std::vector{bench} : std::vector{bench, harness};
}

std::vector<std::string> BenchPlace::text_program() const {
  return cli.empty() ? program() : std::vector{cli};
}

std::vector<std::string> BenchPlace::paths(GuestLink& link) const {
  std::vector<std::string> out{bench};
  if (subject == Subject::mlx) {
    for (const auto& name : model_parts(link, model)) {
      out.push_back(model + "/" + name);
    }
  } else if (subject != Subject::ollama) {
    out.push_back(model);
  }
  for (const auto& path : {cli, harness}) {
    if (!path.empty()) {
      out.push_back(path);
    }
  }
  return out;
}

std::optional<std::string> BenchPlace::host_differs(const std::vector<std::string>& hashes) const {
  if (host_hashes.empty() || host_hashes[1] == hashes.at(1)) {
    return std::nullopt;
  }
  return fmt::format("the host's model is not the guest's: sha256 {} and {}", host_hashes[1].substr(0, 12), hashes[1].substr(0, 12));
}

std::optional<std::string> BenchPlace::host_note(const std::vector<std::string>& hashes) const {
  if (host_hashes.empty() || host_hashes[0] == hashes.at(0)) {
    return std::nullopt;
  }
  return fmt::format("the host's llama-bench is another file than the guest's (sha256 {} and {}); the report compares their builds",
                     host_hashes[0].substr(0, 12), hashes[0].substr(0, 12));
}

}  // namespace lumelift
