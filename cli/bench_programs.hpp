#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/bench.hpp"
#include "cli/commands.hpp"
#include "cli/kit.hpp"
#include "cli/link.hpp"
#include "cli/plan.hpp"

namespace lumelift {

/// Files of this Mac that a benchmark copies into the guest, checked and hashed.
struct BenchSources {
  std::vector<Source> files;               ///< destinations relative to the benchmark's folder in the guest
  std::string bench, model, cli, harness;  ///< which of them is what; empty: not copied
  std::vector<std::string> remarks;
};

/// What the options mean: a server where a target is named (Ollama when its program is called so), MLX-LM, or llama-bench. Throws
/// Error "bench-options" (usage) for options that do not go together.
[[nodiscard]] Subject bench_subject(const BenchOptions& options);
/// All of them, checked. Throws what bench_subject() and check_bench() throw.
[[nodiscard]] BenchSettings bench_settings(const BenchOptions& options);

/// `templates`: the folder with the harness of MLX-LM. Throws Error, usage: "bench-model-missing", "file-unreadable", and what
/// preflight() throws.
[[nodiscard]] BenchSources bench_sources(const BenchOptions& options, Subject subject, const std::vector<Source>& kit,
                                         const std::filesystem::path& templates);

/// Where everything is, in the guest and on this Mac.
struct BenchPlace {
  GuestGoal goal;      ///< library, probe and the copied files
  std::string folder;  ///< working directory in the guest
  Subject subject = Subject::llama_bench;
  std::string bench, model, cli;  ///< absolute guest paths; cli is empty where no program of its own writes the text
  std::string harness;            ///< what `bench` interprets; empty but for MLX-LM
  std::string library_sha256;
  std::optional<std::filesystem::path> host_bench, host_model;  ///< both or none
  std::vector<std::string> host_hashes;                         ///< of those two

  [[nodiscard]] std::string workload_name() const;              ///< as a report on the results calls it
  [[nodiscard]] std::vector<std::string> program() const;       ///< the first words of every run
  [[nodiscard]] std::vector<std::string> text_program() const;  ///< and of the text
  /// Files that must stay as they are: program, then, as far as there are such, model, text program, harness. A model of MLX-LM
  /// is a folder: its weights' and configuration's files, which `link` is asked for.
  [[nodiscard]] std::vector<std::string> paths(GuestLink& link) const;
  /// Why the host's model is not the guest's; `hashes` in the order of paths().
  [[nodiscard]] std::optional<std::string> host_differs(const std::vector<std::string>& hashes) const;
  /// What a reader should know of the host's program.
  [[nodiscard]] std::optional<std::string> host_note(const std::vector<std::string>& hashes) const;
};

/// Throws Error, usage: "bench-program-missing", "bench-cli-missing".
[[nodiscard]] BenchPlace bench_place(const BenchOptions& options, Subject subject, const BenchSources& sources, const Profile& profile,
                                     const std::vector<Source>& kit, const GuestFacts& facts, GuestLink& link);

}  // namespace lumelift
