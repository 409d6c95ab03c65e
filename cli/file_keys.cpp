#include "cli/file_keys.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace lumelift {
namespace {

using json = nlohmann::ordered_json;
using Type = FileKey::Type;
using Need = FileKey::Need;

constexpr std::string_view name_pattern = "[a-z0-9][a-z0-9-]*";
constexpr std::string_view label_pattern = "[A-Za-z0-9_][A-Za-z0-9._-]*";
constexpr std::string_view host_path_note = "File or folder of this Mac, relative to this file";

// Largest threadgroup memory that a profile may claim. Apple's tables give 32 KiB for every family; the published
// profile claims 64 KiB. More has no precedent and would let a program size buffers that no device has.
constexpr std::uint64_t threadgroup_most = 65536;
constexpr std::uint64_t working_set_most = 1ull << 50;

constexpr std::array profile_keys = {
    FileKey{"schema", Type::version, Need::required, "Version of this format", 0, 1},
    FileKey{"name", Type::string, Need::required, "Name in reports", 0, 64, name_pattern},
    FileKey{"description", Type::text, Need::optional, "For people"},
    FileKey{"apple_family_max", Type::number, Need::required, "Highest Apple family that the library says yes to: 1007 is Apple7", 1001,
            1009},
    FileKey{"threadgroup_memory", Type::number, Need::optional, "Bytes of threadgroup memory, raised only; 0: as reported", 0,
            threadgroup_most},
    FileKey{"working_set", Type::number, Need::optional, "Recommended working set in bytes, raised only; 0: as reported", 0,
            working_set_most},
};

constexpr std::array executable_keys = {
    FileKey{"host", Type::string, Need::optional, host_path_note},
    FileKey{"guest", Type::string, Need::optional, "Path in the guest; with host: relative to the workload's folder"},
};
constexpr std::array log_keys = {
    FileKey{"stdout", Type::string, Need::optional, "File of the guest, absolute or beginning with ~/"},
    FileKey{"stderr", Type::string, Need::optional, "File of the guest, absolute or beginning with ~/"},
};
constexpr std::array copy_keys = {
    FileKey{"from", Type::string, Need::required, host_path_note},
    FileKey{"to", Type::string, Need::optional, "Path in the guest, relative to the workload's folder; default: the same name"},
    FileKey{"mode", Type::string, Need::optional,
            "copy, or share: left on this Mac, where the guest reads it from a read-only shared folder", 0, 0, "copy|share"},
};
constexpr std::array ready_keys = {
    FileKey{"port", Type::number, Need::optional, "TCP port of the guest that the program itself listens on", 1, 65535},
    FileKey{"log", Type::text, Need::optional, "Part of a line that the program prints"},
    FileKey{"command", Type::texts, Need::optional, "Command of the guest that succeeds, its program absolute or beginning with ~/"},
    FileKey{"within", Type::number, Need::optional, "Seconds after which it counts as failed", 1, 3600},
};

template <std::size_t N, std::size_t M>
constexpr auto joined(const std::array<FileKey, N>& first, const std::array<FileKey, M>& second) {
  std::array<FileKey, N + M> out{first[0]};
  std::copy(first.begin(), first.end(), out.begin());
  std::copy(second.begin(), second.end(), out.begin() + N);
  return out;
}

// What describes one program, whether it is the workload's only one or one of its agents.
constexpr std::array program_keys = {
    FileKey{"label", Type::string, Need::optional,
            "Label of the LaunchAgent; default: io.lumelift.NAME, of an agent io.lumelift.WORKLOAD.NAME", 0, 128, label_pattern},
    FileKey{"executable",
            Type::string_or_object,
            Need::required,
            "Program in the guest, or one of this Mac that is copied",
            0,
            0,
            {},
            executable_keys},
    FileKey{"arguments", Type::texts, Need::optional, "Words after the program's name"},
    FileKey{"environment", Type::map, Need::optional, "Variables of the program; none that begins with DYLD_, LUMELIFT_ or LUME_METAL_", 0,
            0, "(?!DYLD_|LUMELIFT_|LUME_METAL_)[A-Za-z_][A-Za-z0-9_]*"},
    FileKey{"working_directory", Type::string, Need::optional, "Folder in the guest; default: the workload's folder"},
    FileKey{
        "logs", Type::object, Need::optional, "Where the program's streams go; default: run/ in the workload's folder", 0, 0, {}, log_keys},
    FileKey{"keep_alive", Type::boolean, Need::optional, "launchd starts the program again when it ends"},
    FileKey{"inherit", Type::boolean, Need::optional, "Children of the program get the library too"},
    FileKey{"ready",
            Type::object,
            Need::optional,
            "What unlock waits for once the program runs: exactly one of port, log and command",
            0,
            0,
            {},
            ready_keys},
};
constexpr auto agent_keys =
    joined(std::array{FileKey{"name", Type::string, Need::required, "Name of the agent", 0, 64, name_pattern}}, program_keys);
constexpr auto workload_keys = joined(
    std::array{
        FileKey{"schema", Type::version, Need::required, "Version of this format", 0, 1},
        FileKey{"name", Type::string, Need::required, "Names its folder in the guest: ~/.local/share/lumelift/NAME", 0, 64, name_pattern},
        FileKey{"files", Type::objects, Need::optional, "What is copied into the guest beside the programs", 0, 0, {}, copy_keys},
        FileKey{"transfer", Type::string, Need::optional,
                "How large files reach the guest: ssh, share (from a read-only shared folder that the VM is started with), or auto", 0, 0,
                "auto|share|ssh"},
        FileKey{"agents",
                Type::objects,
                Need::optional,
                "Several programs instead of the one that the keys below describe",
                0,
                0,
                {},
                agent_keys},
    },
    program_keys);

// Names of options; see cli/settings.hpp.
constexpr std::array settings_keys = {
    FileKey{"schema", Type::version, Need::required, "Version of this format", 0, 1},
    FileKey{"user", Type::string, Need::optional, "Account in the guest"},
    FileKey{"port", Type::number, Need::optional, "SSH port of the guest", 1, 65535},
    FileKey{"key", Type::string, Need::optional, "Private key file, relative to this file"},
    FileKey{"agent", Type::boolean, Need::optional, "Also try keys of the SSH agent"},
    FileKey{"password-file", Type::string, Need::optional, "File with the guest's password; in the user's own settings only"},
    FileKey{"timeout", Type::number, Need::optional, "Seconds from starting the VM until its guest must answer", 1, 86400},
    FileKey{"profile", Type::string, Need::optional, "Profile name, or file relative to this one"},
    FileKey{"restart", Type::string, Need::optional, "Whether a VM is restarted", 0, 0, "auto|idle|always|never"},
    FileKey{"host-preference", Type::string, Need::optional, "Whether unlock sets the host preference", 0, 0, "set|keep"},
    FileKey{"color", Type::string, Need::optional, "Whether output is coloured", 0, 0, "auto|always|never"},
    FileKey{"quiet", Type::boolean, Need::optional, "Only results, warnings and errors"},
    FileKey{"verbose", Type::boolean, Need::optional, "Show each command and how long it took"},
};

// What may be said for one VM of a fleet, for a pattern, or for all; see cli/fleet.hpp.
constexpr std::string_view variables_note = "Values for ${name}; ${vm} and ${host} are there already";
constexpr std::string_view variable_pattern = "(?!vm$|host$)[a-z_][a-z0-9_]*";
constexpr std::array fleet_setting_keys = {
    FileKey{"profile", Type::string, Need::optional, "Name of a shipped profile, or a file; default: tested"},
    FileKey{"workloads", Type::strings, Need::optional, "Workload files, in the order in which they are installed"},
    FileKey{"user", Type::string, Need::optional, "Account in the guest"},
    FileKey{"port", Type::number, Need::optional, "SSH port of the guest", 1, 65535},
    FileKey{"key", Type::string, Need::optional, "Private key file"},
    FileKey{"password_file", Type::string, Need::optional, "File with the password, mode 0600"},
    FileKey{"timeout", Type::number, Need::optional, "Seconds from starting the VM until its guest must answer", 1, 86400},
    FileKey{"host_preference", Type::string, Need::optional, "Set the host preference, or leave it as it is", 0, 0, "set|keep"},
    FileKey{"before_stop", Type::texts, Need::optional, "Command on the Mac before a running VM is stopped; a failure leaves the VM alone",
            1},
    FileKey{"after_start", Type::texts, Need::optional, "Command on the Mac once the VM runs again", 1},
    FileKey{"hook_timeout", Type::number, Need::optional, "Seconds that such a command may take", 1, 86400},
};
constexpr std::array fleet_host_keys = {
    FileKey{"name", Type::string, Need::required, "For --on and the inventory"},
    FileKey{"address", Type::string, Need::optional, "Where SSH reaches it; absent: this Mac"},
    FileKey{"user", Type::string, Need::optional, "Account there"},
    FileKey{"port", Type::number, Need::optional, "SSH port there", 1, 65535},
    FileKey{"lumelift", Type::string, Need::optional, "The program there"},
    FileKey{"guest_limit", Type::number, Need::optional, "macOS guests that may run there at a time", 1, 64},
};
constexpr std::array fleet_vm_keys = joined(
    std::array{
        FileKey{"name", Type::string, Need::one_of, "Exact name"},
        FileKey{"match", Type::text, Need::one_of, "Pattern with *, ? and [...]"},
        FileKey{"host", Type::string, Need::optional, "Only on this host"},
        FileKey{"variables", Type::map, Need::optional, variables_note, 0, 0, variable_pattern},
    },
    fleet_setting_keys);
constexpr std::array fleet_keys = {
    FileKey{"schema", Type::version, Need::required, "Version of this format", 0, 1},
    FileKey{"include", Type::strings, Need::optional, "Further fleet files, relative to this one; what stands here wins"},
    FileKey{"variables", Type::map, Need::optional, variables_note, 0, 0, variable_pattern},
    FileKey{"guest_limit", Type::number, Need::optional,
            "macOS guests that may run at a time; default: the two that Apple's framework allows", 1, 64},
    FileKey{"defaults", Type::object, Need::optional, "For all VMs", 0, 0, {}, fleet_setting_keys},
    FileKey{"hosts", Type::objects, Need::optional, "The Macs", 0, 0, {}, fleet_host_keys},
    FileKey{"vms",
            Type::objects,
            Need::optional,
            "An exact name counts before patterns, the first pattern before later ones",
            0,
            0,
            {},
            fleet_vm_keys},
};

constexpr std::array formats = {
    FileFormat{"profile", "lumelift profile: what the library answers in the guest", profile_keys},
    FileFormat{"workload", "lumelift workload: programs that run with the library in them", workload_keys, "agents"},
    FileFormat{"settings", "lumelift settings: values for options that were not given", settings_keys},
    FileFormat{"fleet", "lumelift fleet: VMs, the Macs that they are on, and what each gets", fleet_keys},
};

json shape(const FileKey& key);

json object_of(std::span<const FileKey> keys) {
  json properties = json::object(), required = json::array(), one_of = json::array();
  for (const auto& key : keys) {
    properties[std::string(key.name)] = shape(key);
    if (key.need == Need::required) {
      required.push_back(key.name);
    } else if (key.need == Need::one_of) {
      one_of.push_back({{"required", {key.name}}});
    }
  }
  json out = {{"type", "object"}, {"additionalProperties", false}, {"properties", properties}};
  if (!required.empty()) {
    out["required"] = required;
  }
  if (!one_of.empty()) {
    out["oneOf"] = one_of;
  }
  return out;
}

json string_of(const FileKey& key) {
  json out = {{"type", "string"}};
  if (key.most != 0) {
    out["maxLength"] = key.most;
  }
  if (!key.pattern.empty()) {
    out["pattern"] = fmt::format("^({})$", key.pattern);
  }
  return out;
}

json shape(const FileKey& key) {
  const json text = {{"type", {"string", "number"}}};
  json out;
  switch (key.type) {
    case Type::version:
      out = {{"const", key.most}};
      break;
    case Type::string:
      out = string_of(key);
      break;
    case Type::text:
      out = text;
      break;
    case Type::number:
      out = {{"type", "integer"}, {"minimum", key.least}, {"maximum", key.most}};
      break;
    case Type::boolean:
      out = {{"type", "boolean"}};
      break;
    case Type::texts:
      out = {{"type", "array"}, {"items", text}};
      if (key.least != 0) {
        out["minItems"] = key.least;
      }
      break;
    case Type::strings:
      out = {{"type", "array"}, {"items", {{"type", "string"}}}};
      break;
    case Type::map:
      out = {{"type", "object"}, {"additionalProperties", text}, {"propertyNames", {{"pattern", fmt::format("^({})$", key.pattern)}}}};
      break;
    case Type::object:
      out = object_of(key.keys);
      break;
    case Type::objects:
      out = {{"type", "array"}, {"items", object_of(key.keys)}};
      break;
    case Type::string_or_object:
      out = {{"anyOf", {string_of(key), object_of(key.keys)}}};
      break;
  }
  out["description"] = key.text;
  return out;
}

/// The required keys of that list's objects are required in its absence, and none of their keys stands beside it.
json with_alternative(json object, const FileFormat& format) {
  const FileKey& list = key_of(format.keys, format.instead);
  json one = {{"required", json::array()}}, several = {{"required", {list.name}}};
  for (const auto& key : list.keys) {
    if (!object["properties"].contains(std::string(key.name)) || key.name == "name") {
      continue;
    }
    if (key.need == Need::required) {
      one["required"].push_back(key.name);
      std::erase(object["required"].get_ref<json::array_t&>(), json(key.name));
    }
    several["properties"][std::string(key.name)] = false;
  }
  object["oneOf"] = {one, several};
  return object;
}

}  // namespace

const FileFormat& profile_format() {
  return formats[0];
}
const FileFormat& workload_format() {
  return formats[1];
}
const FileFormat& settings_format() {
  return formats[2];
}
const FileFormat& fleet_format() {
  return formats[3];
}
std::span<const FileFormat> file_formats() {
  return formats;
}

const FileKey& key_of(std::span<const FileKey> keys, std::string_view name) {
  const auto found = std::find_if(keys.begin(), keys.end(), [&](const FileKey& key) { return key.name == name; });
  if (found == keys.end()) {
    throw std::logic_error(fmt::format("no key named '{}' is declared", name));
  }
  return *found;
}

std::string json_schema(const FileFormat& format) {
  json out = {{"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"title", format.title}};
  out.update(object_of(format.keys));
  if (!format.instead.empty()) {
    out = with_alternative(std::move(out), format);
  }
  return out.dump(2) + "\n";
}

}  // namespace lumelift
