#include "cli/large.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "host/sys/hash.hpp"
#include "remote/source_file.hpp"

namespace lumelift {
namespace {

using sys::Deadline;
using sys::Milliseconds;

constexpr int reconnections = 5;
constexpr Milliseconds reach{20'000};
// Below this a second connection costs more than it brings; above it, one connection is bound by one processor of this
// Mac.
constexpr std::uint64_t several_from = 256u << 20;
constexpr unsigned connections_most = 4;  // so many are safe with the usual limits of an SSH server
constexpr unsigned processors_each = 3;   // one to encrypt here, two for its counterpart and the checksums in the guest

unsigned connections_for(std::uint64_t size) {
  return size < several_from ? 1
                             : std::clamp(std::thread::hardware_concurrency() / processors_each, 1u, connections_most);
}

bool passes(const Error& error) {
  return error.id() == "guest-lost" || error.id() == "guest-timeout" || error.id() == "guest-handshake";
}

Sent send_as_stream(Transfer& transfer, const LargeCopy& copy, const Sending& how) {
  const SourceFile source(copy.source);
  Sent sent;
  sent.state = {sys::sha256_file(copy.source), copy.mode, source.size()};
  sent.source_stamp = source.stamp();
  if (how.before_rename) {
    how.before_rename(sent.state);
  }
  transfer.put_file(copy.source, copy.path, sent.state, how.progress, copy.former);
  return sent;
}

/// `reach` gives a connection; told that the former one is lost, a new one.
template <class Reach>
Sent send_with_patience(const LargeCopy& copy, const Sending& how, Reach reach_guest) {
  std::optional<Error> lost;
  for (int again = 0;; ++again) {
    Transfer& transfer = reach_guest(lost);
    try {
      return transfer.put_large(copy.source, copy.path, copy.mode, copy.before, copy.former, how);
    } catch (const Error& error) {
      if (error.id() == "guest-no-sftp") {
        return send_as_stream(transfer, copy, how);
      }
      if (!passes(error) || again == reconnections) {
        throw;
      }
      lost = error;
    }
  }
}

}  // namespace

std::vector<PathSeen> look(Guest& guest, const std::vector<std::string>& paths, const std::vector<bool>& large,
                           Trust trust, const Deadline& deadline, Manifest* manifest) {
  std::vector<std::size_t> known;
  for (std::size_t i = 0; trust == Trust::manifest && i < paths.size(); ++i) {
    if (large[i]) {
      known.push_back(i);
    }
  }
  if (known.empty()) {
    return guest.look(paths, deadline);
  }
  std::vector<std::string> asked;
  for (const auto i : known) {
    asked.push_back(paths[i]);
  }
  const auto recalled = guest.recall(asked, deadline);
  if (manifest != nullptr) {
    *manifest = recalled.manifest;
  }
  std::vector<PathSeen> seen(paths.size());
  std::vector<bool> settled(paths.size(), false);
  for (std::size_t k = 0; k < known.size(); ++k) {
    seen[known[k]] = recalled.seen[k];
    settled[known[k]] = !recalled.seen[k].file || !recalled.seen[k].file->sha256.empty();
  }
  std::vector<std::string> rest;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    if (!settled[i]) {
      rest.push_back(paths[i]);
    }
  }
  const auto read = rest.empty() ? std::vector<PathSeen>{} : guest.look(rest, deadline);
  auto next = read.begin();
  for (std::size_t i = 0; i < paths.size(); ++i) {
    if (!settled[i]) {
      seen[i] = *next++;
    }
  }
  return seen;
}

std::vector<PathSeen> look_at(Guest& guest, GuestGoal& goal, Trust trust, const Deadline& deadline) {
  const auto paths = goal.paths();
  std::vector<bool> large(goal.folders.size(), false);
  for (const auto& file : goal.files) {
    large.push_back(!file.source.empty() && file.state.size >= large_file);
  }
  Manifest manifest;
  const auto seen = look(guest, paths, large, trust, deadline, &manifest);
  for (std::size_t i = 0; i < goal.files.size(); ++i) {
    auto& file = goal.files[i];
    const auto& now = seen[goal.folders.size() + i].file;
    if (!file.state.sha256.empty() || !now || now->size != file.state.size) {
      continue;
    }
    const auto* entry = trust == Trust::manifest ? manifest.find(file.path) : nullptr;
    const bool same_source =
        entry != nullptr && entry->sha256 == now->sha256 && entry->source == SourceFile::stamp_of(file.source);
    file.state.sha256 = same_source ? now->sha256 : sys::sha256_file(file.source);
  }
  return seen;
}

Sent send_large(GuestLink& link, Console& console, const LargeCopy& copy, Sending how, unsigned connections) {
  how.connections = connections != 0 ? connections : connections_for(SourceFile(copy.source).size());
  how.connect = [&link] { return link.another(); };
  return send_with_patience(copy, how, [&](const std::optional<Error>& lost) -> Transfer& {
    if (lost) {
      console.say(fmt::format("the connection was lost ({}); going on where it stopped", lost->message()));
      link.drop();
      link.connect(Deadline::in(reach), GuestLink::Wait::up);
    }
    return link.transfer();
  });
}

Sent send_large_beside(const GuestLink& link, const LargeCopy& copy, const Sending& how) {
  std::unique_ptr<Session> session;
  std::optional<Transfer> transfer;
  return send_with_patience(copy, how, [&](const std::optional<Error>&) -> Transfer& {
    session = link.another();
    return transfer.emplace(*session);
  });
}

Manifest::Entry entry_of(const FileState& state, const std::string& stamp, const std::string& source_stamp) {
  return {state.size, stamp, state.sha256, source_stamp.empty() ? "-" : source_stamp};
}

void note(Guest& guest, Console& console, const std::vector<std::pair<std::string, Manifest::Entry>>& entries,
          CacheFolder folder) {
  if (entries.empty()) {
    return;
  }
  try {
    auto recalled = guest.recall({"~/" + std::string(Manifest::folder)}, Deadline::in(reach));
    if (folder == CacheFolder::existing && recalled.seen[0].kind != PathKind::folder) {
      return;
    }
    auto& manifest = recalled.manifest;
    for (const auto& [path, entry] : entries) {
      manifest.remember(path, entry);
    }
    guest.keep(manifest);
  } catch (const Error& error) {
    if (passes(error)) {
      throw;
    }
    console.detail("what was copied is not noted in the guest: " + error.message());
  }
}

std::string shown_rate(std::uint64_t bytes, Milliseconds spent) {
  if (spent < Milliseconds{1'000}) {
    return {};
  }
  return shown_bytes(
             static_cast<std::uint64_t>(static_cast<double>(bytes) * 1000 / static_cast<double>(spent.count()))) +
         "/s";
}

}  // namespace lumelift
