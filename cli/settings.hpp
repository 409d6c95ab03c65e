#pragma once

#include <filesystem>

namespace CLI {
class App;
}

namespace lumelift {

/// Files with values for options that neither the command line nor the environment gave: the project's goes over the
/// user's. Their keys are long names of options (settings_format()); each counts for every command that has the option.
struct SettingsFiles {
  std::filesystem::path project;  ///< lumelift.yaml where the program was started; absent is fine
  std::filesystem::path user;     ///< ~/.config/lumelift/config.yaml; absent is fine
  std::filesystem::path home;     ///< what "~/" in a path means
};

/// Puts them into the options of the commands that were parsed. Throws Error "settings-invalid" with file, line and
/// column, and "file-unreadable"; usage.
void apply_settings(CLI::App& parsed, const SettingsFiles& files);

}  // namespace lumelift
