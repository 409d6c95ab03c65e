#include "remote/source_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "host/sys/error.hpp"
#include "host/sys/stamp.hpp"

namespace lumelift {
namespace {

Error unreadable(const sys::fs::path& path, std::string_view reason) {
  return Error(ErrorKind::usage, "file-unreadable", fmt::format("cannot read {}: {}", path.string(), reason));
}

Error changed(const sys::fs::path& path, std::string_view how) {
  return Error(ErrorKind::failed, "source-changed", fmt::format("{} changed while it was sent: {}", path.string(), how))
      .fix("leave the file alone and try again");
}

}  // namespace

SourceFile::SourceFile(const sys::fs::path& path) : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  struct stat about {};
  if (!fd_ || ::fstat(fd_.get(), &about) != 0) {
    throw unreadable(path, std::strerror(errno));
  }
  if (!S_ISREG(about.st_mode)) {
    throw unreadable(path, "it is not a regular file");
  }
  size_ = static_cast<std::uint64_t>(about.st_size);
  stamp_ = sys::stamp(about);
}

std::optional<std::string> SourceFile::stamp_of(const sys::fs::path& path) {
  struct stat about {};
  if (::stat(path.c_str(), &about) != 0) {
    return std::nullopt;
  }
  return sys::stamp(about);
}

void SourceFile::read_at(std::uint64_t offset, std::span<std::byte> into) const {
  while (!into.empty()) {
    const auto got = ::pread(fd_.get(), into.data(), into.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      throw unreadable(path_, std::strerror(errno));
    }
    if (got == 0) {
      throw changed(path_, "it shrank");
    }
    into = into.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
}

void SourceFile::require_unchanged() const {
  struct stat about {};
  if (::fstat(fd_.get(), &about) != 0) {
    throw unreadable(path_, std::strerror(errno));
  }
  if (static_cast<std::uint64_t>(about.st_size) != size_) {
    throw changed(path_, static_cast<std::uint64_t>(about.st_size) > size_ ? "it grew" : "it shrank");
  }
  if (sys::stamp(about) != stamp_) {
    throw changed(path_, "it was written to");
  }
  if (stamp_of(path_) != stamp_) {
    throw changed(path_, "another file stands under its name");
  }
}

Feed::Feed(const SourceFile& file, std::size_t ahead)
    : file_(file), ahead_(ahead), sums_(std::max<std::size_t>(1, (file.size() + segment_bytes - 1) / segment_bytes)) {}

Feed::~Feed() {
  stop();
  if (thread_.joinable()) {
    thread_.join();
  }
}

std::uint64_t Feed::length(std::size_t segment) const {
  return std::min(segment_bytes, file_.size() - segment * segment_bytes);
}

std::string Feed::sum_now(std::size_t segment, std::uint64_t bytes) const {
  sys::Sha256 hash;
  std::vector<std::byte> buffer(block_bytes);
  const auto start = segment * segment_bytes;
  for (std::uint64_t done = 0; done < bytes;) {
    const auto piece = std::span(buffer).first(std::min(block_bytes, bytes - done));
    file_.read_at(start + done, piece);
    hash.update(piece);
    done += piece.size();
    sys::check_interrupt();
  }
  return hash.hex();
}

void Feed::start(std::uint64_t from) {
  launch(from, from);
}

void Feed::start_hashing() {
  launch(file_.size(), 0);
}

void Feed::launch(std::uint64_t sent_from, std::uint64_t summed_from) {
  thread_ = std::thread([this, sent_from, summed_from] {
    std::exception_ptr fault;
    try {
      read(sent_from, summed_from);
    } catch (...) {
      fault = std::current_exception();
    }
    const std::lock_guard hold(mutex_);
    fault_ = fault;
    ended_ = true;
    changed_.notify_all();
  });
}

void Feed::read(std::uint64_t from, std::uint64_t summed_from) {
  sys::Sha256 whole;
  for (std::size_t segment = 0; segment < sums_.size(); ++segment) {
    sys::Sha256 hash;
    const auto start = segment * segment_bytes, end = start + length(segment);
    for (auto at = start; at < end;) {
      Block block = spare();
      block.offset = at;
      block.bytes.resize(std::min(block_bytes, end - at));
      file_.read_at(at, block.bytes);
      whole.update(block.bytes);
      if (end > summed_from) {
        hash.update(block.bytes);
      }
      at += block.bytes.size();
      const auto known = at == end ? hash.hex() : std::string{};
      if (block.offset < from && at > from) {
        block.bytes.erase(block.bytes.begin(), block.bytes.begin() + static_cast<std::ptrdiff_t>(from - block.offset));
        block.offset = from;
      }
      std::unique_lock hold(mutex_);
      if (!known.empty()) {
        sums_[segment] = known;
      }
      if (at <= from) {
        spare_.push_back(std::move(block));
        if (stopped_) {
          return;
        }
        continue;
      }
      changed_.wait(hold, [&] { return stopped_ || ready_.size() < ahead_; });
      if (stopped_) {
        return;
      }
      ready_.push_back(std::move(block));
      changed_.notify_all();
    }
  }
  const std::lock_guard hold(mutex_);
  whole_ = whole.hex();
}

Block Feed::spare() {
  const std::lock_guard hold(mutex_);
  if (spare_.empty()) {
    return {};
  }
  Block block = std::move(spare_.front());
  spare_.pop_front();
  return block;
}

std::optional<Block> Feed::take(sys::Milliseconds patience) {
  std::unique_lock hold(mutex_);
  changed_.wait_for(hold, patience, [&] { return !ready_.empty() || ended_ || stopped_; });
  if (fault_) {
    std::rethrow_exception(fault_);
  }
  if (ready_.empty()) {
    return std::nullopt;
  }
  Block block = std::move(ready_.front());
  ready_.pop_front();
  changed_.notify_all();
  return block;
}

bool Feed::drained() {
  const std::lock_guard hold(mutex_);
  return ready_.empty() && (ended_ || stopped_);
}

void Feed::give_back(Block block) {
  const std::lock_guard hold(mutex_);
  spare_.push_back(std::move(block));
}

std::string Feed::sum(std::size_t segment) {
  const std::lock_guard hold(mutex_);
  return sums_[segment];
}

std::string Feed::whole() {
  if (thread_.joinable()) {
    thread_.join();
  }
  if (fault_) {
    std::rethrow_exception(fault_);
  }
  return whole_;
}

void Feed::stop() {
  const std::lock_guard hold(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

}  // namespace lumelift
