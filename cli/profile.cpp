#include "cli/profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <set>

#include "cli/file_keys.hpp"
#include "cli/profile_names.hpp"
#include "cli/yaml_reader.hpp"
#include "host/sys/error.hpp"

namespace lumelift {
namespace {

namespace fs = std::filesystem;

/// Text that must be fit for a file name and a launchd label.
std::string identifier(const YamlValue& value, std::string_view allowed, std::size_t most, std::string_view what) {
  const std::string text = value.string();
  if (text.empty() || text.size() > most || text.find_first_not_of(allowed) != std::string::npos || text.front() == '.' ||
      text.front() == '-') {
    throw value.problem(fmt::format("{} must be 1 to {} characters of {} and begin with a letter or digit", what, most, allowed));
  }
  return text;
}

constexpr std::string_view name_characters = "abcdefghijklmnopqrstuvwxyz0123456789-";
constexpr std::string_view label_characters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

/// A path in the guest: no ".." and no control characters, so that it stays where it says.
std::string guest_path(const YamlValue& value, bool relative_allowed) {
  const std::string text = value.string();
  const bool home = text.starts_with("~/");
  const bool absolute = text.starts_with("/");
  if (text.empty() || text == "~" || text == "/" || (text.front() == '~' && !home)) {
    throw value.problem("a path in the guest is needed here: absolute, or beginning with ~/");
  }
  if (!absolute && !home && !relative_allowed) {
    throw value.problem("an absolute path in the guest, or one beginning with ~/, is needed here");
  }
  if (std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; })) {
    throw value.problem("a path must not hold control characters");
  }
  const fs::path path(text);
  for (const auto& part : path) {
    if (part == "..") {
      throw value.problem("a path in the guest must not hold '..'");
    }
    if (part.string().size() > 200) {
      throw value.problem("a name in this path is longer than 200 bytes");
    }
  }
  return path.lexically_normal().string();
}

template <class Value>
Value one_of(const YamlValue& value, std::initializer_list<std::pair<std::string_view, Value>> words) {
  const std::string text = value.string();
  std::string known;
  for (const auto& [word, meaning] : words) {
    if (text == word) {
      return meaning;
    }
    known += fmt::format("{}{}", known.empty() ? "" : ", ", word);
  }
  throw value.problem(fmt::format("one of {} is needed here", known));
}

fs::path host_path(const YamlValue& value, const fs::path& base) {
  const std::string text = value.string();
  if (text.empty()) {
    throw value.problem("a file or folder of this Mac is needed here");
  }
  const fs::path path = fs::path(text).is_absolute() ? fs::path(text) : base / text;
  std::error_code fault;
  const fs::file_status status = fs::status(path, fault);
  if (!fs::exists(status)) {
    throw value.problem(fmt::format("'{}' does not exist", path.lexically_normal().string()));
  }
  if (!fs::is_regular_file(status) && !fs::is_directory(status)) {
    throw value.problem(fmt::format("'{}' is neither a file nor a folder", path.lexically_normal().string()));
  }
  return path.lexically_normal();
}

void read_environment(const YamlValue& map, WorkloadAgent& agent) {
  for (const auto& [key, value] : map.entries()) {
    const std::string name = key.string();
    const bool shape = !name.empty() && !(name.front() >= '0' && name.front() <= '9') &&
                       std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
    if (!shape) {
      throw key.problem(fmt::format("'{}' is not the name of an environment variable", name));
    }
    if (name.starts_with("DYLD_") || name.starts_with("LUMELIFT_") || name.starts_with("LUME_METAL_")) {
      throw key.problem(fmt::format("'{}' is set by lumelift itself; the profile says what the library answers", name));
    }
    agent.environment.emplace_back(name, value.text());
  }
}

/// Several agents may start one file.
void add_copy(std::vector<FileCopy>& files, FileCopy copy) {
  if (std::find(files.begin(), files.end(), copy) == files.end()) {
    files.push_back(std::move(copy));
  }
}

const FileKey& workload_key(std::string_view name) {
  return key_of(workload_format().keys, name);
}

/// `copied_elsewhere`: a relative path in the guest may mean what the workload's files bring there.
std::string read_executable(const YamlValue& value, const fs::path& base, bool copied_elsewhere, std::vector<FileCopy>& files) {
  if (value.is_scalar()) {
    return guest_path(value, copied_elsewhere);
  }
  value.expect_keys(workload_key("executable").keys);
  const auto host = value.find("host");
  const auto guest = value.find("guest");
  if (!host) {
    return guest_path(value.at("guest"), copied_elsewhere);
  }
  const fs::path from = host_path(*host, base);
  if (fs::is_directory(from)) {
    if (!guest) {
      throw value.problem("for a folder, 'guest' must name the program in it, such as bin/llama-server");
    }
    add_copy(files, {from, "."});
    return guest_path(*guest, true);
  }
  const std::string to = guest ? guest_path(*guest, true) : from.filename().string();
  add_copy(files, {from, to});
  return to;
}

