#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "host/sys/file.hpp"
#include "remote/session.hpp"

namespace lumelift {

/// A regular file as it stands in the guest (or is to stand there).
struct FileState {
  std::string sha256;      ///< 64 lower-case hex digits
  unsigned mode = 0;       ///< permission bits
  std::uint64_t size = 0;  ///< bytes
  bool operator==(const FileState&) const = default;
};

/// From this size on a file is sent by put_large(), and its hash is not computed in advance.
inline constexpr std::uint64_t large_file = 8u << 20;

/// A small file in memory that is to be new in a guest.
struct NewFile {
  std::string path;  ///< absolute, in the guest
  std::string content;
  FileState want;  ///< what must stand there in the end
};

/// Bytes sent so far of `total`, about ten times a second at most and once at the end.
using Progress = std::function<void(std::uint64_t sent, std::uint64_t total)>;

/// What is to become of a file that stands at the destination: kept beside it for an undo, or replaced for good.
enum class Former { keep, drop };

/// How a large file is sent.
struct Sending {
  Progress progress = {};
  /// Called when the guest has verified every byte, just before the rename: what will stand there.
  std::function<void(const FileState&)> before_rename = {};
  /// Opens one more connection to the same guest, and how many are wanted in all.
  std::function<std::unique_ptr<Session>()> connect = {};
  unsigned connections = 1;
  /// Where the guest finds the same file on a share: it copies from there, and no bytes go over the connection.
  std::string shared = {};
};

/// A large file that stands in the guest.
struct Sent {
  FileState state;
  std::string stamp;           ///< the guest's times and inode of it; see Manifest
  std::string source_stamp;    ///< of the host file; see SourceFile
  std::uint64_t found = 0;     ///< bytes that an earlier, interrupted copy had left and that were proven right
  sys::Milliseconds spent{0};  ///< what it took, where the caller measured it
};

/// Whole-file copies into a guest. A final name holds either its former file or the complete new one, never a part:
/// bytes go to a temporary name beside it (see part_name), are verified there by the guest's own shasum, get their mode,
/// and are renamed. A file that is replaced is first linked to before_name(), so that putting it back is one rename and
/// keeps its inode. Constant memory. Throws Error: "guest-disk-full" (with free and needed bytes), "transfer-corrupt" (hash
/// differs), "transfer-unverified" (guest gave no hash), "source-changed", "guest-read-only", "guest-path-unsafe" (a link or
/// another kind stands there), "guest-folder-missing", "guest-file-too-large", "former-file-missing" (incomplete: what is to
/// come back is not there), and what Session throws.
class Transfer {
 public:
  explicit Transfer(Session& session) : session_(session) {}

  /// Puts the host file `source` at absolute guest path `path`. `want` is what must stand there in the end.
  void put_file(const sys::fs::path& source, const std::string& path, const FileState& want, const Progress& progress = {},
                Former former = Former::keep);
  /// The same for a large file, whose hash need not be known: it is computed while the bytes are on their way (over SFTP, in
  /// blocks of some megabytes), and the guest verifies each segment of 64 MiB while the next ones are sent. What an interrupted
  /// copy left at part_name() is used as far as both sides' checksums agree; a part stays there when this throws, for the next
  /// try or for tidy(). `before` is what stands there now. Under 64 MB of memory. Throws also "world-moved" where `before` is
  /// wrong and Former::keep, "guest-no-sftp", "share-unreadable".
  Sent put_large(const sys::fs::path& source, const std::string& path, unsigned mode, const std::optional<FileState>& before, Former former,
                 const Sending& how);
  /// Gets a guest file to `to` on this Mac, verified by the guest's shasum of what it read, under a temporary name until then.
  /// What an interrupted get left is used when it is a true prefix. Throws also "guest-file-missing", "file-unwritable",
  /// "transfer-corrupt".
  FileState get_file(const std::string& path, const sys::fs::path& to, const Progress& progress = {});
  /// The same for bytes in memory.
  void put_bytes(std::string_view content, const std::string& path, const FileState& want);
  /// Several files that do not exist yet, in one command: none gets its final name before all of them are verified. Throws
  /// also "world-moved" where a file has appeared meanwhile.
  void put_new(const std::vector<NewFile>& files);
  /// Puts the former file back from before_name(), or removes `path` when there was none. `before` is what must stand there
  /// in the end.
  void take_back(const std::string& path, const std::optional<FileState>& before);
  /// Removes part_name() and, when `path` is back to its former state, before_name(). Also a fence: once it returns, a put
  /// that a killed process left running in the guest can no longer change `path`. So recovery tidies first, then looks.
  void tidy(const std::string& path);
  /// Reads a guest file of at most `cap` bytes. Nothing when it does not exist.
  [[nodiscard]] std::optional<std::string> read(const std::string& path, std::size_t cap);

  /// "/d/.x.lumelift-part" and "/d/.x.lumelift-before-0123456789ab" for "/d/x": fixed, so that a later run finds what a crash
  /// left. The second carries the former file's SHA-256, so that several replacements are taken back one by one.
  [[nodiscard]] static std::string part_name(const std::string& path);
  [[nodiscard]] static std::string before_name(const std::string& path, std::string_view sha256);

 private:
  Session& session_;
};

}  // namespace lumelift
