#include "cli/evidence.hpp"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "cli/arms.hpp"
#include "cli/console.hpp"
#include "cli/evidence_bundle.hpp"
#include "cli/json_text.hpp"
#include "cli/sanitise.hpp"
#include "host/sys/error.hpp"
#include "host/sys/file.hpp"
#include "host/sys/hash.hpp"

namespace lumelift {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr const char* readme =
    "# Evidence bundle\n\n"
    "Measurements of a macOS guest's Metal device, stock and unlocked, as the programs printed them.\n\n"
    "- `raw/`: outputs, banners (`.stderr`), exit statuses (`.status`), probe answers, receipts, `environment.json`.\n"
    "  Home folders, user and host names, addresses and UUIDs were replaced; no figure was.\n"
    "- `results.csv`: medians, ratios with 95 % intervals, per cent of bare metal; computed from `raw/`.\n"
    "- `metadata.json`: environment, files with checksums, and the whole report; computed from `raw/`.\n"
    "- `SHA256SUMS`: `sha256sum -c SHA256SUMS` checks the files.\n\n"
    "`lumelift evidence verify FOLDER` checks the files and computes every number again.\n";

std::string file_kind(const fs::path& path, const LoadedArms& loaded, const std::string& text) {
  const auto name = path.generic_string();
  const auto is_this = [&](const Arm& arm) { return arm.source == name; };
  if (std::any_of(loaded.arms.begin(), loaded.arms.end(), is_this)) return "benchmark";
  if (path.filename() == "environment.json") return "environment";
  if (path.extension() == ".stderr" || path.extension() == ".err") return "banner";
  if (path.extension() == ".status" || path.extension() == ".exit") return "status";
  if (path.extension() != ".json") return "other";
  const auto object = nlohmann::json::parse(text, nullptr, false);
  if (object.is_object() && object.contains("outcome") && object.contains("pid")) return "receipt";
  if (object.is_object() && (object.contains("families") || object.contains("class_chain"))) return "probe";
  return "other";
}

/// "macOS-26.5.2-arm64-arm-64bit" to "26.5.2".
std::string os_version(const std::string& platform) {
  if (!platform.starts_with("macOS-")) return {};
  return platform.substr(6, platform.find('-', 6) - 6);
}

Environment read_environment(const fs::path& raw, const std::vector<Arm>& arms) {
  Environment environment;
  for (const auto& arm : arms) {
    if (!arm.chip.empty()) environment.facts.emplace("chip", cleaned(arm.chip));
    const auto version = cleaned(os_version(arm.platform));
    if (!version.empty() && (arm.role == Role::stock || arm.role == Role::unlocked)) {
      environment.facts.emplace("guest_os", version);
    }
    if (!version.empty() && arm.role == Role::host) environment.facts.emplace("host_os", version);
  }
  const auto file = raw / "environment.json";
  if (!fs::exists(file)) return environment;
  const auto stored = sys::read_file(file, evidence_file_cap);
  const auto object = nlohmann::json::parse(json_text(stored), nullptr, false);
  if (!object.is_object()) {
    throw Error(ErrorKind::usage, "evidence-environment", "environment.json is no JSON object")
        .fix("it maps names to text or numbers: " + fmt::format("{}", fmt::join(environment_keys(), ", ")));
  }
  for (const auto& key : environment_keys()) {
    const auto value = object.find(key);
    if (value == object.end() || value->is_structured() || value->is_null()) continue;
    environment.facts[key] = cleaned(value->is_string() ? value->get<std::string>() : value->dump());
  }
  return environment;
}

/// Everything that was measured, without names: what sanitising must leave as it was.
using Measured = std::vector<std::tuple<std::string, Role, std::vector<double>>>;

Measured measured(const Report& report) {
  Measured all;
  for (const auto& workload : report.workloads) {
    for (const auto& test : workload.tests) {
      for (const auto& [role, cell] : test.cells) all.emplace_back(test.test, role, cell.rates);
    }
  }
  std::sort(all.begin(), all.end());
  return all;
}

/// A folder that is gone again unless it is kept.
class Partial {
 public:
  explicit Partial(fs::path path) : path_(std::move(path)) { fs::create_directories(path_ / "raw"); }
  ~Partial() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  Partial(const Partial&) = delete;
  Partial& operator=(const Partial&) = delete;
  [[nodiscard]] const fs::path& path() const { return path_; }
  void keep_as(const fs::path& name) {
    fs::rename(path_, name);
    path_.clear();
  }

