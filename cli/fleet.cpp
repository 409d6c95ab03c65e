#include "cli/fleet.hpp"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <set>

#include "cli/file_keys.hpp"
#include "host/sys/file.hpp"
#include "host/sys/hash.hpp"

namespace lumelift {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t file_cap = 1u << 20;
constexpr int apple_guest_limit = 2;
constexpr std::size_t most_includes = 32;
constexpr int deepest_variable = 8;
constexpr const char* error_id = "fleet-invalid";

bool is_variable_name(std::string_view name) {
  return !name.empty() && name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string_view::npos &&
         !(name.front() >= '0' && name.front() <= '9');
}

/// A name that goes into Ansible's inventory and onto command lines.
std::string host_word(const YamlValue& value, std::string_view what) {
  const std::string text = value.string();
  constexpr std::string_view allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-";
  if (text.empty() || text.size() > 253 || text.front() == '-' || text.find_first_not_of(allowed) != std::string::npos) {
    throw value.problem(fmt::format("{} must be made of letters, digits, '.', '_', ':' and '-', and not begin with '-'", what));
  }
  return text;
}

std::string account(const YamlValue& value, const std::string& text) {
  if (text.empty() || text.front() == '-' || text.find_first_of("@ /'\"\\\n\t") != std::string::npos) {
    throw value.problem("an account's name is needed here");
  }
  return text;
}

/// "fleet.yaml:12:5", as it stands before the words of any problem there.
std::string place_of(const YamlValue& value) {
  const std::string message = value.problem("").message();
  return message.substr(0, message.rfind(": "));
}

std::span<const FileKey> host_keys() {
  return key_of(fleet_format().keys, "hosts").keys;
}
std::span<const FileKey> setting_keys() {
  return key_of(fleet_format().keys, "defaults").keys;
}

/// Within that key's bounds.
int whole(const YamlValue& value, std::span<const FileKey> keys, std::string_view name) {
  const FileKey& key = key_of(keys, name);
  return static_cast<int>(value.number(key.least, key.most));
}

}  // namespace

/// Reads a file and what it includes into a Fleet.
class Fleet::Reader {
 public:
  explicit Reader(Fleet& fleet) : fleet_(fleet) {}

  void read(const fs::path& file) {
    open_.push_back(file.lexically_normal());
    if (++files_ > most_includes) {
      throw Error(ErrorKind::usage, error_id, fmt::format("{}: more than {} files are included", file.string(), most_includes));
    }
    const std::string text = sys::read_file(file, file_cap);
    all_text_ += fmt::format("{}\n{}", text.size(), text);
    const YamlValue top = YamlValue::parse(text, file.string(), error_id);
    top.expect_schema(key_of(fleet_format().keys, "schema").most);
    top.expect_keys(fleet_format().keys);
    const fs::path base = file.parent_path();
    // What is there already was said by an including file, and stays.
    if (const auto limit = top.find("guest_limit"); limit && !fleet_.guest_limit_) {
      fleet_.guest_limit_ = whole(*limit, fleet_format().keys, "guest_limit");
    }
    if (const auto variables = top.find("variables")) {
      read_variables(*variables, base, fleet_.variables_);
    }
    if (const auto defaults = top.find("defaults")) {
      defaults->expect_keys(setting_keys());
      read_settings(*defaults, base, fleet_.defaults_);
    }
    if (const auto hosts = top.find("hosts")) {
      read_hosts(*hosts);
    }
    if (const auto vms = top.find("vms")) {
      for (const YamlValue& item : vms->items()) {
        read_entry(item, base);
      }
    }
    if (const auto include = top.find("include")) {
      for (const YamlValue& item : include->items()) {
        follow(item, base);
      }
    }
    open_.pop_back();
  }

