#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>

#include "cli/copy_to.hpp"
#include "cli/guest_verdict.hpp"
#include "host/sys/error.hpp"

namespace lumelift {
namespace {

namespace fs = std::filesystem;
using sys::Deadline;
using sys::Milliseconds;

constexpr Milliseconds answer{30'000}, walking{300'000};

Error in_the_way(const fs::path& path) {
  return Error(ErrorKind::usage, "host-path-unsafe", fmt::format("'{}' is in the way and was left alone", path.string()))
      .fix("move it away, or copy to another place");
}

void make_folder(const fs::path& path, CopyReport& report) {
  const auto status = fs::symlink_status(path);
  if (fs::is_directory(status)) {
    return;
  }
  if (fs::exists(status)) {
    throw in_the_way(path);
  }
  std::error_code fault;
  if (!fs::create_directory(path, fault)) {
    throw Error(ErrorKind::failed, "file-unwritable", fmt::format("cannot make {}: {}", path.string(), fault.message()));
  }
  ++report.folders;
}

void make_link(const fs::path& path, const std::string& target, CopyReport& report) {
  const auto status = fs::symlink_status(path);
  if (fs::exists(status) && !fs::is_symlink(status)) {
    throw in_the_way(path);
  }
  std::error_code fault;
  fs::remove(path, fault);
  fs::create_symlink(target, path, fault);
  if (fault) {
    throw Error(ErrorKind::failed, "file-unwritable", fmt::format("cannot make {}: {}", path.string(), fault.message()));
  }
  ++report.links;
}

}  // namespace

void copy_out(GuestLink& link, Console& console, const std::vector<std::string>& sources, const std::string& to, CopyReport& report) {
  const bool into = sources.size() > 1 || to.ends_with("/") || fs::is_directory(to);
  if (into && !fs::is_directory(to)) {
    make_folder(fs::absolute(to).lexically_normal(), report);
  }
  const auto home = link.guest().recall({}, Deadline::in(answer)).home;
  std::vector<std::string> paths;
  for (const auto& source : sources) {
    paths.push_back(guest_path(source, home));
  }
  const auto recalled = link.guest().recall(paths, Deadline::in(answer));
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const auto name = fs::path(paths[i]).filename().string();
    const fs::path place = into ? fs::path(to) / name : fs::path(to);
    std::vector<CopyItem> items{{PathKind::file, paths[i], name, {}}};
    if (recalled.seen[i].kind == PathKind::folder) {
      items = copy_items(paths[i], name, link.guest().walk(paths[i], Deadline::in(walking)));
    }
    for (const auto& item : items) {
      const auto here = place.string() + item.to.substr(name.size());
      if (item.kind == PathKind::folder) {
        make_folder(here, report);
      } else if (item.kind == PathKind::link) {
        make_link(here, item.target, report);
      } else {
        if (fs::is_directory(here)) {
          throw in_the_way(here);
        }
        const auto shown = fs::path(here).filename().string();
        const auto state = link.transfer().get_file(item.from, here,
                                                    [&](std::uint64_t done, std::uint64_t total) { console.progress(shown, done, total); });
        console.end_progress();
        report.files.push_back({item.from, here, state});
      }
    }
  }
}

}  // namespace lumelift
