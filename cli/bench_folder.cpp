#include "cli/bench_folder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/arms.hpp"
#include "host/sys/error.hpp"
#include "host/sys/file.hpp"
#include "host/sys/time.hpp"

namespace lumelift {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t file_cap = 64u << 20;
constexpr const char* parameters_name = "parameters.json";
constexpr const char* finished_name = "result.json";

std::optional<std::string> content(const fs::path& file) {
  std::error_code fault;
  return fs::is_regular_file(file, fault) ? std::optional(sys::read_file(file, file_cap)) : std::nullopt;
}

std::vector<fs::path> former(const fs::path& parent, const std::string& start) {
  std::vector<std::pair<fs::file_time_type, fs::path>> found;
  std::error_code fault;
  for (const auto& entry : fs::directory_iterator(parent, fault)) {
    const auto name = entry.path().filename().string();
    if (name.starts_with(start) && entry.is_directory(fault)) {
      found.emplace_back(entry.last_write_time(fault), entry.path());
    }
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<fs::path> paths;
  for (auto& [time, path] : found) {
    paths.push_back(std::move(path));
  }
  return paths;
}

void make(const fs::path& path) {
  std::error_code fault;
  fs::create_directories(path, fault);
  if (fault) {
    throw Error(ErrorKind::usage, "file-unwritable", fmt::format("'{}' cannot be made: {}", path.string(), fault.message()));
  }
}

}  // namespace

void BenchFolder::require_free(const fs::path& given) {
  std::error_code fault;
  if (fs::exists(given, fault) && !content(given / parameters_name) && !(fs::is_directory(given, fault) && fs::is_empty(given, fault))) {
    throw Error(ErrorKind::usage, "bench-folder-taken", fmt::format("'{}' holds something else", given.string()))
        .fix("name another folder with --output");
  }
}

BenchFolder BenchFolder::open(const std::optional<fs::path>& given, const fs::path& parent, const std::string& vm,
                              const std::string& parameters) {
  if (given) {
    require_free(*given);
    const auto there = content(*given / parameters_name);
    if (there && *there != parameters) {
      throw Error(ErrorKind::usage, "bench-folder-taken",
                  fmt::format("'{}' holds a benchmark with other parameters, files or builds", given->string()))
          .fix("name another folder with --output");
    }
    make(*given);
    BenchFolder folder(*given, there.has_value());
    if (!there) {
      folder.write(parameters_name, parameters);
    }
    return folder;
  }
  for (const auto& path : former(parent, "bench-" + vm + "-")) {
    if (content(path / parameters_name) == parameters && !content(path / finished_name)) {
      return {path, true};
    }
  }
  const std::string plain = fmt::format("bench-{}-{}", vm, sys::iso_utc(sys::wall_seconds()).substr(0, 10));
  fs::path path = parent / plain;
  for (int n = 2; fs::exists(path); ++n) {
    path = parent / fmt::format("{}-{}", plain, n);
  }
  make(path);
  BenchFolder folder(path, false);
  folder.write(parameters_name, parameters);
  return folder;
}

void BenchFolder::write(const std::string& name, std::string_view text) const {
  sys::write_file(path_ / name, text, 0644);
}

std::optional<std::string> BenchFolder::read(const std::string& name) const {
  return content(path_ / name);
}

std::optional<Arm> BenchFolder::arm(const BenchRun& run) const {
  const auto name = run.name();
  const auto status = read(name + ".status");
  if (!status) {
    return std::nullopt;
  }
  const auto text = read(name + ".json").value_or("");
  auto arm = parse_arm(text, name + ".json");
  if (!arm) {
    arm.emplace();
    arm->source = name + ".json";
    arm->refusals.emplace_back("it printed no benchmark");
  }
  complete_arm(*arm, run.role, name, {read(name + ".stderr"), status, read(name + ".refused"), read(name + ".receipt.json")});
  for (const auto& row : arm->rows) {
    if (row.rates.size() != static_cast<std::size_t>(run.repetitions)) {
      arm->refusals.push_back(fmt::format("{} has {} samples, not {}", row.test, row.rates.size(), run.repetitions));
    }
  }
  return arm;
}

void BenchFolder::set_aside(const BenchRun& run) const {
  int attempt = 1;
  std::error_code fault;
  const auto kept = [&](const char* suffix) { return path_ / fmt::format("{}{}.rejected-{}", run.name(), suffix, attempt); };
  while (fs::exists(kept(".status"), fault)) {
    ++attempt;
  }
  // The status goes first: without it the run counts as not made, whatever else is there.
  for (const char* suffix : {".status", ".json", ".stderr", ".refused", ".receipt.json", ".conditions.json"}) {
    fs::rename(path_ / (run.name() + suffix), kept(suffix), fault);
  }
}

std::optional<Limits> recorded_limits(const fs::path& folder) {
  for (const auto& path : {folder / finished_name, folder / "raw" / finished_name}) {
    const auto result = nlohmann::json::parse(content(path).value_or(""), nullptr, false);
    const nlohmann::json::json_pointer place("/report/limits");
    if (result.is_discarded() || !result.contains(place)) {
      continue;
    }
    const auto& told = result[place];
    Limits limits;
    for (const auto& [key, value] : {std::pair{"flag", &limits.flag}, {"reject", &limits.reject}, {"material", &limits.material}}) {
      if (!told.is_object() || !told.contains(key) || !told[key].is_number()) {
        return std::nullopt;
      }
      *value = told[key].get<double>();
    }
    return limits;
  }
  return std::nullopt;
}

}  // namespace lumelift
