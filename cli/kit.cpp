#include "cli/kit.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>

#include "host/sys/error.hpp"
#include "host/sys/file.hpp"
#include "host/sys/hash.hpp"

namespace lumelift {
namespace {

namespace fs = std::filesystem;

FileState state_of(const fs::path& file) {
  struct ::stat info{};
  if (::stat(file.c_str(), &info) != 0) {
    throw Error(ErrorKind::usage, "file-unreadable", fmt::format("'{}' cannot be looked at", file.string()));
  }
  // The host's own mode is not trusted further than whether it is a program.
  return {sys::sha256_file(file), (info.st_mode & 0111) != 0 ? 0755u : 0644u, static_cast<std::uint64_t>(info.st_size)};
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

void gather_folder(const FileCopy& copy, std::vector<Source>& out) {
  for (const auto& entry : fs::recursive_directory_iterator(copy.from)) {
    if (entry.is_directory() && !entry.is_symlink()) { continue; }
    const fs::path real = entry.is_symlink() ? inside(entry.path(), copy.from) : entry.path();
    if (fs::is_directory(real)) { throw invalid(fmt::format("'{}' is a link to a folder; copy the folder itself", entry.path().string())); }
    if (!fs::is_regular_file(real)) { throw invalid(fmt::format("'{}' is not a regular file", entry.path().string())); }
    const std::string relative = entry.path().lexically_relative(copy.from).string();
    out.push_back({real, copy.to == "." ? relative : copy.to + "/" + relative, state_of(real)});
  }
}

}  // namespace

std::vector<Source> gather(const Workload& workload) {
  std::vector<Source> out;
  for (const auto& copy : workload.files) {
    if (fs::is_directory(copy.from)) {
      gather_folder(copy, out);
    } else {
      out.push_back({copy.from, copy.to, state_of(copy.from)});
    }
  }
  std::sort(out.begin(), out.end(), [](const Source& a, const Source& b) { return a.to < b.to; });
  const auto twin = std::adjacent_find(out.begin(), out.end(), [](const Source& a, const Source& b) { return a.to == b.to; });
  if (twin != out.end()) { throw invalid(fmt::format("two files go to '{}'", twin->to)); }
  return out;
}

}  // namespace lumelift
