#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/plan.hpp"
#include "cli/profile.hpp"
#include "cli/verdict.hpp"

namespace lumelift {

/// Library and probe as they are installed on this Mac, checked: both are whole Mach-O files with intact page hashes and a
/// slice for arm64. Reads and hashes both. Throws Error "kit-missing", "kit-damaged" (names slice and page); usage.
[[nodiscard]] std::vector<Source> load_kit(const std::filesystem::path& libexec);

/// Large files (see remote/transfer.hpp) can be hashed later, while they are sent: their state has no SHA-256 then.
enum class LargeFiles { hashed, unhashed };
/// The workload's files with their hashes, folders walked; links inside a folder are followed as long as they stay in it.
/// Throws Error "workload-invalid" (a link that leads out, a special file), "file-unreadable"; usage.
[[nodiscard]] std::vector<Source> gather(const Workload& workload, LargeFiles large = LargeFiles::hashed);

/// The workload's files as they will lie in the guest, with `home` as its user's home, over what `beneath` shows elsewhere.
/// Nothing but them is in the workload's own folder.
[[nodiscard]] FileView copied_layout(const Workload& workload, const std::vector<Source>& sources, const std::string& home,
                                     const FileView& beneath);

/// Refuses an agent's program that injection cannot work for, as it will lie in the guest; returns remarks worth a warning.
/// `files` as copied_layout() makes them; a program that is neither copied nor there is passed over under Absent::skipped.
/// Throws Error "workload-not-injectable" with reason and remedy, "workload-invalid"; usage.
enum class Absent { skipped, refused };
[[nodiscard]] std::vector<std::string> judge_agents(const Workload& workload, const FileView& files, const std::string& home,
                                                    InjectionTerms terms, Absent absent);

/// What can be told before anybody has logged in: models are models, and the copied programs can be injected with the files
/// that are copied along. Throws what judge_agents() throws.
[[nodiscard]] std::vector<std::string> preflight(const Workload& workload, const std::vector<Source>& sources,
                                                 const std::vector<Source>& kit);

}  // namespace lumelift
