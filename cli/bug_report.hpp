#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.hpp"

namespace lumelift {

struct BugReportOptions {
  std::string vm;  ///< empty: no guest is looked at
  std::filesystem::path output = "lumelift-report.txt";
  std::string user, host, version;                             ///< names to take out; what --version --json says
  std::vector<std::filesystem::path> settings;                 ///< files that may be there
  std::vector<std::pair<std::string, std::string>> variables;  ///< never one with a secret
};

/// Writes one text file: versions, the findings of doctor, the history and the settings, with names, addresses and
/// folders taken out. Sends nothing anywhere. Blocks as long as doctor does. Throws Error "file-unwritable".
[[nodiscard]] int run_bug_report(Context& context, const BugReportOptions& options);

}  // namespace lumelift