 private:
  fs::path path_;
};

std::string merged_environment(const std::string& existing, const std::vector<std::string>& facts) {
  auto object = existing.empty() ? ordered_json::object() : ordered_json::parse(json_text(existing), nullptr, false);
  if (!object.is_object()) throw Error(ErrorKind::usage, "evidence-environment", "environment.json is no JSON object");
  for (const auto& fact : facts) {
    const auto equals = fact.find('=');
    const auto key = fact.substr(0, equals);
    const auto& known = environment_keys();
    if (equals == std::string::npos || std::find(known.begin(), known.end(), key) == known.end()) {
      throw Error(ErrorKind::usage, "evidence-fact", fmt::format("'{}' is not KEY=VALUE with a known key", fact))
          .fix(fmt::format("keys: {}", fmt::join(known, ", ")));
    }
    object[key] = fact.substr(equals + 1);
  }
  return object.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

/// A name as it can be shown in one line, with each control character as \x0a.
std::string one_line(std::string_view name) {
  std::string text;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    text += byte < 0x20 || byte == 0x7f ? fmt::format("\\x{:02x}", byte) : std::string(1, c);
  }
  return text;
}

struct RawFiles {
  std::map<std::string, std::string> texts;  ///< by path with forward slashes
  std::vector<std::string> left_out;
};

RawFiles read_raw(const fs::path& folder) {
  RawFiles raw;
  auto listing = list_folder(folder);
  raw.left_out = std::move(listing.others);
  for (const auto& file : listing.files) {
    const auto name = file.generic_string();
    const bool hidden = name.starts_with('.') || name.find("/.") != std::string::npos;
    if (!hidden && std::any_of(name.begin(), name.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; })) {
      throw Error(ErrorKind::usage, "evidence-file-name",
                  fmt::format("the name of '{}' holds a control character, which a list of checksums cannot carry", one_line(name)))
          .fix("rename it, or leave it out of the folder");
    }
    auto text = hidden ? std::string() : sys::read_file(folder / file, evidence_file_cap);
    if (hidden || text.find('\0') != std::string::npos)
      raw.left_out.push_back(name);
    else
      raw.texts.emplace(name, std::move(text));
  }
  return raw;
}

void write_sanitised(const RawFiles& raw, const Sanitiser& sanitiser, const fs::path& target) {
  for (const auto& [name, text] : raw.texts) {
    const auto path = target / sanitiser.clean(name);
    if (fs::exists(path)) {
      throw Error(ErrorKind::usage, "evidence-names",
                  fmt::format("'{}' and another file have one name once names of people are "
                              "taken out",
                              name))
          .fix("rename one of them");
    }
    fs::create_directories(path.parent_path());
    sys::write_file(path, sanitiser.clean(text), 0644);
  }
}

void write_sums(const fs::path& bundle) {
  std::string sums;
  for (const auto& file : list_folder(bundle).files) {
    sums += fmt::format("{}  {}\n", sys::sha256_file(bundle / file), file.generic_string());
  }
  sys::write_file(bundle / "SHA256SUMS", sums, 0644);
}

}  // namespace

std::string Environment::get(const std::string& key) const {
  const auto found = facts.find(key);
  return found == facts.end() ? std::string() : found->second;
}

const std::vector<std::string>& environment_keys() {
  static const std::vector<std::string> keys{
      "chip",        "gpu_cores", "memory_bytes",       "host_os",        "host_build", "guest_os",
      "guest_build", "lume",      "guest_image_digest", "library_sha256", "profile",    "host_preference"};
  return keys;
}

