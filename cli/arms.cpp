#include "cli/arms.hpp"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <future>
#include <set>
#include <thread>

#include <fmt/format.h>

#include "cli/receipt.hpp"
#include "host/sys/error.hpp"
#include "host/sys/file.hpp"
#include "host/sys/hash.hpp"

namespace lumelift {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t file_cap = 64u << 20;

std::set<std::string> words(std::string_view text) {
  std::set<std::string> found;
  std::string word;
  for (const char c : text) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (letter) word += static_cast<char>(c | 0x20);
    if (!letter && !word.empty()) found.insert(std::exchange(word, {}));
  }
  if (!word.empty()) found.insert(word);
  return found;
}

bool any_of(const std::set<std::string>& found, std::initializer_list<const char*> wanted) {
  return std::any_of(wanted.begin(), wanted.end(), [&](const char* word) { return found.contains(word); });
}

std::optional<Role> role_in_part(std::string_view part) {
  const auto found = words(part);
  const bool host = any_of(found, {"host", "baremetal", "bare", "native"});
  const bool stock = any_of(found, {"stock", "unpatched"});
  const bool unlocked = any_of(found, {"unlocked", "unlock", "shim", "hooked", "injected"});
  const bool cpu = any_of(found, {"cpu", "cpuonly"});
  if ((host && (stock || unlocked || cpu)) || (stock && unlocked)) return Role::unknown;
  if (cpu) return Role::cpu;
  if (host) return Role::host;
  if (stock) return Role::stock;
  if (unlocked) return Role::unlocked;
  return std::nullopt;
}

std::optional<Role> role_in_evidence(const Arm& arm) {
  const bool no_devices = !arm.rows.empty() && std::all_of(arm.rows.begin(), arm.rows.end(), [](const Row& row) {
    const auto devices = row.settings.find("devices");
    return devices != row.settings.end() && devices->second == "\"none\"";
  });
  if (no_devices) return Role::cpu;
  if (arm.banner && arm.banner->present()) {
    if (arm.banner->device.find("Paravirtual") == std::string::npos) return Role::host;
    return arm.banner->fast_path() ? Role::unlocked : Role::stock;
  }
  if (!arm.gpu.empty() && arm.gpu.find("Paravirtual") == std::string::npos && !arm.virtual_cpu) return Role::host;
  return std::nullopt;
}

void check_banner(Arm& arm) {
  const auto& banner = *arm.banner;
  if (banner.debug_build) arm.refusals.emplace_back("the binary says that it is a debug build or has asserts enabled");
  if (!banner.present() || arm.role == Role::cpu) return;
  if (banner.over_broad()) {
    arm.refusals.push_back(fmt::format("the banner shows {}: wider than any profile may claim", banner.summary()));
  }
  const bool paravirtual = banner.device.find("Paravirtual") != std::string::npos;
  if (arm.role == Role::stock && banner.fast_path()) {
    arm.refusals.push_back(fmt::format("called stock, but its banner shows {}", banner.summary()));
  }
  if (arm.role == Role::unlocked && !banner.fast_path()) {
    arm.refusals.push_back(fmt::format("called unlocked, but its banner shows {}", banner.summary()));
  }
  if (arm.role == Role::host && paravirtual) {
    arm.refusals.emplace_back("called host, but its banner names the paravirtual device");
  }
  if ((arm.role == Role::stock || arm.role == Role::unlocked) && !banner.device.empty() && !paravirtual) {
    arm.notes.push_back(fmt::format("called {}, but its device is {}", role_name(arm.role), banner.device));
  }
}

std::optional<std::string> read_beside(const fs::path& file, std::initializer_list<const char*> suffixes) {
  for (const auto* suffix : suffixes) {
    auto candidate = file;
    candidate.replace_extension(suffix);
    std::error_code ignored;
    if (fs::is_regular_file(candidate, ignored)) return sys::read_file(candidate, file_cap);
    candidate = file;
    candidate += suffix;
    if (fs::is_regular_file(candidate, ignored)) return sys::read_file(candidate, file_cap);
  }
  return std::nullopt;
}

bool benchmark_name(const fs::path& path) {
  const auto extension = path.extension();
  return extension == ".json" || extension == ".jsonl";
}

