#pragma once

#include <string>
#include <vector>

#include "cli/console.hpp"
#include "cli/link.hpp"
#include "cli/plan.hpp"

namespace lumelift {

/// Whether the manifest in the guest may stand for reading a large file there.
enum class Trust { manifest, nothing };

/// As Guest::look(), but large files are read only where the manifest does not know them. `large` tells which they are.
[[nodiscard]] std::vector<PathSeen> look(Guest& guest, const std::vector<std::string>& paths, const std::vector<bool>& large, Trust trust,
                                         const sys::Deadline& deadline, Manifest* manifest = nullptr);

/// What stands at goal.paths(). Where a large file of the goal could stand there already, because the sizes agree, its
/// hash is filled in: from the manifest when that says which host file was sent, else by reading the host file. Library
/// and probe are always read in the guest.
[[nodiscard]] std::vector<PathSeen> look_at(Guest& guest, GuestGoal& goal, Trust trust, const sys::Deadline& deadline);

/// One large file of this Mac and where it goes.
struct LargeCopy {
  std::filesystem::path source;
  std::string path;
  unsigned mode = 0644;
  std::optional<FileState> before;  ///< what stands there now
  Former former = Former::keep;
  std::string shared = {};            ///< where the guest has the same file on a share; empty: it goes over SSH
  std::filesystem::path staged = {};  ///< what is on the share: removed once it is copied
  bool shared_only = false;           ///< a share that cannot be read is an error, and no reason to use SSH
};

/// Sends it, over more than one connection where that pays. When the connection is lost it connects anew and goes on
/// where the copy stopped, a few times. Over a guest without SFTP it is hashed first and sent as a stream.
/// `connections`: 0 lets it choose.
Sent send_large(GuestLink& link, Console& console, const LargeCopy& copy, Sending how, unsigned connections = 0);

struct LargeJob {
  LargeCopy copy;
  /// As Sending's; of several jobs never two at a time, but from other threads than the caller's.
  std::function<void(const FileState&)> before_rename = {};
};

/// The same for several, in pairs, each over a connection of its own: while the guest verifies the end of one file, the
/// beginning of another is on its way. A guest that takes no further connection gets them one after another. Shows progress.
/// When one fails, the others stop soon; what was sent of them stays for the next try. The results are in the jobs' order.
[[nodiscard]] std::vector<Sent> send_larges(GuestLink& link, Console& console, const std::vector<LargeJob>& jobs, unsigned connections = 0);

/// What stands in the guest's manifest of a file that was sent or found right.
[[nodiscard]] Manifest::Entry entry_of(const FileState& state, const std::string& stamp, const std::string& source_stamp);
/// Whether the manifest's folder may be made: not where an undo would not know of it.
enum class CacheFolder { existing, made };
/// Adds to the manifest. A guest that will not have it costs time at the next copy, nothing else; a lost connection is
/// an Error.
void note(Guest& guest, Console& console, const std::vector<std::pair<std::string, Manifest::Entry>>& entries, CacheFolder folder);

/// "412 MB/s", or nothing for less than a second.
[[nodiscard]] std::string shown_rate(std::uint64_t bytes, sys::Milliseconds spent);

}  // namespace lumelift