FolderListing list_folder(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    throw Error(ErrorKind::usage, "evidence-folder", fmt::format("'{}' is no folder", folder.string()))
        .fix("name the folder that holds the outputs");
  }
  FolderListing listing;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const auto type = entry.symlink_status().type();
    const auto name = entry.path().lexically_relative(folder);
    if (type == fs::file_type::regular)
      listing.files.push_back(name);
    else if (type != fs::file_type::directory)
      listing.others.push_back(name.generic_string());
    if (listing.files.size() > evidence_count_cap) {
      throw Error(ErrorKind::usage, "evidence-folder", fmt::format("'{}' holds more than {} files", folder.string(), evidence_count_cap))
          .fix("is it the right folder?");
    }
  }
  std::sort(listing.files.begin(), listing.files.end());
  std::sort(listing.others.begin(), listing.others.end());
  return listing;
}

Derived derive_evidence(const fs::path& raw, const Limits& limits) {
  const auto loaded = load_arms({{raw, std::nullopt}});
  Derived derived;
  derived.bundle.report = make_report(loaded.arms, limits);
  derived.bundle.environment = read_environment(raw, loaded.arms);
  ordered_json environment = ordered_json::object(), files = ordered_json::array();
  for (const auto& key : environment_keys()) {
    const auto value = derived.bundle.environment.get(key);
    environment[key] = value.empty() ? ordered_json() : ordered_json(value);
  }
  for (const auto& file : list_folder(raw).files) {
    const auto text = sys::read_file(raw / file, evidence_file_cap);
    ordered_json entry{{"path", cleaned("raw/" + file.generic_string())},
                       {"kind", file_kind(file, loaded, text)},
                       {"bytes", text.size()},
                       {"sha256", sys::sha256(text)}};
    for (const auto& arm : loaded.arms) {
      if (arm.source == file.generic_string()) entry["arm"] = role_name(arm.role);
    }
    files.push_back(std::move(entry));
    ++derived.bundle.files;
  }
  const ordered_json metadata{{"schema_version", 1},
                              {"kind", "lumelift-evidence"},
                              {"environment", environment},
                              {"files", files},
                              {"report", ordered_json::parse(render_json(derived.bundle.report))}};
  derived.metadata_json = metadata.dump(1) + "\n";
  derived.results_csv = render_csv(derived.bundle.report);
  return derived;
}

Bundle pack_evidence(const fs::path& folder, const fs::path& target, const PackOptions& options) {
  // "bundle/" is the folder "bundle": what is built beside it must not be built in it.
  const auto bundle = target.has_filename() ? target : target.parent_path();
  if (fs::exists(fs::symlink_status(bundle))) {
    throw Error(ErrorKind::usage, "evidence-exists", fmt::format("'{}' is there already", bundle.string()))
        .fix("name a new folder for the bundle");
  }
  // All of the folder is read before anything is written: the bundle may well be made inside it.
  auto raw = read_raw(folder);
  const auto before = make_report(load_arms({{folder, std::nullopt}}).arms, options.limits.value_or(Limits{}));
  if (!options.facts.empty()) {
    raw.texts["environment.json"] = merged_environment(raw.texts["environment.json"], options.facts);
  }
  Sanitiser sanitiser;
  sanitiser.learn_user(options.local_user);
  sanitiser.learn_host(options.local_host);
  for (const auto& [name, text] : raw.texts) sanitiser.learn(text);

  Partial partial(fs::path(bundle).concat(fmt::format(".partial-{}", ::getpid())));
  write_sanitised(raw, sanitiser, partial.path() / "raw");
  auto derived = derive_evidence(partial.path() / "raw", options.limits.value_or(Limits{}));
  if (derived.bundle.report.workloads.empty()) {
    throw Error(ErrorKind::usage, "evidence-nothing", fmt::format("'{}' holds no benchmark that can be used", folder.string()))
        .fix("see why with: lumelift report " + folder.string());
  }
  if (measured(before) != measured(derived.bundle.report)) {
    throw Error(ErrorKind::failed, "evidence-figures-changed", "taking names out would have changed a figure; nothing was packed")
        .fix("look for a user or host name that is also a word of the files");
  }
  sys::write_file(partial.path() / "results.csv", derived.results_csv, 0644);
  sys::write_file(partial.path() / "metadata.json", derived.metadata_json, 0644);
  sys::write_file(partial.path() / "README.md", readme, 0644);
  write_sums(partial.path());
  partial.keep_as(bundle);
  derived.bundle.left_out = std::move(raw.left_out);
  return std::move(derived.bundle);
}

}  // namespace lumelift