Readiness read_readiness(const YamlValue& map) {
  const auto keys = workload_key("ready").keys;
  map.expect_keys(keys);
  Readiness ready;
  const auto port = map.find("port"), log = map.find("log"), command = map.find("command"), within = map.find("within");
  if (port.has_value() + log.has_value() + command.has_value() != 1) {
    throw map.problem("exactly one of 'port', 'log' and 'command' is needed here");
  }
  if (port) {
    ready.port = static_cast<int>(port->number(key_of(keys, "port").least, key_of(keys, "port").most));
  }
  if (log) {
    ready.log = log->text();
    if (ready.log.empty() || ready.log.find('\n') != std::string::npos) {
      throw log->problem("a part of one line of the log is needed here");
    }
  }
  if (command) {
    for (const YamlValue& word : command->items()) {
      ready.command.push_back(word.text());
    }
    if (ready.command.empty() || (!ready.command.front().starts_with("/") && !ready.command.front().starts_with("~/"))) {
      throw command->problem("a command of the guest is needed here, its program absolute or beginning with ~/");
    }
  }
  if (within) {
    ready.within_s = static_cast<int>(within->number(key_of(keys, "within").least, key_of(keys, "within").most));
  }
  return ready;
}

/// What describes one program, whether it stands alone or in a list.
void read_agent(const YamlValue& map, const fs::path& base, const std::string& default_label, bool in_list, Workload& workload) {
  WorkloadAgent agent;
  const auto label = map.find("label");
  agent.label = label ? identifier(*label, label_characters, workload_key("label").most, "a label") : default_label;
  agent.executable = read_executable(map.at("executable"), base, in_list, workload.files);
  if (const auto arguments = map.find("arguments")) {
    for (const YamlValue& argument : arguments->items()) {
      agent.arguments.push_back(argument.text());
    }
  }
  if (const auto environment = map.find("environment")) {
    read_environment(*environment, agent);
  }
  if (const auto folder = map.find("working_directory")) {
    agent.working_directory = guest_path(*folder, true);
  }
  if (const auto logs = map.find("logs")) {
    logs->expect_keys(workload_key("logs").keys);
    if (const auto out = logs->find("stdout")) {
      agent.stdout_log = guest_path(*out, false);
    }
    if (const auto err = logs->find("stderr")) {
      agent.stderr_log = guest_path(*err, false);
    }
  }
  if (const auto keep = map.find("keep_alive")) {
    agent.keep_alive = keep->boolean();
  }
  if (const auto inherit = map.find("inherit")) {
    agent.inherit = inherit->boolean();
  }
  if (const auto ready = map.find("ready")) {
    agent.ready = read_readiness(*ready);
  }
  const auto same = [&](const WorkloadAgent& other) { return other.label == agent.label; };
  if (std::any_of(workload.agents.begin(), workload.agents.end(), same)) {
    throw map.problem(fmt::format("two agents have the label '{}'", agent.label));
  }
  workload.agents.push_back(std::move(agent));
}

void read_agents(const YamlValue& list, const fs::path& base, Workload& workload) {
  for (const YamlValue& item : list.items()) {
    item.expect_keys(workload_key("agents").keys);
    const std::string name =
        identifier(item.at("name"), name_characters, key_of(workload_key("agents").keys, "name").most, "an agent's name");
    const auto same = [&](const WorkloadAgent& other) { return other.name == name; };
    if (std::any_of(workload.agents.begin(), workload.agents.end(), same)) {
      throw item.at("name").problem(fmt::format("two agents have the name '{}'", name));
    }
    read_agent(item, base, "io.lumelift." + workload.name + "." + name, true, workload);
    workload.agents.back().name = name;
  }
  if (workload.agents.empty()) {
    throw list.problem("at least one agent is needed here");
  }
}

