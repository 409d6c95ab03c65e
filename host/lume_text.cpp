#include "host/lume_text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "host/sys/excerpt.hpp"

namespace lumelift::lume_text {
namespace {

using nlohmann::json;

/// A VM object in an array is four levels deep; the rest is for what later releases may add.
constexpr std::size_t deepest = 16;

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

bool holds_any(std::string_view text, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(), [&](auto part) { return text.find(part) != std::string_view::npos; });
}

/// Calls `use` with each line until it returns true; the second argument is where the line starts.
template <typename Use>
void each_line(std::string_view text, Use use) {
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find('\n', at), text.size());
    if (use(text.substr(at, end - at), at)) return;
    at = end + 1;
  }
}

/// A member that is there and not null.
const json* member(const json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string text_of(const json& object, const char* name) {
  const json* value = member(object, name);
  return value != nullptr && value->is_string() ? value->get<std::string>() : "";
}

std::optional<std::string> optional_text(const json& object, const char* name) {
  std::string text = text_of(object, name);
  return text.empty() ? std::nullopt : std::optional(std::move(text));
}

std::uint64_t number_of(const json& object, const char* name) {
  const json* value = member(object, name);
  return value != nullptr && value->is_number_unsigned() ? value->get<std::uint64_t>() : 0;
}

std::vector<SharedDir> shared_dirs_of(const json& object) {
  std::vector<SharedDir> dirs;
  const json* list = member(object, "sharedDirectories");
  if (list == nullptr || !list->is_array()) return dirs;
  for (const json& item : *list) {
    if (!item.is_object() || text_of(item, "hostPath").empty()) continue;
    const json* read_only = member(item, "readOnly");
    dirs.push_back({text_of(item, "hostPath"), text_of(item, "tag"), read_only == nullptr || *read_only != false});
  }
  return dirs;
}

std::optional<Vm> vm_of(const json& object) {
  if (!object.is_object() || text_of(object, "name").empty() || text_of(object, "status").empty()) return std::nullopt;
  Vm vm;
  vm.name = text_of(object, "name");
  vm.os = text_of(object, "os");
  vm.status = text_of(object, "status");
  vm.address = optional_text(object, "ipAddress");
  if (const json* ssh = member(object, "sshAvailable"); ssh != nullptr && ssh->is_boolean()) vm.ssh_available = ssh->get<bool>();
  vm.storage = text_of(object, "locationName");
  vm.network = optional_text(object, "networkMode");
  vm.shared_dirs = shared_dirs_of(object);
  vm.cpus = number_of(object, "cpuCount");
  vm.memory = number_of(object, "memorySize");
  if (const json* disk = member(object, "diskSize"); disk != nullptr && disk->is_object()) {
    vm.disk_total = number_of(*disk, "total");
  }
  return vm;
}

/// The text from an opening bracket to the one that closes it; nothing when that is not there. Looks at brackets and strings
/// only. The limit on depth keeps the trials at all lines of a text linear in its size.
std::optional<std::string_view> bracketed(std::string_view text) {
  std::string open;
  bool in_string = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string) {
      if (c == '\n') return std::nullopt;
      if (c == '\\') ++at;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (open.size() == deepest) return std::nullopt;
      open += c == '[' ? ']' : '}';
    } else if (c == ']' || c == '}') {
      if (open.back() != c) return std::nullopt;
      open.pop_back();
      if (open.empty()) return text.substr(0, at + 1);
    }
  }
  return std::nullopt;
}

std::optional<std::vector<Vm>> vms_of(const json& value) {
  std::vector<Vm> vms;
  if (value.is_object()) {
    auto vm = vm_of(value);
    if (!vm) return std::nullopt;
    return std::vector<Vm>{std::move(*vm)};
  }
  if (!value.is_array()) return std::nullopt;
  for (const json& item : value) {
    auto vm = vm_of(item);
    if (!vm) return std::nullopt;
    vms.push_back(std::move(*vm));
  }
  return vms;
}

}  // namespace

