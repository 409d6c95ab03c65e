#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/plan.hpp"
#include "cli/profile.hpp"

namespace lumelift {

/// Library and probe as they are installed on this Mac, checked: both are whole Mach-O files with intact page hashes and a
/// slice for arm64. Reads and hashes both. Throws Error "kit-missing", "kit-damaged" (names slice and page); usage.
[[nodiscard]] std::vector<Source> load_kit(const std::filesystem::path& libexec);

/// Large files (see remote/transfer.hpp) can be hashed later, while they are sent: their state has no SHA-256 then.
enum class LargeFiles { hashed, unhashed };
/// The workload's files with their hashes, folders walked; links inside a folder are followed as long as they stay in it.
/// Throws Error "workload-invalid" (a link that leads out, a special file), "file-unreadable"; usage.
[[nodiscard]] std::vector<Source> gather(const Workload& workload, LargeFiles large = LargeFiles::hashed);

/// Refuses a workload executable that injection cannot work for, as far as its host file tells; returns remarks worth a
/// warning. Throws Error "workload-not-injectable" with reason and remedy; usage.
[[nodiscard]] std::vector<std::string> preflight(const Workload& workload, const std::vector<Source>& sources,
                                                 const std::vector<Source>& kit);

}  // namespace lumelift