void read_files(const YamlValue& list, const fs::path& base, Workload& workload) {
  for (const YamlValue& item : list.items()) {
    item.expect_keys(key_of(workload_format().keys, "files").keys);
    const YamlValue source = item.at("from");
    FileCopy copy;
    copy.from = host_path(source, base);
    const auto to = item.find("to");
    copy.to = to ? guest_path(*to, true) : copy.from.filename().string();
    const bool taken =
        std::any_of(workload.files.begin(), workload.files.end(), [&](const FileCopy& other) { return other.to == copy.to; });
    if (const auto mode = item.find("mode")) {
      copy.delivery = one_of<Delivery>(*mode, {{"copy", Delivery::copy}, {"share", Delivery::share}});
    }
    if (taken) {
      throw item.problem(fmt::format("two files go to '{}'", copy.to));
    }
    workload.files.push_back(std::move(copy));
  }
}

}  // namespace

std::vector<std::string> profile_names(const fs::path& templates) {
  std::vector<std::string> names;
  std::error_code fault;
  for (const auto& entry : fs::directory_iterator(templates / "profiles", fault)) {
    if (entry.path().extension() == ".yaml") {
      names.push_back(entry.path().stem().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

Profile load_profile(const std::string& name_or_file, const fs::path& templates) {
  const bool is_file = name_or_file.find('/') != std::string::npos || name_or_file.ends_with(".yaml") || name_or_file.ends_with(".yml");
  const fs::path file = is_file ? fs::path(name_or_file) : templates / "profiles" / (name_or_file + ".yaml");
  std::error_code fault;
  if (!is_file && !fs::exists(file, fault)) {
    throw Error(ErrorKind::usage, "profile-unknown", fmt::format("there is no profile named '{}'", name_or_file))
        .note(fmt::format("profiles here: {}", fmt::join(profile_names(templates), ", ")))
        .fix("name one of these, or a file (with a '/' or ending in .yaml)");
  }
  const YamlValue top = YamlValue::load(file, "profile-invalid");
  const auto keys = profile_format().keys;
  top.expect_schema(key_of(keys, "schema").most);
  top.expect_keys(keys);
  const auto number = [&](const YamlValue& value, std::string_view name) {
    return value.number(key_of(keys, name).least, key_of(keys, name).most);
  };
  Profile profile;
  profile.name = identifier(top.at("name"), name_characters, key_of(keys, "name").most, "a profile's name");
  if (const auto text = top.find("description")) {
    (void)text->text();
  }
  profile.apple_family_max = static_cast<int>(number(top.at("apple_family_max"), "apple_family_max"));
  const auto memory = top.find("threadgroup_memory");
  profile.threadgroup_memory = memory ? number(*memory, "threadgroup_memory") : 0;
  const auto set = top.find("working_set");
  profile.working_set = set ? number(*set, "working_set") : 0;
  return profile;
}

std::vector<std::pair<std::string, std::string>> profile_environment(const Profile& profile) {
  std::vector<std::pair<std::string, std::string>> out = {
      {"LUME_METAL_APPLE_FAMILY_MAX", std::to_string(profile.apple_family_max)},
      {"LUME_METAL_MAX_THREADGROUP_MEMORY", std::to_string(profile.threadgroup_memory)}};
  if (profile.working_set != 0) {
    out.emplace_back("LUME_METAL_RECOMMENDED_WORKING_SET_SIZE", std::to_string(profile.working_set));
  }
  return out;
}

Workload load_workload(const fs::path& file) {
  const YamlValue top = YamlValue::load(file, "workload-invalid");
  const auto keys = workload_format().keys;
  top.expect_schema(key_of(keys, "schema").most);
  top.expect_keys(keys);
  const auto several = top.find("agents");
  if (several) {
    top.expect_keys({"schema", "name", "files", "transfer", "agents"});
  }
  const fs::path base = file.parent_path().empty() ? fs::path(".") : file.parent_path();
  Workload workload;
  workload.name = identifier(top.at("name"), name_characters, key_of(keys, "name").most, "a workload's name");
  // What lumelift itself keeps beside the workloads' folders.
  if (workload.name == "run" || workload.name == "lumelift-probe") {
    throw top.at("name").problem(fmt::format("'{}' is a name of lumelift's own in the guest; choose another", workload.name));
  }
  if (several) {
    read_agents(*several, base, workload);
  } else {
    read_agent(top, base, "io.lumelift." + workload.name, false, workload);
  }
  if (const auto files = top.find("files")) {
    read_files(*files, base, workload);
  }
  if (const auto way = top.find("transfer")) {
    workload.transfer =
        one_of<TransferWay>(*way, {{"auto", TransferWay::automatic}, {"share", TransferWay::share}, {"ssh", TransferWay::ssh}});
  }
  return workload;
}

}  // namespace lumelift
