#include "cli/copy_items.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>

#include "host/sys/error.hpp"

namespace lumelift {
namespace {

namespace fs = std::filesystem;

Error usage(const char* id, std::string message) {
  return Error(ErrorKind::usage, id, std::move(message));
}

Error escaping(const std::string& link, const std::string& target) {
  return usage("copy-link-escapes", fmt::format("'{}' is a link to '{}', which is outside of the copied folder", link, target))
      .fix("copy what it points to into the folder, or take the link away");
}

Error special(const std::string& path) {
  return usage("copy-special-file", fmt::format("'{}' is neither a file nor a folder nor a link", path));
}

CopyItem file_item(const fs::path& file, const std::string& to) {
  struct stat about {};
  if (::stat(file.c_str(), &about) != 0) {
    throw usage("file-unreadable", fmt::format("'{}' cannot be looked at", file.string()));
  }
  CopyItem item{PathKind::file, file.string(), to, {}, static_cast<std::uint64_t>(about.st_size), about.st_mode & 0777u};
  if (!S_ISREG(about.st_mode)) {
    throw special(file.string());
  }
  return item;
}

void walk(const fs::path& folder, const std::string& to, std::vector<CopyItem>& out) {
  std::vector<fs::directory_entry> entries(fs::directory_iterator(folder), {});
  std::sort(entries.begin(), entries.end());
  for (const auto& entry : entries) {
    const auto place = to + "/" + entry.path().filename().string();
    if (entry.is_symlink()) {
      const auto target = fs::read_symlink(entry.path()).string();
      if (!stays_inside(place, target)) {
        throw escaping(entry.path().string(), target);
      }
      out.push_back({PathKind::link, entry.path().string(), place, target});
    } else if (entry.is_directory()) {
      out.push_back({PathKind::folder, entry.path().string(), place, {}});
      walk(entry.path(), place, out);
    } else if (entry.is_regular_file()) {
      out.push_back(file_item(entry.path(), place));
    } else {
      throw special(entry.path().string());
    }
  }
}

void require_distinct(const std::vector<CopyItem>& items) {
  std::map<std::string, std::string> taken;
  for (const auto& item : items) {
    const auto [other, is_new] = taken.emplace(without_case(item.to), item.to);
    if (!is_new) {
      throw usage("copy-name-twice",
                  other->second == item.to
                      ? fmt::format("two things would be copied to '{}'", item.to)
                      : fmt::format("'{}' and '{}' differ in case only, which a Mac's disk takes for one name", other->second, item.to));
    }
  }
}

}  // namespace

bool stays_inside(const std::string& place, const std::string& target) {
  if (target.empty() || target.starts_with("/")) {
    return false;
  }
  // The first part of the place is the folder itself.
  const auto depth = std::count(place.begin(), place.end(), '/') - 1;
  auto level = depth;
  bool descended = false;
  for (const auto& part : fs::path(target)) {
    const bool up = part == "..";
    // Up from a name that may itself be a link leads nobody knows where.
    if (up && descended) {
      return false;
    }
    if (up) {
      --level;
    } else if (part != "." && !part.empty()) {
      ++level;
      descended = true;
    }
    if (level < 0) {
      return false;
    }
  }
  return true;
}

std::vector<CopyItem> copy_items(const std::vector<std::string>& sources) {
  std::vector<CopyItem> items;
  for (const auto& source : sources) {
    fs::path path = fs::absolute(source).lexically_normal();
    if (!path.has_filename()) {
      path = path.parent_path();
    }
    const auto name = path.filename().string();
    std::error_code fault;
    const auto status = fs::status(path, fault);
    if (!fs::exists(status) || name.empty()) {
      throw usage("file-unreadable", fmt::format("there is no '{}' on this Mac", source));
    }
    if (!fs::is_directory(status)) {
      items.push_back(file_item(path, name));
      continue;
    }
    try {
      items.push_back({PathKind::folder, path.string(), name, {}});
      walk(path, name, items);
    } catch (const fs::filesystem_error& problem) {
      throw usage("file-unreadable", fmt::format("'{}' cannot be walked: {}", path.string(), problem.code().message()));
    }
  }
  require_distinct(items);
  return items;
}

std::vector<CopyItem> copy_items(const std::string& folder, const std::string& name, const std::vector<Guest::Entry>& entries) {
  std::vector<CopyItem> items{{PathKind::folder, folder, name, {}}};
  for (const auto& entry : entries) {
    // The guest's words decide where files go on this Mac, so they are checked part by part.
    const auto inside = entry.path.substr(std::min(entry.path.size(), folder.size() + 1));
    const fs::path parts(inside);
    const bool plain =
        entry.path.starts_with(folder + "/") && !inside.empty() &&
        std::none_of(parts.begin(), parts.end(), [](const fs::path& part) { return part == ".." || part == "." || part.empty(); });
    if (!plain) {
      throw Error(ErrorKind::failed, "guest-path-unsafe", fmt::format("the guest names '{}' below '{}'", entry.path, folder));
    }
    if (entry.kind == PathKind::other) {
      throw special(entry.path);
    }
    const auto place = name + "/" + inside;
    if (entry.kind == PathKind::link && !stays_inside(place, entry.target)) {
      throw escaping(entry.path, entry.target);
    }
    items.push_back({entry.kind, entry.path, place, entry.target});
  }
  return items;
}

}  // namespace lumelift
