#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "cli/kit.hpp"
#include "cli/link.hpp"
#include "cli/plan.hpp"

namespace lumelift {

/// Files of this Mac that a benchmark copies into the guest, checked and hashed.
struct BenchSources {
  std::vector<Source> files;         ///< destinations relative to the benchmark's folder in the guest
  std::string bench, model, cli;     ///< which of them is what; empty: not copied
  std::vector<std::string> remarks;
};

/// Throws Error, usage: "bench-model-missing", "file-unreadable", and what preflight() throws.
[[nodiscard]] BenchSources bench_sources(const BenchOptions& options, const std::vector<Source>& kit);

/// Where everything is, in the guest and on this Mac.
struct BenchPlace {
  GuestGoal goal;                    ///< library, probe and the copied files
  std::string folder;                ///< working directory in the guest
  std::string bench, model, cli;     ///< absolute guest paths; cli is empty without a comparison of texts
  std::string library_sha256;
  std::optional<std::filesystem::path> host_bench, host_model;  ///< both or none
  std::vector<std::string> host_hashes;                         ///< of those two

  [[nodiscard]] std::vector<std::string> paths() const;  ///< bench, model and, if there is one, cli
  /// Why the host's model is not the guest's; `hashes` in the order of paths().
  [[nodiscard]] std::optional<std::string> host_differs(const std::vector<std::string>& hashes) const;
  /// What a reader should know of the host's program.
  [[nodiscard]] std::optional<std::string> host_note(const std::vector<std::string>& hashes) const;
};

/// Throws Error, usage: "bench-program-missing", "bench-cli-missing".
[[nodiscard]] BenchPlace bench_place(const BenchOptions& options, const BenchSources& sources, const Profile& profile, const std::vector<Source>& kit,
                                     const GuestFacts& facts, GuestLink& link);

/// Why a receipt does not prove that process `pid` was unlocked; empty when it does.
[[nodiscard]] std::string receipt_defect(const std::string& receipt, std::optional<int> pid);

}  // namespace lumelift
