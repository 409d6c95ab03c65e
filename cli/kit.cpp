#include "cli/kit.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "cli/verdict.hpp"
#include "host/sys/error.hpp"
#include "host/sys/file.hpp"
#include "host/sys/hash.hpp"

namespace lumelift {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kit_cap = 64u << 20;
constexpr const char* library_name = "liblumelift-metal.dylib";
constexpr const char* probe_name = "lumelift-probe";

FileState state_of(const fs::path& file, LargeFiles large) {
  struct ::stat info{};
  if (::stat(file.c_str(), &info) != 0) {
    throw Error(ErrorKind::usage, "file-unreadable", fmt::format("'{}' cannot be looked at", file.string()));
  }
  const auto size = static_cast<std::uint64_t>(info.st_size);
  // The host's own mode is not trusted further than whether it is a program.
  return {large == LargeFiles::unhashed && size >= large_file ? "" : sys::sha256_file(file), (info.st_mode & 0111) != 0 ? 0755u : 0644u, size};
}

Error invalid(std::string message) { return Error(ErrorKind::usage, "workload-invalid", std::move(message)); }

/// A file of a copied folder, followed through links that stay inside `root`.
fs::path inside(const fs::path& file, const fs::path& root) {
  std::error_code fault;
  const fs::path real = fs::canonical(file, fault);
  if (fault) { throw invalid(fmt::format("'{}' is a link to nothing", file.string())); }
  const std::string prefix = fs::canonical(root).string() + "/";
  if (!real.string().starts_with(prefix)) {
    throw invalid(fmt::format("'{}' is a link that leads out of '{}', to '{}'", file.string(), root.string(), real.string()))
        .fix("copy what it points to into the folder, or name it under 'files'");
  }
  return real;
}

void gather_folder(const FileCopy& copy, LargeFiles large, std::vector<Source>& out) try {
  for (const auto& entry : fs::recursive_directory_iterator(copy.from)) {
    if (!entry.is_symlink() && entry.is_directory()) { continue; }
    const fs::path real = entry.is_symlink() ? inside(entry.path(), copy.from) : entry.path();
    if (fs::is_directory(real)) { throw invalid(fmt::format("'{}' is a link to a folder; copy the folder itself", entry.path().string())); }
    if (!fs::is_regular_file(real)) { throw invalid(fmt::format("'{}' is not a regular file", entry.path().string())); }
    const std::string relative = entry.path().lexically_relative(copy.from).string();
    out.push_back({real, copy.to == "." ? relative : copy.to + "/" + relative, state_of(real, large)});
  }
} catch (const fs::filesystem_error& e) {
  throw Error(ErrorKind::usage, "file-unreadable", fmt::format("'{}' cannot be walked: {}", copy.from.string(), e.code().message()))
      .note(e.path1().string());
}

Source kit_file(const fs::path& folder, const char* name, std::vector<std::string> (*defects_of)(std::string_view)) {
  const fs::path file = folder / name;
  std::error_code fault;
  if (!fs::exists(file, fault)) {
    throw Error(ErrorKind::usage, "kit-missing", fmt::format("'{}' is not there", file.string()))
        .fix("install lumelift as a whole, or name the folder in LUMELIFT_KIT_DIR");
  }
  const auto defects = defects_of(sys::read_file(file, kit_cap));
  if (!defects.empty()) {
    Error error(ErrorKind::usage, "kit-damaged", fmt::format("'{}' is not fit to be sent into a guest", file.string()));
    for (const auto& defect : defects) { error.note(defect); }
    throw error.fix("install lumelift again");
  }
  FileState state = state_of(file, LargeFiles::hashed);
  state.mode = 0755;
  return {file, name, state};
}

/// A model that is none (a web page, a pointer of a large-file store) is better found before gigabytes are copied.
void check_model(const Source& source) {
  if (source.file.extension() != ".gguf") { return; }
  std::array<char, 4> magic{};
  std::ifstream(source.file, std::ios::binary).read(magic.data(), magic.size());
  if (std::string_view(magic.data(), magic.size()) == "GGUF") { return; }
  throw invalid(fmt::format("'{}' is not a GGUF model: it begins with other bytes ({} in all)", source.file.string(), source.state.size))
      .fix("download it again; a web page or the pointer of a large-file store may have been saved instead");
}

/// Where on this Mac the workload's program comes from; nothing when it is in the guest already.
const Source* program_of(const Workload& workload, const std::vector<Source>& sources) {
  const auto found = std::find_if(sources.begin(), sources.end(), [&](const Source& s) { return s.to == workload.executable; });
  return found == sources.end() ? nullptr : &*found;
}

}  // namespace

std::vector<Source> gather(const Workload& workload, LargeFiles large) {
  std::vector<Source> out;
  for (const auto& copy : workload.files) {
    if (fs::is_directory(copy.from)) {
      gather_folder(copy, large, out);
    } else {
      out.push_back({copy.from, copy.to, state_of(copy.from, large)});
    }
  }
  std::sort(out.begin(), out.end(), [](const Source& a, const Source& b) { return a.to < b.to; });
  const auto twin = std::adjacent_find(out.begin(), out.end(), [](const Source& a, const Source& b) { return a.to == b.to; });
  if (twin != out.end()) { throw invalid(fmt::format("two files go to '{}'", twin->to)); }
  return out;
}

std::vector<Source> load_kit(const fs::path& libexec) {
  return {kit_file(libexec, library_name, &library_defects), kit_file(libexec, probe_name, &probe_defects)};
}

std::vector<std::string> preflight(const Workload& workload, const std::vector<Source>& sources, const std::vector<Source>& kit) {
  InjectionTerms terms;
  terms.library_slices = slices_of(sys::read_file(kit.front().file, kit_cap));
  terms.inherit = workload.inherit;
  std::vector<std::string> remarks;
  for (const auto& source : sources) { check_model(source); }
  const bool own_arm64e = std::find(terms.library_slices.begin(), terms.library_slices.end(), Cpu::arm64e) != terms.library_slices.end();
  if (workload.inherit && !own_arm64e) {
    remarks.push_back("inherit: true, and the library has no arm64e slice: with SIP off in the guest, dyld kills every system tool that this program starts");
  }
  const Source* program = program_of(workload, sources);
  if (program == nullptr) { return remarks; }
  const InjectionVerdict verdict = injection_verdict(examine({program->file.string()}, host_files()), terms);
  if (!verdict.acceptable()) {
    throw Error(ErrorKind::usage, "workload-not-injectable",
                fmt::format("'{}': {}: {}", program->file.string(), name_of(verdict.outcome), verdict.reason))
        .fix(verdict.remedy);
  }
  remarks.insert(remarks.end(), verdict.notes.begin(), verdict.notes.end());
  return remarks;
}

}  // namespace lumelift