std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder, fs::directory_options::skip_permission_denied)) {
    if (entry.symlink_status().type() == fs::file_type::regular && benchmark_name(entry.path())) {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// Checksum of what was measured: every sample and the time of the first one. Not of the file's bytes: names are taken out of the copy
/// in a bundle, and it holds the same samples still.
std::string identity_of(const Arm& arm) {
  std::string text = arm.tool + '\0' + arm.build + '\0' + arm.first_time;
  for (const auto& row : arm.rows) text += fmt::format("\n{}: {}", row.test, fmt::join(row.rates, " "));
  return arm.rows.empty() ? std::string() : sys::sha256(text);
}

std::optional<Arm> load_arm(const fs::path& file, const std::string& source, std::optional<Role> given) {
  auto arm = parse_arm(sys::read_file(file, file_cap), source);
  if (!arm) return arm;
  arm->identity = identity_of(*arm);
  complete_arm(*arm, given, source,
               {read_beside(file, {".stderr", ".err"}), read_beside(file, {".status", ".exit"}), read_beside(file, {".refused"}),
                read_beside(file, {".receipt.json"})});
  return arm;
}

void load_folder(const fs::path& folder, LoadedArms& loaded) {
  const auto files = files_below(folder);
  std::vector<std::optional<Arm>> arms(files.size());
  std::vector<std::string> sources;
  for (const auto& file : files) sources.push_back(file.lexically_relative(folder).generic_string());
  // Reading and parsing thousands of files is all the time that a report takes, and each file stands alone.
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i; (i = next++) < files.size();) arms[i] = load_arm(files[i], sources[i], std::nullopt);
  };
  std::vector<std::future<void>> helpers;
  const auto count = std::min<std::size_t>(std::thread::hardware_concurrency(), files.size() / 64);
  for (std::size_t i = 1; i < count; ++i) helpers.push_back(std::async(std::launch::async, work));
  work();
  for (auto& helper : helpers) helper.get();
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (arms[i])
      loaded.arms.push_back(std::move(*arms[i]));
    else
      loaded.skipped.push_back(sources[i]);
  }
}

}  // namespace

ArmInput arm_option(std::string_view text) {
  const auto equals = text.find('=');
  const auto role = role_of(text.substr(0, equals));
  if (equals == std::string_view::npos || equals + 1 == text.size() || !role) {
    throw Error(ErrorKind::usage, "arm-option", fmt::format("--arm wants ROLE=FILE, not '{}'", text))
        .fix("ROLE is one of host, stock, unlocked, cpu");
  }
  return {fs::path(text.substr(equals + 1)), role};
}

std::optional<Role> role_in_name(std::string_view path) {
  // The name of the file speaks first, then its folders, the nearest first.
  while (!path.empty()) {
    const auto slash = path.rfind('/');
    if (const auto role = role_in_part(slash == std::string_view::npos ? path : path.substr(slash + 1))) return role;
    path = slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
  }
  return std::nullopt;
}

void complete_arm(Arm& arm, std::optional<Role> given, std::string_view path, const Beside& beside) {
  if (beside.banner) arm.banner = parse_banner(*beside.banner);
  if (beside.refused) arm.refusals.push_back(*beside.refused);
  if (beside.status) {
    int status = -1;
    std::string_view digits = *beside.status;
    while (!digits.empty() && (digits.back() == '\n' || digits.back() == '\r' || digits.back() == ' ')) digits.remove_suffix(1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), status);
    if (error != std::errc{} || end != digits.data() + digits.size()) {
      arm.refusals.emplace_back("the status beside it is no number");
    } else {
      arm.status = status;
      if (status != 0) arm.refusals.push_back(fmt::format("the run ended with exit status {}", status));
    }
  }
  if (given) {
    arm.role = *given;
    arm.role_from = "--arm";
  } else if (const auto named = role_in_name(path)) {
    arm.role = *named;
    arm.role_from = "file name";
  } else if (const auto seen = role_in_evidence(arm)) {
    arm.role = *seen;
    arm.role_from = arm.banner && arm.banner->present() ? "banner" : "settings";
  }
  if (arm.role == Role::unknown) {
    arm.refusals.emplace_back("which side is it? Put host, stock, unlocked or cpu into its name, or say --arm ROLE=FILE");
  }
  if (arm.role == Role::host && arm.virtual_cpu) arm.refusals.emplace_back("called host, but its CPU is a virtual one");
  arm.receipt = beside.receipt && receipts_defect(*beside.receipt).empty();
  if (arm.receipt && arm.role != Role::unlocked) {
    arm.refusals.push_back(fmt::format("called {}, but the library's receipt beside it shows raised answers", role_name(arm.role)));
  }
  if (arm.banner) check_banner(arm);
}

LoadedArms load_arms(const std::vector<ArmInput>& inputs) {
  LoadedArms loaded;
  for (const auto& input : inputs) {
    std::error_code ignored;
    if (fs::is_directory(input.path, ignored) && !input.role) {
      load_folder(input.path, loaded);
      continue;
    }
    auto arm = load_arm(input.path, input.path.generic_string(), input.role);
    if (!arm) {
      throw Error(ErrorKind::usage, "no-benchmark", fmt::format("'{}' holds no benchmark", input.path.string()))
          .fix("llama-bench has to be run with -o json or -o jsonl: its other formats leave the samples out");
    }
    loaded.arms.push_back(std::move(*arm));
  }
  return loaded;
}

}  // namespace lumelift
