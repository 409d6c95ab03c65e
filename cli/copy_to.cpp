#include "cli/copy_to.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cli/guest_verdict.hpp"
#include "host/sys/hash.hpp"
#include "remote/source_file.hpp"

namespace lumelift {
namespace {

using sys::Deadline;
using sys::Milliseconds;

constexpr Milliseconds answer{30'000}, reading{600'000};
constexpr std::size_t paths_at_once = 500, entries_at_once = 50;
constexpr std::size_t words_at_once = 12'000;      // bytes of paths in one command
constexpr std::uint64_t bytes_at_once = 2u << 20;  // of small files in one command

/// The guest's own spelling of its home is known only when it has answered.
std::string tilde(const std::string& written) {
  const auto path = guest_path(written, "/~");
  return path == "/~" ? "~" : path.starts_with("/~/") ? path.substr(1) : path;
}

Error in_the_way(const std::string& path, PathKind kind) {
  return Error(ErrorKind::failed, "guest-path-unsafe",
               fmt::format("{} in the guest is {}; it was left alone", path,
                           kind == PathKind::link     ? "a symbolic link"
                           : kind == PathKind::folder ? "a folder"
                           : kind == PathKind::file   ? "a file"
                                                      : "something else"))
      .fix("move it away, or copy to another place");
}

}  // namespace

void CopyIn::find_places(const std::vector<std::string>& sources, const std::string& to) {
  const auto items = copy_items(sources);
  const auto wanted = tilde(to);
  // One look answers both ways to read the destination, and is the last one for a single file.
  std::vector<std::string> asked{wanted};
  const auto& first = items.front();
  asked.push_back(wanted + "/" + first.to);
  const auto recalled = link_.guest().recall(asked, Deadline::in(answer));
  home_ = recalled.home;
  manifest_ = recalled.manifest;
  // A link is followed only where the words say that a folder is meant.
  const bool is_folder = recalled.seen[0].kind == PathKind::folder || (recalled.seen[0].kind == PathKind::link && to.ends_with("/"));
  const bool into = is_folder || sources.size() > 1 || to.ends_with("/");
  if (into && recalled.seen[0].kind != PathKind::absent && !is_folder) {
    throw in_the_way(guest_path(to, home_), recalled.seen[0].kind);
  }
  base_ = guest_path(to, home_);
  if (into && !is_folder) {
    places_.push_back({{PathKind::folder, {}, {}, {}}, base_, {}, {}});
  }
  for (const auto& item : items) {
    const auto below = item.to.find('/');
    const auto path = into ? base_ + "/" + item.to : base_ + (below == std::string::npos ? "" : item.to.substr(below));
    places_.push_back({item, path, {}, {}});
  }
  if (items.size() == 1 && places_.size() == 1) {
    places_[0].seen = recalled.seen[into ? 1 : 0];
    places_[0].stamp = recalled.stamps[into ? 1 : 0];
  } else {
    look_at_places();
  }
}

void CopyIn::look_at_places() {
  for (std::size_t at = 0; at < places_.size(); at += paths_at_once) {
    const auto end = std::min(places_.size(), at + paths_at_once);
    std::vector<std::string> paths;
    for (auto i = at; i < end; ++i) {
      paths.push_back(places_[i].path);
    }
    const auto recalled = link_.guest().recall(paths, Deadline::in(answer));
    for (auto i = at; i < end; ++i) {
      places_[i].seen = recalled.seen[i - at];
      places_[i].stamp = recalled.stamps[i - at];
    }
  }
}

void CopyIn::keep_same(const Place& place, const std::string& sha256, CopyReport& report) {
  const bool same_mode = place.seen.mode == place.item.mode;
  if (!same_mode && !report.dry_run) {
    link_.guest().set_mode(place.path, place.item.mode);
  }
  report.files.push_back({place.item.from,
                          place.path,
                          {sha256, place.item.mode, place.item.size},
                          same_mode ? Copied::How::unchanged : Copied::How::mode_set});
}

/// Which files stand there already, by the manifest or by reading both sides; the others are left to be sent.
void CopyIn::settle_known(CopyReport& report) {
  std::vector<const Place*> unread;
  for (const auto& place : places_) {
    const auto kind = place.seen.kind;
    if (place.item.kind != PathKind::file) {
      const bool link_on_link = place.item.kind == PathKind::link && kind == PathKind::link;
      if (kind != PathKind::absent && kind != place.item.kind && !link_on_link) {
        throw in_the_way(place.path, kind);
      }
      continue;
    }
    if (kind != PathKind::absent && kind != PathKind::file) {
      throw in_the_way(place.path, kind);
    }
    if (!place.seen.file || place.seen.file->size != place.item.size) {
      left_.push_back(&place);
      continue;
    }
    const auto* entry = trust_ == Trust::manifest ? manifest_.find(place.path, place.item.size, place.stamp) : nullptr;
    if (entry == nullptr) {
      unread.push_back(&place);
    } else if (entry->source == SourceFile::stamp_of(place.item.from) || entry->sha256 == sys::sha256_file(place.item.from)) {
      keep_same(place, entry->sha256, report);
    } else {
      left_.push_back(&place);
    }
  }
  std::vector<std::string> paths;
  for (const auto* place : unread) {
    paths.push_back(place->path);
  }
  const auto seen = paths.empty() ? std::vector<PathSeen>{} : link_.guest().look(paths, Deadline::in(reading));
  for (std::size_t i = 0; i < unread.size(); ++i) {
    const auto stamp = SourceFile::stamp_of(unread[i]->item.from);
    const auto own = sys::sha256_file(unread[i]->item.from);
    if (!seen[i].file || seen[i].file->sha256 != own) {
      left_.push_back(unread[i]);
      continue;
    }
    const bool mode_kept = unread[i]->seen.mode == unread[i]->item.mode;
    keep_same(*unread[i], own, report);
    if (unread[i]->item.size >= large_file && mode_kept) {
      notes_.emplace_back(unread[i]->path, entry_of(*seen[i].file, unread[i]->stamp, stamp.value_or("-")));
    }
  }
}

void CopyIn::make_folders(CopyReport& report) {
  std::vector<Guest::NewFolder> folders;
  for (const auto& place : places_) {
    if (place.item.kind == PathKind::folder && place.seen.kind == PathKind::absent) {
      folders.push_back({place.path, 0755});
    }
  }
  report.folders = folders.size();
  for (std::size_t at = 0; at < folders.size() && !report.dry_run; at += entries_at_once) {
    link_.guest().make_folders({folders.begin() + at, folders.begin() + std::min(folders.size(), at + entries_at_once)});
  }
}

void CopyIn::make_links(CopyReport& report) {
  std::vector<Guest::NewLink> links;
  for (const auto& place : places_) {
    if (place.item.kind == PathKind::link) {
      links.push_back({place.path, place.item.target});
    }
  }
  for (std::size_t at = 0; at < links.size(); at += entries_at_once) {
    report.links +=
        link_.guest().make_links({links.begin() + at, links.begin() + std::min(links.size(), at + entries_at_once)}, report.dry_run);
  }
}

void CopyIn::send_small(CopyReport& report) {
  std::vector<NewFile> batch;
  std::vector<const Place*> batched;
  std::uint64_t bytes = 0;
  std::size_t words = 0;
  const auto flush = [&] {
    link_.transfer().put_new(batch);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      report.files.push_back({batched[i]->item.from, batched[i]->path, batch[i].want});
    }
    batch.clear();
    batched.clear();
    bytes = words = 0;
  };
  for (const auto* place : left_) {
    if (place->item.size >= large_file) {
      continue;
    }
    const FileState want{sys::sha256_file(place->item.from), place->item.mode, place->item.size};
    if (place->seen.kind != PathKind::absent || want.size > bytes_at_once) {
      link_.transfer().put_file(place->item.from, place->path, want, {}, Former::drop);
      report.files.push_back({place->item.from, place->path, want});
      continue;
    }
    if (bytes + want.size > bytes_at_once || words + 2 * place->path.size() > words_at_once) {
      flush();
    }
    batch.push_back({place->path, sys::read_file(place->item.from, bytes_at_once), want});
    batched.push_back(place);
    bytes += want.size;
    words += 2 * place->path.size() + 128;
  }
  flush();
}