std::optional<std::vector<Vm>> vms_in(std::string_view output) {
  std::optional<std::vector<Vm>> found;
  each_line(output, [&](std::string_view line, std::size_t start) {
    // lume's log lines begin with a bracket as well: only trying tells.
    if (line.empty() || (line.front() != '[' && line.front() != '{')) return false;
    const auto text = bracketed(output.substr(start));
    auto vms = text ? vms_of(json::parse(*text, nullptr, false)) : std::nullopt;
    if (!vms) return false;
    found = std::move(vms);
    return !found->empty();
  });
  if (!found && output.find_first_not_of(" \t\r\n") == std::string_view::npos) return std::vector<Vm>{};
  return found;
}

std::optional<std::string> version_in(std::string_view output) {
  std::optional<std::string> version;
  each_line(output, [&](std::string_view line, std::size_t) {
    for (const std::string_view prefix : {" ", "lume ", "version ", "v"}) {
      if (line.starts_with(prefix)) line.remove_prefix(prefix.size());
    }
    const auto end = line.find_last_not_of(" \t\r");
    line = line.substr(0, end == std::string_view::npos ? 0 : end + 1);
    const auto numbers = line.substr(0, line.find_first_not_of("0123456789."));
    const bool three = std::count(numbers.begin(), numbers.end(), '.') >= 2;
    if (!three || numbers.front() == '.' || numbers.back() == '.' || line.find(' ') != std::string_view::npos) return false;
    version = line;
    return true;
  });
  return version;
}

bool at_least(std::string_view version, std::string_view minimum) {
  const auto numbers = [](std::string_view text) {
    std::array<unsigned long, 3> parts{};
    for (auto& part : parts) {
      const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), part);
      if (error == std::errc::result_out_of_range) part = ~0ul;
      text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
      if (!text.starts_with('.')) break;
      text.remove_prefix(1);
    }
    return parts;
  };
  return numbers(version) >= numbers(minimum);
}

bool says_not_found(std::string_view text) {
  return holds_any(lower(text), {"machine not found", "vm not found"});
}

bool says_not_running(std::string_view text) {
  return holds_any(lower(text), {"not running"});
}

StartFailure start_failure_in(std::string_view log) {
  const std::string text = lower(log);
  if (holds_any(text, {"vzerrordomain code=6", "exceeds the limit", "exceeds the system limit", "maximum supported number"})) {
    return StartFailure::limit;
  }
  if (holds_any(text, {"already running", "failed to lock auxiliary storage", "auxiliary storage is locked"})) {
    return StartFailure::locked;
  }
  if (holds_any(text, {"-25308", "failed to get current host key"})) return StartFailure::keychain;
  if (holds_any(text, {"window server", "windowserver", "failed to open the viewer"})) return StartFailure::display;
  if (holds_any(text, {"\nerror:", "vzerrordomain"}) || text.starts_with("error:")) return StartFailure::other;
  return StartFailure::none;
}

Detached detached_in(std::string_view output) {
  Detached result;
  each_line(output, [&](std::string_view line, std::size_t) {
    const std::string_view log_mark = "Log: ", pid_mark = "(PID ";
    if (line.starts_with(log_mark)) result.log = line.substr(log_mark.size());
    const auto at = line.rfind(pid_mark);
    if (line.starts_with("Started ") && at != std::string_view::npos) {
      int pid = 0;
      const auto digits = line.substr(at + pid_mark.size());
      if (std::from_chars(digits.data(), digits.data() + digits.size(), pid).ec == std::errc{} && pid > 1) result.pid = pid;
    }
    return false;
  });
  return result;
}

std::string quoted(std::string_view text) {
  std::string masked(text);
  const std::string_view scheme = "vnc://";
  for (auto at = masked.find(scheme); at != std::string::npos; at = masked.find(scheme, at + scheme.size())) {
    const auto start = at + scheme.size();
    const auto end = std::min(masked.find_first_of(" \t\r\n\"'/", start), masked.size());
    const auto sign = masked.rfind('@', end);
    if (sign != std::string::npos && sign >= start && sign < end) masked.replace(start, sign - start, "***");
  }
  return excerpt(masked);
}

}  // namespace lumelift::lume_text
