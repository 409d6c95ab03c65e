#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "host/sys/fd.hpp"
#include "host/sys/file.hpp"
#include "host/sys/hash.hpp"

namespace lumelift {

/// A regular file of this Mac, open for reading, and what it was when it was opened. Throws Error "file-unreadable"
/// (usage), "source-changed" for a file that is another one, longer or shorter by now.
class SourceFile {
 public:
  explicit SourceFile(const sys::fs::path& path);

  [[nodiscard]] const sys::fs::path& path() const { return path_; }
  [[nodiscard]] std::uint64_t size() const { return size_; }
  /// One word that changes when the file does: size, times in nanoseconds, inode and device.
  [[nodiscard]] const std::string& stamp() const { return stamp_; }
  /// The same for a file that need not be opened; nothing when it cannot be looked at.
  [[nodiscard]] static std::optional<std::string> stamp_of(const sys::fs::path& path);
  /// Fills `into` from `offset` on.
  void read_at(std::uint64_t offset, std::span<std::byte> into) const;
  /// Looks again, at the open file and at what stands under its name.
  void require_unchanged() const;

 private:
  sys::fs::path path_;
  sys::Fd fd_;
  std::uint64_t size_ = 0;
  std::string stamp_;
};

struct Block {
  std::uint64_t offset = 0;
  std::vector<std::byte> bytes;
};

/// Reads a file once, ahead of those who send it, and hashes on the way: the whole of it, and each segment, since the
/// guest verifies segment by segment. A thread of its own from start() on; at most a handful of blocks in memory. What
/// take() hands out may go to several threads; everything else is for one. Throws what SourceFile throws.
class Feed {
 public:
  static constexpr std::uint64_t block_bytes = 4u << 20;
  static constexpr std::uint64_t segment_bytes = 64u << 20;

  /// `ahead`: blocks that may wait to be taken.
  Feed(const SourceFile& file, std::size_t ahead);
  ~Feed();
  Feed(const Feed&) = delete;
  Feed& operator=(const Feed&) = delete;

  [[nodiscard]] std::size_t segments() const { return sums_.size(); }
  [[nodiscard]] std::uint64_t length(std::size_t segment) const;

  /// SHA-256 of one segment, or of its first `bytes`; read here and now, before start().
  [[nodiscard]] std::string sum_now(std::size_t segment, std::uint64_t bytes) const;
  /// Begins to read; what lies before `from` is hashed only.
  void start(std::uint64_t from);
  /// Begins to read for the sums alone: nothing is handed out.
  void start_hashing();
  /// The next block, or nothing within `patience`: none is ready yet, or none is left.
  [[nodiscard]] std::optional<Block> take(sys::Milliseconds patience);
  /// True when all blocks were taken.
  [[nodiscard]] bool drained();
  void give_back(Block block);
  /// Of a segment whose blocks were all taken; empty while it is not known.
  [[nodiscard]] std::string sum(std::size_t segment);
  /// The whole file's; after everything was taken.
  [[nodiscard]] std::string whole();
  void stop();

 private:
  void launch(std::uint64_t sent_from, std::uint64_t summed_from);
  void read(std::uint64_t sent_from, std::uint64_t summed_from);
  Block spare();

  const SourceFile& file_;
  const std::size_t ahead_;
  std::vector<std::string> sums_;
  std::string whole_;
  std::deque<Block> ready_, spare_;
  bool ended_ = false, stopped_ = false;
  std::exception_ptr fault_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread thread_;
};

}  // namespace lumelift