  /// Everything that can be wrong without looking at the world.
  void check() {
    fleet_.digest_ = sys::sha256(all_text_);
    std::map<std::string, std::string> taken;
    for (const auto& entry : fleet_.entries_) {
      const bool known =
          std::any_of(fleet_.hosts_.begin(), fleet_.hosts_.end(), [&](const FleetHost& host) { return host.name == entry.host; });
      if (!entry.host.empty() && !known) {
        throw entry.at.at("host").problem(fmt::format("there is no host named '{}' under 'hosts'", entry.host));
      }
      if (!entry.name.empty()) {
        const std::string stored = entry.host + "/" + Lume::stored_name(entry.name);
        const auto [before, fresh] = taken.emplace(stored, place_of(entry.at));
        if (!fresh) {
          throw entry.at.problem(
              fmt::format("'{}' has an entry already at {}: lume stores both under one name", entry.name, before->second));
        }
      }
      (void)fleet_.resolve(entry, entry.name.empty() ? entry.match : Lume::stored_name(entry.name), entry.host);
    }
    if (fleet_.entries_.empty() && fleet_.hosts_.empty()) {
      throw Error(ErrorKind::usage, error_id, open_file_ + ": the file names no VM: 'vms' is missing or empty");
    }
  }

  void name_top(const fs::path& file) { open_file_ = file.string(); }

 private:
  void follow(const YamlValue& item, const fs::path& base) {
    const fs::path file = (base / item.string()).lexically_normal();
    if (std::find(open_.begin(), open_.end(), file) != open_.end()) {
      throw item.problem(fmt::format("'{}' includes itself, by way of others or directly", file.string()));
    }
    std::error_code fault;
    if (!fs::is_regular_file(file, fault)) {
      throw item.problem(fmt::format("'{}' is no file", file.string()));
    }
    read(file);
  }

  static void read_variables(const YamlValue& map, const fs::path& base, Settings& into) {
    for (const auto& [key, value] : map.entries()) {
      const std::string name = key.text();
      if (!is_variable_name(name)) {
        throw key.problem(fmt::format("'{}' cannot name a variable: lower-case letters, digits and '_' can", name));
      }
      if (name == "vm" || name == "host") {
        throw key.problem(fmt::format("'{}' is filled in by lumelift itself", name));
      }
      (void)value.text();
      into.emplace(name, Setting{value, base});
    }
  }

  static void read_settings(const YamlValue& map, const fs::path& base, Settings& into) {
    for (const auto& [key, value] : map.entries()) {
      into.emplace(key.text(), Setting{value, base});
    }
  }

  void read_hosts(const YamlValue& list) {
    for (const YamlValue& item : list.items()) {
      item.expect_keys(host_keys());
      FleetHost host;
      const YamlValue name = item.at("name");
      host.name = host_word(name, "a host's name");
      if (const auto address = item.find("address")) {
        host.address = host_word(*address, "an address");
      }
      if (const auto user = item.find("user")) {
        host.user = account(*user, user->string());
      }
      if (const auto port = item.find("port")) {
        host.port = whole(*port, host_keys(), "port");
      }
      if (const auto program = item.find("lumelift")) {
        host.lumelift = program->string();
        if (host.lumelift.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/-") != std::string::npos ||
            host.lumelift.empty()) {
          throw program->problem("a path without blanks or special characters is needed here");
        }
      }
      if (const auto limit = item.find("guest_limit")) {
        host.guest_limit = whole(*limit, host_keys(), "guest_limit");
      }
      const bool twice =
          std::any_of(fleet_.hosts_.begin(), fleet_.hosts_.end(), [&](const FleetHost& other) { return other.name == host.name; });
      if (twice) {
        throw name.problem(fmt::format("the host '{}' stands twice", host.name));
      }
      fleet_.hosts_.push_back(std::move(host));
    }
  }

  void read_entry(const YamlValue& item, const fs::path& base) {
    item.expect_keys(key_of(fleet_format().keys, "vms").keys);
    Entry entry{item, {}, {}, {}, {}, {}};
    const auto name = item.find("name"), match = item.find("match");
    if (name.has_value() == match.has_value()) {
      throw item.problem("either 'name' or 'match' is needed here");
    }
    if (name) {
      entry.name = name->string();
      if (const auto why = Lume::bad_name(entry.name)) {
        throw name->problem(fmt::format("'{}' cannot be the name of a VM: {}", entry.name, *why));
      }
    } else {
      entry.match = match->text();
      if (entry.match.empty()) {
        throw match->problem("a pattern is needed here, such as ci-*");
      }
    }
    if (const auto host = item.find("host")) {
      entry.host = host_word(*host, "a host's name");
    }
    if (const auto variables = item.find("variables")) {
      read_variables(*variables, base, entry.variables);
    }
    read_settings(item, base, entry.settings);
    fleet_.entries_.push_back(std::move(entry));
  }

