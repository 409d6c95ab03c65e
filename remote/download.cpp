#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "host/sys/error.hpp"
#include "host/sys/hash.hpp"
#include "remote/script.hpp"
#include "remote/source_file.hpp"
#include "remote/transfer.hpp"
#include "remote/transfer_answer.hpp"

namespace lumelift {
namespace {

using namespace std::chrono_literals;
using sys::Deadline;

// Size and mode, then the bytes from `offset` on. The whole is hashed beside it, on a channel of its own.
constexpr std::string_view send_script = R"sh(say() { printf '%s\n' "$1"; exit 0; }
[ -e "$1" ] || say absent
[ -f "$1" ] || say kind
about=$(/usr/bin/stat -L -f '%Lp %z' "$1" </dev/null) || say unreadable
printf 'file %s\n' "$about"
if [ "$2" -eq 0 ]; then exec /bin/cat "$1"; fi
exec /usr/bin/tail -c +"$(($2 + 1))" "$1")sh";
constexpr std::string_view sum_script = "sum=$(/usr/bin/shasum -a 256 < \"$1\"); printf '%s\\n' \"${sum%% *}\"";
constexpr std::string_view prefix_script = "sum=$(/usr/bin/head -c \"$2\" \"$1\" | /usr/bin/shasum -a 256); printf '%s\\n' \"${sum%% *}\"";

Deadline ample(std::uint64_t size) {
  return Deadline::in(1h + std::chrono::seconds(size / 1'000'000));
}

Error unwritable(const sys::fs::path& file) {
  return Error(ErrorKind::failed, "file-unwritable", fmt::format("cannot write {}: {}", file.string(), std::strerror(errno)))
      .fix("check owner, mode and free space of its folder");
}

/// The file of this Mac that grows.
class Target {
 public:
  Target(const sys::fs::path& to, const sys::fs::path& part)
      : to_(to), part_(part), fd_(::open(part.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)) {
    struct stat about {};
    if (!fd_ || ::fstat(fd_.get(), &about) != 0) {
      throw unwritable(part_);
    }
    if (!S_ISREG(about.st_mode)) {
      errno = EEXIST;
      throw unwritable(part_);
    }
    size_ = static_cast<std::uint64_t>(about.st_size);
  }
  [[nodiscard]] std::uint64_t size() const { return size_; }
  void start_anew() {
    if (::ftruncate(fd_.get(), 0) != 0) {
      throw unwritable(part_);
    }
    size_ = 0;
  }
  void append(std::string_view bytes) {
    while (!bytes.empty()) {
      const auto put = ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(size_));
      if (put < 0 && errno == EINTR) {
        continue;
      }
      if (put < 0) {
        throw unwritable(part_);
      }
      bytes.remove_prefix(static_cast<std::size_t>(put));
      size_ += static_cast<std::uint64_t>(put);
    }
  }
  void settle(unsigned mode) {
    if (::fchmod(fd_.get(), static_cast<mode_t>(mode)) != 0 || ::fsync(fd_.get()) != 0 || ::rename(part_.c_str(), to_.c_str()) != 0) {
      throw unwritable(to_);
    }
  }
  void discard() { ::unlink(part_.c_str()); }

 private:
  sys::fs::path to_, part_;
  sys::Fd fd_;
  std::uint64_t size_ = 0;
};

