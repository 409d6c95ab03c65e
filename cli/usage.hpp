#pragma once

#include <functional>
#include <string>
#include <vector>

#include "host/sys/error.hpp"

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace lumelift {

/// Whether a variable of the environment has a value.
using IsSet = std::function<bool(const std::string& name)>;

/// Cuts what stands behind the first "--" off, for the commands that run it: its bytes are not ours to interpret.
[[nodiscard]] std::vector<std::string> cut_command(const CLI::App& app, int& argc, char** argv);

/// Whether a word before "--" asks for JSON; for words that could not be read as a whole.
[[nodiscard]] bool asks_for_json(int argc, char** argv);

/// Wrong usage in our own words, with the command that was probably meant, or the variable that holds the wrong value.
[[nodiscard]] Error usage_error(const CLI::ParseError& problem, const CLI::App& app, int argc, char** argv, const IsSet& is_set);

/// Neither HOME nor another variable names a folder for journal and locks.
[[nodiscard]] Error home_unknown();

}  // namespace lumelift
