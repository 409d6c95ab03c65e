#include "cli/large.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include "host/conditions.hpp"
#include "host/sys/hash.hpp"
#include "remote/source_file.hpp"

namespace lumelift {
namespace {

using sys::Deadline;
using sys::Milliseconds;

constexpr int reconnections = 5;
constexpr Milliseconds reach{20'000};
// Servers that ask for signs of life do so every 15 s or less often.
constexpr Milliseconds idle_most{10'000};
constexpr std::size_t files_beside = 2;
constexpr std::uint64_t awake_from = 64u << 20;  // what is done in a moment no Mac falls asleep over
// Below this a second connection costs more than it brings; above it, one connection is bound by one processor of this
// Mac.
constexpr std::uint64_t several_from = 256u << 20;
constexpr unsigned connections_most = 4;  // so many are safe with the usual limits of an SSH server
constexpr unsigned processors_each = 3;   // one to encrypt here, two for its counterpart and the checksums in the guest

unsigned connections_for(std::uint64_t size) {
  return size < several_from ? 1 : std::clamp(std::thread::hardware_concurrency() / processors_each, 1u, connections_most);
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

/// A stamp of a host file without its time of change, which our own link to it moves.
std::string but_for_links(std::string stamp) {
  const auto second = stamp.find(':', stamp.find(':') + 1);
  const auto third = stamp.find(':', second + 1);
  return third == std::string::npos ? stamp : stamp.erase(second, third - second);
}

void unstage(const LargeCopy& copy, Sent& sent) {
  if (copy.staged.empty()) {
    return;
  }
  std::error_code fault;
  std::filesystem::remove(copy.staged, fault);
  const auto now = SourceFile::stamp_of(copy.source);
  if (now && but_for_links(*now) == but_for_links(sent.source_stamp)) {
    sent.source_stamp = *now;
  }
}

/// `reach` gives a connection; told that the former one is lost, a new one.
template <class Reach>
Sent send_with_patience(const LargeCopy& copy, Sending how, Reach reach_guest) {
  std::optional<Error> lost;
  for (int again = 0;; ++again) {
    Transfer& transfer = reach_guest(lost);
    try {
      return transfer.put_large(copy.source, copy.path, copy.mode, copy.before, copy.former, how);
    } catch (const Error& error) {
      if (error.id() == "share-unreadable" && !copy.shared_only) {
        how.shared.clear();
        lost.reset();
        continue;
      }
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

struct Workers {
  std::vector<std::thread> threads;
  ~Workers() { join(); }
  void join() {
    for (auto& thread : threads) {
      thread.join();
    }
    threads.clear();
  }
};

std::uint64_t total_of(const std::vector<LargeJob>& jobs) {
  std::uint64_t total = 0;
  for (const auto& job : jobs) {
    total += SourceFile(job.copy.source).size();
  }
  return total;
}

/// Several files on their way beside each other. What no worker could begin, because the guest takes no further connection,
/// is left undone.
class Pairs {
 public:
  Pairs(const GuestLink& link, const std::vector<LargeJob>& jobs, std::vector<std::optional<Sent>>& done)
      : link_(link), jobs_(jobs), done_(done), bytes_(jobs.size()) {}

  void send(Console& console) {
    const auto total = total_of(jobs_);
    Workers workers;
    working_ = std::min(files_beside, jobs_.size());
    for (std::size_t i = working_; i > 0; --i) {
      workers.threads.emplace_back([this] {
        work();
        --working_;
      });
    }
    while (working_ > 0) {
      std::uint64_t now = 0;
      for (const auto& one : bytes_) {
        now += one;
      }
      console.progress(fmt::format("{} files", jobs_.size()), now, total);
      sys::pause(Milliseconds{50}, Deadline::in(reach));
    }
    workers.join();
    console.end_progress();
    if (fault_) {
      std::rethrow_exception(fault_);
    }
  }

 private:
  struct Stopped {};

  void work() {
    std::unique_ptr<Session> session;
    try {
      session = link_.another();
    } catch (...) {
      return;
    }
    std::optional<Transfer> transfer(std::in_place, *session);
    while (const auto mine = next()) {
      try {
        const sys::Stopwatch watch;
        auto sent = send_with_patience(jobs_[*mine].copy, sending(*mine), [&](const std::optional<Error>& lost) -> Transfer& {
          if (lost) {
            session = link_.another();
            transfer.emplace(*session);
          }
          return *transfer;
        });
        sent.spent = watch.elapsed();
        done_[*mine] = std::move(sent);
      } catch (const Stopped&) {
        return;
      } catch (...) {
        const std::lock_guard hold(mutex_);
        if (!fault_) {
          fault_ = std::current_exception();
        }
        stopped_ = true;
      }
    }
  }

  std::optional<std::size_t> next() {
    const std::lock_guard hold(mutex_);
    return stopped_ || next_ == jobs_.size() ? std::nullopt : std::optional(next_++);
  }

  Sending sending(std::size_t mine) {
    Sending how;
    how.shared = jobs_[mine].copy.shared;
    how.progress = [this, mine](std::uint64_t bytes, std::uint64_t) {
      if (stopped_) {
        throw Stopped{};
      }
      bytes_[mine] = bytes;
    };
    how.before_rename = [this, mine](const FileState& state) {
      const std::lock_guard hold(mutex_);
      if (stopped_) {
        throw Stopped{};
      }
      if (jobs_[mine].before_rename) {
        jobs_[mine].before_rename(state);
      }
    };
    return how;
  }

  const GuestLink& link_;
  const std::vector<LargeJob>& jobs_;
  std::vector<std::optional<Sent>>& done_;
  std::vector<std::atomic<std::uint64_t>> bytes_;
  std::atomic<std::size_t> working_ = 0;
  std::atomic<bool> stopped_ = false;
  std::mutex mutex_;
  std::size_t next_ = 0;
  std::exception_ptr fault_;
};

}  // namespace

std::vector<PathSeen> look(Guest& guest, const std::vector<std::string>& paths, const std::vector<bool>& large, Trust trust,
                           const Deadline& deadline, Manifest* manifest) {
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
    const bool same_source = entry != nullptr && entry->sha256 == now->sha256 && entry->source == SourceFile::stamp_of(file.source);
    file.state.sha256 = same_source ? now->sha256 : sys::sha256_file(file.source);
  }
  return seen;
}

Sent send_large(GuestLink& link, Console& console, const LargeCopy& copy, Sending how, unsigned connections) {
  how.connections = connections != 0 ? connections : connections_for(SourceFile(copy.source).size());
  how.connect = [&link] { return link.another(); };
  how.shared = copy.shared;
  return send_with_patience(copy, how, [&](const std::optional<Error>& lost) -> Transfer& {
    if (lost) {
      console.say(fmt::format("the connection was lost ({}); going on where it stopped", lost->message()));
      link.drop();
      link.connect(Deadline::in(reach), GuestLink::Wait::up);
    }
    return link.transfer();
  });
}

std::vector<Sent> send_larges(GuestLink& link, Console& console, const std::vector<LargeJob>& jobs, unsigned connections) {
  const auto awake = total_of(jobs) >= awake_from ? stay_awake() : nullptr;
  std::vector<std::optional<Sent>> done(jobs.size());
  if (jobs.size() > 1) {
    const sys::Stopwatch watch;
    Pairs(link, jobs, done).send(console);
    // Nobody has answered the guest on this one meanwhile.
    if (watch.elapsed() > idle_most) {
      link.drop();
    }
  }
  std::vector<Sent> sent;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (!done[i]) {
      const sys::Stopwatch watch;
      Sending how;
      how.before_rename = jobs[i].before_rename;
      how.progress = [&](std::uint64_t bytes, std::uint64_t total) {
        console.progress(jobs[i].copy.source.filename().string(), bytes, total);
      };
      done[i] = send_large(link, console, jobs[i].copy, how, connections);
      done[i]->spent = watch.elapsed();
      console.end_progress();
    }
    sent.push_back(std::move(*done[i]));
  }
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    unstage(jobs[i].copy, sent[i]);
  }
  return sent;
}

Manifest::Entry entry_of(const FileState& state, const std::string& stamp, const std::string& source_stamp) {
  return {state.size, stamp, state.sha256, source_stamp.empty() ? "-" : source_stamp};
}

void note(Guest& guest, Console& console, const std::vector<std::pair<std::string, Manifest::Entry>>& entries, CacheFolder folder) {
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
  return shown_bytes(static_cast<std::uint64_t>(static_cast<double>(bytes) * 1000 / static_cast<double>(spent.count()))) + "/s";
}

}  // namespace lumelift