/// Takes the stream of send_script apart: frame, one line, then exactly the promised bytes.
class Incoming {
 public:
  Incoming(Target& target, sys::Sha256& hash, const Progress& progress) : target_(target), hash_(hash), progress_(progress) {}
  void take(std::string_view piece) {
    if (!size_) {
      head_ += piece;
      constexpr std::string_view begin = "\nlumelift-begin\nfile ";
      const auto at = head_.find(begin);
      const auto end = at == std::string::npos ? at : head_.find('\n', at + begin.size());
      if (end == std::string::npos) {
        return;
      }
      const auto line = head_.substr(at + begin.size(), end - at - begin.size());
      std::uint64_t size = 0;
      const auto [next, fault] = std::from_chars(line.data(), line.data() + line.size(), mode_, 8);
      if (fault != std::errc{} || std::from_chars(next + 1, line.data() + line.size(), size).ec != std::errc{}) {
        return;
      }
      size_ = size;
      const auto rest = head_.substr(end + 1);
      return take(rest);
    }
    piece = piece.substr(0, std::min<std::uint64_t>(piece.size(), *size_ - std::min(*size_, target_.size())));
    hash_.update(piece);
    target_.append(piece);
    if (progress_ && told_.elapsed() >= 100ms) {
      progress_(target_.size(), *size_);
      told_ = {};
    }
  }
  [[nodiscard]] bool complete() const { return size_ && target_.size() == *size_; }
  [[nodiscard]] unsigned mode() const { return mode_; }
  [[nodiscard]] const std::string& head() const { return head_; }

 private:
  Target& target_;
  sys::Sha256& hash_;
  const Progress& progress_;
  std::string head_;
  std::optional<std::uint64_t> size_;
  unsigned mode_ = 0;
  sys::Stopwatch told_;
};

std::string sum_of(const std::string& path, const ExecResult& result) {
  auto sum = script_answer("hash " + path, result).body;
  while (!sum.empty() && sum.back() == '\n') {
    sum.pop_back();
  }
  if (sum.size() != 64) {
    throw Error(ErrorKind::failed, "transfer-unverified",
                fmt::format("{}: the guest's shasum gave no checksum but '{}'", path, excerpt(sum)));
  }
  return sum;
}

}  // namespace

FileState Transfer::get_file(const std::string& path, const sys::fs::path& to, const Progress& progress) {
  require_plain_path(path);
  const auto part = part_name(sys::fs::absolute(to).string());
  Target target(to, part);
  const auto summing = session_.open_exec(script_command(sum_script, {path}), Deadline::in(30s));
  sys::Sha256 hash;
  if (target.size() > 0) {
    sys::Sha256 prefix;
    const SourceFile had(part);
    std::vector<std::byte> buffer(Feed::block_bytes);
    for (std::uint64_t at = 0; at < had.size(); at += buffer.size()) {
      const auto piece = std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), had.size() - at));
      had.read_at(at, piece);
      prefix.update(piece);
      hash.update(piece);
    }
    const auto theirs = session_.exec(script_command(prefix_script, {path, std::to_string(had.size())}), ample(had.size()));
    if (sum_of(path, theirs) != prefix.hex()) {
      target.start_anew();
      hash = {};
    }
  }
  Incoming incoming(target, hash, progress);
  ExecOptions options;
  options.on_output = [&](std::string_view piece, bool is_err) {
    if (!is_err) {
      incoming.take(piece);
    }
  };
  const auto ending = session_.exec(script_command(send_script, {path, std::to_string(target.size())}), ample(target.size()), options);
  if (!incoming.complete()) {
    if (!ending.status && ending.signal.empty()) {
      throw Error(ErrorKind::failed, "guest-lost", fmt::format("cannot get {}: the connection ended before the last byte", path));
    }
    if (target.size() == 0) {
      target.discard();
    }
    const auto said = unframe(incoming.head());
    if (said && said->body == "absent\n") {
      throw Error(ErrorKind::failed, "guest-file-missing", fmt::format("there is no {} in the guest", path));
    }
    if (said && said->body == "kind\n") {
      throw refusal(path, *said, 0);
    }
    throw Error(ErrorKind::failed, "guest-unreadable", fmt::format("cannot get {}: it ended early, or cannot be read", path))
        .fix("leave the file alone in the guest and try again");
  }
  const auto theirs = sum_of(path, summing->finish(ample(target.size())));
  const FileState state{hash.hex(), incoming.mode(), target.size()};
  if (theirs != state.sha256) {
    target.discard();
    throw Error(ErrorKind::failed, "transfer-corrupt",
                fmt::format("{} arrived as another file than the guest's shasum read: {}", path, theirs))
        .fix("it may have changed meanwhile; try again");
  }
  target.settle(state.mode);
  if (progress) {
    progress(state.size, state.size);
  }
  return state;
}

}  // namespace lumelift
