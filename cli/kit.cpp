#include "cli/kit.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <memory>

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
  struct ::stat info {};
  if (::stat(file.c_str(), &info) != 0) {
    throw Error(ErrorKind::usage, "file-unreadable", fmt::format("'{}' cannot be looked at", file.string()));
  }
  const auto size = static_cast<std::uint64_t>(info.st_size);
  // The host's own mode is not trusted further than whether it is a program.
  return {large == LargeFiles::unhashed && size >= large_file ? "" : sys::sha256_file(file), (info.st_mode & 0111) != 0 ? 0755u : 0644u,
          size};
}

Error invalid(std::string message) {
  return Error(ErrorKind::usage, "workload-invalid", std::move(message));
}

/// A file of a copied folder, followed through links that stay inside `root`.
fs::path inside(const fs::path& file, const fs::path& root) {
  std::error_code fault;
  const fs::path real = fs::canonical(file, fault);
  if (fault) {
    throw invalid(fmt::format("'{}' is a link to nothing", file.string()));
  }
  const std::string prefix = fs::canonical(root).string() + "/";
  if (!real.string().starts_with(prefix)) {
    throw invalid(fmt::format("'{}' is a link that leads out of '{}', to '{}'", file.string(), root.string(), real.string()))
        .fix("copy what it points to into the folder, or name it under 'files'");
  }
  return real;
}

void gather_folder(const FileCopy& copy, LargeFiles large, std::vector<Source>& out) try {
  for (const auto& entry : fs::recursive_directory_iterator(copy.from)) {
    if (!entry.is_symlink() && entry.is_directory()) {
      continue;
    }
    const fs::path real = entry.is_symlink() ? inside(entry.path(), copy.from) : entry.path();
    if (fs::is_directory(real)) {
      throw invalid(fmt::format("'{}' is a link to a folder; copy the folder itself", entry.path().string()));
    }
    if (!fs::is_regular_file(real)) {
      throw invalid(fmt::format("'{}' is not a regular file", entry.path().string()));
    }
    const std::string relative = entry.path().lexically_relative(copy.from).string();
    out.push_back({real, copy.to == "." ? relative : copy.to + "/" + relative, state_of(real, large), copy.delivery});
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
    for (const auto& defect : defects) {
      error.note(defect);
    }
    throw error.fix("install lumelift again");
  }
  FileState state = state_of(file, LargeFiles::hashed);
  state.mode = 0755;
  return {file, name, state};
}

/// A model that is none (a web page, a pointer of a large-file store) is better found before gigabytes are copied.
void check_model(const Source& source) {
  if (source.file.extension() != ".gguf") {
    return;
  }
  std::array<char, 4> magic{};
  std::ifstream(source.file, std::ios::binary).read(magic.data(), magic.size());
  if (std::string_view(magic.data(), magic.size()) == "GGUF") {
    return;
  }
  throw invalid(fmt::format("'{}' is not a GGUF model: it begins with other bytes ({} in all)", source.file.string(), source.state.size))
      .fix("download it again; a web page or the pointer of a large-file store may have been saved instead");
}

std::string placed(const std::string& path, const std::string& home, const std::string& own) {
  if (path.starts_with("~/")) {
    return home + path.substr(1);
  }
  return path.starts_with("/") ? path : own + "/" + path;
}

// Stands for the guest's home until it is known; nothing of this Mac lies there.
constexpr const char* unknown_home = "/Users/~";

}  // namespace

std::vector<Source> gather(const Workload& workload, LargeFiles large) {
  std::vector<Source> out;
  for (const auto& copy : workload.files) {
    if (fs::is_directory(copy.from)) {
      gather_folder(copy, large, out);
    } else {
      out.push_back({copy.from, copy.to, state_of(copy.from, large), copy.delivery});
    }
  }
  std::sort(out.begin(), out.end(), [](const Source& a, const Source& b) { return a.to < b.to; });
  const auto twin = std::adjacent_find(out.begin(), out.end(), [](const Source& a, const Source& b) { return a.to == b.to; });
  if (twin != out.end()) {
    throw invalid(fmt::format("two files go to '{}'", twin->to));
  }
  return out;
}