  Fleet& fleet_;
  std::vector<fs::path> open_;
  std::string all_text_, open_file_;
  std::size_t files_ = 0;
};

namespace {

/// The values of one VM's variables.
class Filler {
 public:
  explicit Filler(std::map<std::string, std::string> values) : values_(std::move(values)) {}

  /// "${name}" filled in, "$$" one dollar. `value` is where a problem is.
  [[nodiscard]] std::string fill(const YamlValue& value, const std::string& text, int depth = 0) const {
    if (depth > deepest_variable) {
      throw value.problem("variables name each other in a circle here");
    }
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
      if (text[at] != '$' || at + 1 == text.size() || (text[at + 1] != '{' && text[at + 1] != '$')) {
        out += text[at++];
      } else if (text[at + 1] == '$') {
        out += '$';
        at += 2;
      } else {
        const std::size_t end = text.find('}', at);
        const std::string name = text.substr(at + 2, end == std::string::npos ? end : end - at - 2);
        if (end == std::string::npos || !is_variable_name(name)) {
          throw value.problem("'${' begins a variable, and this is none; write $$ for a dollar");
        }
        out += fill(value, look_up(value, name), depth + 1);
        at = end + 1;
      }
    }
    return out;
  }

 private:
  [[nodiscard]] const std::string& look_up(const YamlValue& value, const std::string& name) const {
    const auto found = values_.find(name);
    if (found != values_.end()) {
      return found->second;
    }
    std::vector<std::string> names;
    for (const auto& [known, text] : values_) {
      names.push_back(known);
    }
    const auto meant = nearest(name, names);
    throw value.problem(meant ? fmt::format("there is no variable '{}'; did you mean '{}'?", name, *meant)
                              : fmt::format("there is no variable '{}'", name));
  }
  std::map<std::string, std::string> values_;
};

fs::path path_from(const fs::path& base, const fs::path& home, const std::string& text) {
  if (text.starts_with("~/")) {
    return home / text.substr(2);
  }
  return (fs::path(text).is_absolute() ? fs::path(text) : base / text).lexically_normal();
}

Hook hook_from(const YamlValue& value, const fs::path& base, const fs::path& home, const Filler& filler) {
  Hook words;
  for (const YamlValue& item : value.items()) {
    words.push_back(filler.fill(item, item.text()));
  }
  if (words.empty() || words.front().empty()) {
    throw value.problem("a command is needed here: a list whose first word is a program");
  }
  // A bare name is looked up on PATH.
  if (words.front().find('/') != std::string::npos) {
    words.front() = path_from(base, home, words.front()).string();
  }
  return words;
}

}  // namespace

FleetVm Fleet::resolve(const Entry& entry, const std::string& name, const std::string& host) const {
  std::map<std::string, std::string> values = {{"vm", name}, {"host", host}};
  for (const auto* from : {&entry.variables, &variables_}) {
    for (const auto& [key, setting] : *from) {
      values.emplace(key, setting.value.text());
    }
  }
  const Filler filler(std::move(values));
  Settings settings = entry.settings;
  settings.insert(defaults_.begin(), defaults_.end());
  const auto text = [&](const Setting& setting) { return filler.fill(setting.value, setting.value.string()); };
  const auto file = [&](const Setting& setting) { return path_from(setting.base, home_, text(setting)); };

  FleetVm vm;
  vm.name = name;
  vm.place = place_of(entry.at);
  for (const auto& [key, setting] : settings) {
    const YamlValue& value = setting.value;
    if (key == "profile") {
      vm.profile = text(setting);
      const bool is_file = vm.profile.find('/') != std::string::npos || vm.profile.ends_with(".yaml") || vm.profile.ends_with(".yml");
      if (is_file) {
        vm.profile = file(setting).string();
      }
    } else if (key == "workloads") {
      for (const YamlValue& item : value.items()) {
        vm.workloads.push_back(path_from(setting.base, home_, filler.fill(item, item.string())));
      }
    } else if (key == "user") {
      vm.user = account(value, text(setting));
    } else if (key == "port") {
      vm.port = whole(value, setting_keys(), key);
    } else if (key == "key") {
      vm.key = file(setting);
    } else if (key == "password_file") {
      vm.password_file = file(setting);
    } else if (key == "timeout") {
      vm.timeout_s = whole(value, setting_keys(), key);
    } else if (key == "hook_timeout") {
      vm.hook_timeout_s = whole(value, setting_keys(), key);
    } else if (key == "host_preference") {
      vm.host_preference = text(setting);
      if (vm.host_preference != "set" && vm.host_preference != "keep") {
        throw value.problem("'set' or 'keep' is needed here");
      }
    } else if (key == "before_stop") {
      vm.before_stop = hook_from(value, setting.base, home_, filler);
    } else if (key == "after_start") {
      vm.after_start = hook_from(value, setting.base, home_, filler);
    }
  }
  return vm;
}

