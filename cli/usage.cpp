#include "cli/usage.hpp"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <string_view>

#include "cli/console.hpp"
#include "cli/yaml_reader.hpp"

namespace lumelift {
namespace {

/// Whether one of the words is this option, alone or with its value.
bool typed(const std::string& option, int argc, char** argv) {
  return std::any_of(argv + 1, argv + argc,
                     [&](const char* word) { return word == option || std::string_view(word).starts_with(option + "="); });
}

/// Where `name` stands in the text as a whole word; npos.
std::size_t place_of(const std::string& name, const std::string& text) {
  for (std::size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
    const std::size_t end = at + name.size();
    if (end == text.size() || text[end] == ' ' || text[end] == ':') {
      return at;
    }
  }
  return std::string::npos;
}

/// A value from the environment is blamed on its variable: nobody typed the option. Variables count for all commands that know them,
/// also for those that were not chosen.
std::string with_variable(std::string text, const CLI::App& app, int argc, char** argv, const IsSet& is_set) {
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    for (const CLI::Option* option : command->get_options()) {
      const std::string name = option->get_name(), variable = option->get_envname();
      if (variable.empty() || typed(name, argc, argv) || !is_set(variable)) {
        continue;
      }
      if (const std::size_t at = place_of(name, text); at != std::string::npos) {
        return text.replace(at, name.size(), variable);
      }
    }
  }
  return text;
}

std::string help_of(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? "see: lumelift --help" : fmt::format("see: lumelift {} --help", chosen.front()->get_name());
}

}  // namespace

std::vector<std::string> cut_command(const CLI::App& app, int& argc, char** argv) {
  const auto names = app.get_subcommands([](const CLI::App*) { return true; });
  bool wanted = false;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--" && wanted) {
      std::vector<std::string> command(argv + i + 1, argv + argc);
      argc = i;
      return command;
    }
    if (wanted || word.starts_with("-")) {
      continue;
    }
    wanted = word == "run" || word == "explain" || word == "ablate" || word == "complete";
    if (!wanted && std::any_of(names.begin(), names.end(), [&](const CLI::App* one) { return one->get_name() == word; })) {
      break;
    }
  }
  return {};
}

bool asks_for_json(int argc, char** argv) {
  char** const end = std::find(argv + 1, argv + argc, std::string_view("--"));
  return std::find(argv + 1, end, std::string_view("--json")) != end;
}

Error usage_error(const CLI::ParseError& problem, const CLI::App& app, int argc, char** argv, const IsSet& is_set) {
  const auto unread = app.get_subcommands().empty() ? app.remaining() : std::vector<std::string>{};
  // The first of those words, in the order in which they were typed.
  const auto* word =
      std::find_if(argv + 1, argv + argc, [&](const char* one) { return std::find(unread.begin(), unread.end(), one) != unread.end(); });
  const auto chosen = app.get_subcommands();
  const std::string name = chosen.empty() ? std::string() : chosen.front()->get_name();
  if ((name == "run" || name == "explain" || name == "ablate") &&
      problem.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError)) {
    return Error(ErrorKind::usage, "usage", problem.what())
        .fix(fmt::format("put -- before the program: lumelift {} VM -- PROGRAM ARG...", name));
  }
  if (word == argv + argc || **word == '-') {
    return Error(ErrorKind::usage, "usage", with_variable(problem.what(), app, argc, argv, is_set)).fix(help_of(app));
  }
  Error error(ErrorKind::usage, "usage", fmt::format("there is no command '{}'", cleaned(*word, 80)));
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    names.push_back(command->get_name());
  }
  if (const auto meant = nearest(*word, names)) {
    error.note(fmt::format("did you mean 'lumelift {}'?", *meant));
  }
  return error.fix("see: lumelift --help");
}

Error home_unknown() {
  return Error(ErrorKind::usage, "home-unknown", "nothing says where lumelift keeps its records: HOME is no absolute path")
      .fix("set HOME, or LUMELIFT_STATE_DIR");
}

}  // namespace lumelift
