#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace lumelift {

/// One option, flag or argument, as it was declared.
struct OptionEntry {
  std::vector<std::string> names;  ///< "-o", "--output"; of an argument its name in capitals
  std::string value;               ///< "FILE", "auto|always|never"; empty for a flag
  std::string text, default_value;
  std::string variable;              ///< of the environment; empty: none
  std::vector<std::string> choices;  ///< all values that there are; empty: any
  bool required = false, repeated = false;
};

/// One command. The program itself is the one without a name.
struct CommandEntry {
  std::string name, text, examples;  ///< name as typed, with its parents': "evidence", "fleet unlock"
  std::vector<OptionEntry> arguments, options;
};

/// The command line as it is declared, as values: the one source of man pages, completion and the tables in docs/.
/// Parents stand before their commands; what is hidden is left out.
struct Reference {
  CommandEntry program;
  std::vector<CommandEntry> commands;
};
[[nodiscard]] Reference reference_of(const CLI::App& app);

/// What an exit status means, for every command.
struct ExitEntry {
  int status;
  const char* meaning;
};
[[nodiscard]] const std::vector<ExitEntry>& exit_statuses();

/// "lumelift-evidence": how a page is called.
[[nodiscard]] std::string page_name(const CommandEntry& command);
/// A page of section 1 in man(7), of one command or of the program.
[[nodiscard]] std::string man_page(const Reference& reference, const CommandEntry& command, const std::string& version);
/// Exit statuses and tables of all options, for docs/commands.md.
[[nodiscard]] std::string markdown(const Reference& reference);

/// Writes `man/*.1`, `commands.md` and `schemas/*.json` below `folder`, which is made. Throws Error "file-unwritable".
void write_reference(const Reference& reference, const std::filesystem::path& folder, const std::string& version);

}  // namespace lumelift