Fleet Fleet::load(const fs::path& file, const fs::path& home) {
  Fleet fleet;
  fleet.home_ = home;
  Reader reader(fleet);
  reader.name_top(file);
  reader.read(file);
  reader.check();
  return fleet;
}

std::optional<FleetHost> Fleet::host(const std::string& on) const {
  std::vector<std::string> names, here;
  for (const auto& host : hosts_) {
    names.push_back(host.name);
    if (host.address.empty()) {
      here.push_back(host.name);
    }
  }
  const std::string wanted = !on.empty() ? on : names.size() == 1 ? names.front() : here.size() == 1 ? here.front() : "";
  const auto found = std::find_if(hosts_.begin(), hosts_.end(), [&](const FleetHost& host) { return host.name == wanted; });
  if (found != hosts_.end()) {
    return *found;
  }
  if (!on.empty()) {
    throw Error(ErrorKind::usage, "fleet-host-unknown", fmt::format("the fleet has no host named '{}'", on))
        .note(fmt::format("hosts: {}", fmt::join(names, ", ")));
  }
  if (hosts_.empty()) {
    return std::nullopt;
  }
  throw Error(ErrorKind::usage, "fleet-host-needed", fmt::format("the fleet has {} hosts; which of them is this Mac?", hosts_.size()))
      .note(fmt::format("hosts: {}", fmt::join(names, ", ")))
      .fix("name it: --on HOST");
}

int Fleet::guest_limit(const std::optional<FleetHost>& host) const {
  if (host && host->guest_limit) {
    return *host->guest_limit;
  }
  return guest_limit_.value_or(apple_guest_limit);
}

std::vector<FleetVm> Fleet::vms(const std::string& host, const std::vector<Vm>& listed, std::vector<std::string>& unmatched) const {
  std::set<std::string> named;
  for (const auto& name : named_vms(host)) {
    named.insert(name);
  }
  std::vector<std::string> names;
  for (const auto& vm : listed) {
    names.push_back(vm.name);
  }
  std::sort(names.begin(), names.end());
  std::vector<FleetVm> out;
  std::set<std::string> taken;
  for (const auto& entry : entries_) {
    if (!is_for(entry, host)) {
      continue;
    }
    if (!entry.name.empty()) {
      const std::string stored = Lume::stored_name(entry.name);
      if (!std::binary_search(names.begin(), names.end(), stored)) {
        Error error(ErrorKind::usage, "vm-unknown", fmt::format("{}: lume knows no VM named '{}'", place_of(entry.at), entry.name));
        if (const auto meant = nearest(entry.name, names)) {
          error.note(fmt::format("did you mean '{}'?", *meant));
        }
        throw error.fix("see: lume ls");
      }
      if (taken.insert(stored).second) {
        out.push_back(resolve(entry, stored, host));
      }
      continue;
    }
    bool any = false;
    for (const auto& name : names) {
      if (::fnmatch(entry.match.c_str(), name.c_str(), 0) != 0) {
        continue;
      }
      any = true;
      const auto vm = std::find_if(listed.begin(), listed.end(), [&](const Vm& one) { return one.name == name; });
      if (named.contains(name) || vm->os == "linux" || !taken.insert(name).second) {
        continue;
      }
      out.push_back(resolve(entry, name, host));
    }
    if (!any) {
      unmatched.push_back(fmt::format("{}: no VM matches '{}'", place_of(entry.at), entry.match));
    }
  }
  return out;
}

std::vector<std::string> Fleet::named_vms(const std::string& host) const {
  std::vector<std::string> out;
  for (const auto& entry : entries_) {
    if (!entry.name.empty() && is_for(entry, host)) {
      out.push_back(Lume::stored_name(entry.name));
    }
  }
  return out;
}

}  // namespace lumelift