void CopyIn::send_all_large(CopyReport& report) {
  std::vector<const Place*> larges;
  for (const auto* place : left_) {
    if (place->item.size >= large_file) {
      larges.push_back(place);
    }
  }
  std::vector<LargeJob> jobs;
  for (const auto* place : larges) {
    jobs.push_back({{place->item.from, place->path, place->item.mode, {}, Former::drop}});
  }
  const auto sent = send_larges(link_, console_, jobs, connections_);
  for (std::size_t i = 0; i < larges.size(); ++i) {
    report.files.push_back({larges[i]->item.from, larges[i]->path, sent[i].state,
                            sent[i].found > 0 ? Copied::How::continued : Copied::How::sent, sent[i].found});
    if (!sent[i].stamp.empty()) {
      notes_.emplace_back(larges[i]->path, entry_of(sent[i].state, sent[i].stamp, sent[i].source_stamp));
    }
  }
}

void CopyIn::go(const std::vector<std::string>& sources, const std::string& to, CopyReport& report) {
  find_places(sources, to);
  settle_known(report);
  make_folders(report);
  make_links(report);
  if (report.dry_run) {
    for (const auto* place : left_) {
      report.files.push_back({place->item.from, place->path, {{}, place->item.mode, place->item.size}});
    }
    return;
  }
  send_small(report);
  send_all_large(report);
  note(link_.guest(), console_, notes_, CacheFolder::made);
}

}  // namespace lumelift
