#include "cli/settings.hpp"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <map>

#include "cli/file_keys.hpp"
#include "cli/yaml_reader.hpp"

namespace lumelift {
namespace {

namespace fs = std::filesystem;

/// One value, as it would stand on the command line, and where it was written.
struct Setting {
  std::string value;
  YamlValue place;
};
using Settings = std::map<std::string, Setting, std::less<>>;

bool names_a_file(std::string_view key, std::string_view value) {
  return key == "key" || key == "password-file" ||
         (key == "profile" && (value.find('/') != std::string_view::npos || value.ends_with(".yaml")));
}

/// Paths mean files beside the settings, wherever the program was started.
std::string resolved(const std::string& value, const fs::path& folder, const fs::path& home) {
  if (value.starts_with("~/")) {
    return (home / value.substr(2)).string();
  }
  return fs::path(value).is_absolute() ? value : (folder / value).string();
}

std::string as_word(const FileKey& key, const YamlValue& value) {
  switch (key.type) {
    case FileKey::Type::number:
      return std::to_string(value.number(key.least, key.most));
    case FileKey::Type::boolean:
      return value.boolean() ? "true" : "false";
    default:
      return value.string();
  }
}

enum class Owner { project, user };

void read(const fs::path& file, Owner owner, const fs::path& home, Settings& into) {
  std::error_code fault;
  if (!fs::exists(file, fault)) {
    return;
  }
  const auto keys = settings_format().keys;
  const YamlValue top = YamlValue::load(file, "settings-invalid");
  top.expect_schema(key_of(keys, "schema").most);
  top.expect_keys(keys);
  for (const auto& key : keys) {
    const auto value = top.find(key.name);
    if (!value || key.type == FileKey::Type::version) {
      continue;
    }
    // A project's file may come from anybody, and this option sends a file's content to the guest.
    if (owner == Owner::project && key.name == "password-file") {
      throw value->problem("password-file can stand in the user's own settings only, ~/.config/lumelift/config.yaml");
    }
    std::string word = as_word(key, *value);
    if (names_a_file(key.name, word)) {
      word = resolved(word, file.parent_path(), home);
    }
    into.insert_or_assign(std::string(key.name), Setting{std::move(word), *value});
  }
}

void put_into(CLI::App& command, const Settings& settings) {
  for (const auto& [key, setting] : settings) {
    CLI::Option* option = command.get_option_no_throw("--" + key);
    if (option == nullptr || option->count() != 0) {
      continue;
    }
    try {
      option->default_val(setting.value);
    } catch (const CLI::Error& problem) {
      throw setting.place.problem(problem.what());
    }
  }
  for (CLI::App* chosen : command.get_subcommands()) {
    put_into(*chosen, settings);
  }
}

}  // namespace

void apply_settings(CLI::App& parsed, const SettingsFiles& files) {
  Settings settings;
  read(files.user, Owner::user, files.home, settings);
  read(files.project, Owner::project, files.home, settings);
  put_into(parsed, settings);
}

}  // namespace lumelift