std::vector<Source> load_kit(const fs::path& libexec) {
  return {kit_file(libexec, library_name, &library_defects), kit_file(libexec, probe_name, &probe_defects)};
}

FileView copied_layout(const Workload& workload, const std::vector<Source>& sources, const std::string& home, const FileView& beneath) {
  const std::string own = guest_root(home) + "/" + workload.name;
  auto copied = std::make_shared<std::map<std::string, const Source*>>();
  auto kept = std::make_shared<std::vector<Source>>(sources);
  std::erase_if(*kept, [](const Source& source) { return source.delivery == Delivery::share; });
  for (const auto& source : *kept) {
    copied->emplace(placed(source.to, home, own), &source);
  }
  FileView view;
  view.look = [copied, kept, own, beneath](const std::string& path) -> PathLook {
    if (const auto found = copied->find(path); found != copied->end()) {
      return {EntryKind::file, 0755, {}};
    }
    const auto under = copied->lower_bound(path + "/");
    if (under != copied->end() && under->first.starts_with(path + "/")) {
      return {EntryKind::folder, 0755, {}};
    }
    return path.starts_with(own + "/") ? PathLook{} : beneath.look(path);
  };
  view.read = [copied, kept, beneath](const std::string& path) {
    const auto found = copied->find(path);
    return found == copied->end() ? beneath.read(path) : host_files().read(found->second->file.string());
  };
  return view;
}

std::vector<std::string> judge_agents(const Workload& workload, const FileView& files, const std::string& home, InjectionTerms terms,
                                      Absent absent) {
  std::vector<std::string> remarks;
  const auto remark = [&](const std::string& text) {
    if (std::find(remarks.begin(), remarks.end(), text) == remarks.end()) {
      remarks.push_back(text);
    }
  };
  const std::string own = guest_root(home) + "/" + workload.name;
  for (const auto& agent : workload.agents) {
    const std::string path = placed(agent.executable, home, own);
    if (agent.executable.empty()) {
      continue;
    }
    if (files.look(path).kind == EntryKind::missing) {
      if (path.starts_with(own + "/")) {
        throw invalid(fmt::format("no file of the workload goes to '{}', which is to be run", agent.executable))
            .fix("name it under 'files', or its place in the guest");
      }
      if (absent == Absent::skipped) {
        continue;
      }
      throw Error(ErrorKind::usage, "workload-not-injectable", fmt::format("'{}' is not there in the guest", path))
          .fix("copy it along: executable: { host: FILE }");
    }
    terms.inherit = agent.inherit;
    const InjectionVerdict verdict = injection_verdict(examine({path}, files), terms);
    const std::string text = fmt::format("'{}': {}: {}", agent.executable, name_of(verdict.outcome), verdict.reason);
    // What is too large to be fetched from the guest is left to its receipt.
    if (!verdict.acceptable() && !(absent == Absent::refused && verdict.outcome == InjectionOutcome::unreadable)) {
      throw Error(ErrorKind::usage, "workload-not-injectable", text).fix(verdict.remedy);
    }
    if (!verdict.acceptable()) {
      remark(text);
    }
    for (const auto& note : verdict.notes) {
      remark(note);
    }
  }
  return remarks;
}

std::vector<std::string> preflight(const Workload& workload, const std::vector<Source>& sources, const std::vector<Source>& kit) {
  for (const auto& source : sources) {
    check_model(source);
  }
  InjectionTerms terms;
  terms.library_slices = slices_of(sys::read_file(kit.front().file, kit_cap));
  // Only what is copied and what this Mac has: a program of the guest is judged when it can be seen.
  FileView files = copied_layout(workload, sources, unknown_home, host_files());
  Workload copied = workload;
  std::erase_if(copied.agents, [&](const WorkloadAgent& agent) {
    return std::none_of(sources.begin(), sources.end(), [&](const Source& source) { return source.to == agent.executable; }) &&
           (agent.executable.starts_with("/") || agent.executable.starts_with("~/"));
  });
  return judge_agents(copied, files, unknown_home, terms, Absent::skipped);
}

}  // namespace lumelift
