#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/bench.hpp"
#include "cli/report.hpp"
#include "cli/samples.hpp"

namespace lumelift {

/// The folder that a benchmark writes to: parameters.json says what is measured; each run's files are written whole, its
/// NAME.status last, so that a run is finished exactly when that is there. Everything is on disk when a call returns. Throws
/// Error "file-unwritable", "bench-folder-taken" (usage).
class BenchFolder {
 public:
  /// `given`, or a new one beside `parent`: "bench-VM-2026-11-29", with a number behind it when that is taken. An unfinished
  /// one of the same VM and parameters is taken up instead, the newest first.
  static BenchFolder open(const std::optional<std::filesystem::path>& given, const std::filesystem::path& parent, const std::string& vm,
                          const std::string& parameters);

  /// What can be said against a named folder before anything is known of the guest. Throws Error "bench-folder-taken" (usage).
  static void require_free(const std::filesystem::path& given);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// True when parameters.json was there before.
  [[nodiscard]] bool resumed() const { return resumed_; }

  void write(const std::string& name, std::string_view content) const;
  /// What a file says; nothing when it is not there.
  [[nodiscard]] std::optional<std::string> read(const std::string& name) const;

  /// A run that is finished, with every refusal that its files give cause for; nothing for one that is not.
  [[nodiscard]] std::optional<Arm> arm(const BenchRun& run) const;
  /// Renames a run's files so that no report takes them for results, and the run is to be made again.
  void set_aside(const BenchRun& run) const;

 private:
  BenchFolder(std::filesystem::path path, bool resumed) : path_(std::move(path)), resumed_(resumed) {}
  std::filesystem::path path_;
  bool resumed_ = false;
};

/// What the results of a finished benchmark were judged by; `folder` is its own, or a bundle of it. Nothing for anything else.
[[nodiscard]] std::optional<Limits> recorded_limits(const std::filesystem::path& folder);

}  // namespace lumelift
