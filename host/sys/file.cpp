#include "host/sys/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "host/sys/error.hpp"
#include "host/sys/stamp.hpp"

namespace lumelift::sys {
namespace {

/// Enough for two lines about a holder; more would not be ours.
constexpr std::size_t holder_cap = 400;

/// Forces a file's bytes onto the medium.
#ifdef __APPLE__
int flush(int fd) noexcept {
  // fsync on macOS stops at the drive's cache; not every file system knows the stronger call.
  return ::fcntl(fd, F_FULLFSYNC) == 0 ? 0 : ::fsync(fd);
}
#else
int flush(int fd) noexcept {
  return ::fsync(fd);
}
#endif

[[noreturn]] void unreadable(const fs::path& path, std::string_view reason) {
  throw Error(ErrorKind::usage, "file-unreadable", fmt::format("cannot read {}: {}", path.string(), reason));
}

[[noreturn]] void unwritable(const fs::path& path, std::string_view reason) {
  throw Error(ErrorKind::failed, "file-unwritable", fmt::format("cannot write {}: {}", path.string(), reason));
}

/// Returns 0 or an errno.
int write_all(int fd, std::string_view content) noexcept {
  while (!content.empty()) {
    const auto put = ::write(fd, content.data(), content.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return errno;
    content.remove_prefix(static_cast<std::size_t>(put));
  }
  return 0;
}

/// A new file beside its final name; removed again unless it took that name.
class TemporaryFile {
 public:
  explicit TemporaryFile(const fs::path& target) {
    name_ = (target.parent_path() / fmt::format(".{}.XXXXXX", target.filename().string())).string();
    fd_.reset(::mkostemp(name_.data(), O_CLOEXEC));
    if (!fd_) name_.clear();
  }
  ~TemporaryFile() {
    if (!name_.empty()) ::unlink(name_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  [[nodiscard]] explicit operator bool() const { return static_cast<bool>(fd_); }
  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] bool rename_to(const fs::path& target) {
    if (::rename(name_.c_str(), target.c_str()) != 0) return false;
    name_.clear();
    return true;
  }

 private:
  std::string name_;
  Fd fd_;
};

/// Makes a rename in `folder` durable.
void flush_folder(const fs::path& folder) {
  const Fd fd(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems cannot flush a folder and say EINVAL: there is nothing stronger to ask for.
  if (!fd || (flush(fd.get()) != 0 && errno != EINVAL)) unwritable(folder, std::strerror(errno));
}

[[noreturn]] void unusable(const fs::path& path, std::string_view reason, std::string fix) {
  throw Error(ErrorKind::failed, "state-folder-unusable", fmt::format("the state folder {} cannot be used: {}", path.string(), reason))
      .fix(std::move(fix));
}

[[noreturn]] void unusable(const fs::path& path, int error) {
  const char* fix = "choose another folder with LUMELIFT_STATE_DIR";
  if (error == ENOSPC || error == EDQUOT) fix = "free some space on its disk, then try again";
  if (error == EROFS) fix = "its file system is read-only: choose another folder with LUMELIFT_STATE_DIR";
  if (error == EACCES || error == EPERM) fix = "give yourself access to it, or choose another folder with LUMELIFT_STATE_DIR";
  unusable(path, std::strerror(error), fix);
}

void make_folders(const fs::path& path) {
  std::error_code error;
  if (path.empty() || fs::symlink_status(path, error).type() != fs::file_type::not_found) return;
  make_folders(path.parent_path());
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) unusable(path, errno);
}

/// Writes a little and takes it back: the only honest way to learn of a full, read-only or over-quota file system.
void try_writing(const fs::path& folder) {
  const TemporaryFile file(folder / "write-test");
  if (!file) unusable(folder, errno);
  const std::array<char, 4096> block{};
  if (const int error = write_all(file.fd(), {block.data(), block.size()})) unusable(folder, error);
}

std::string holder_text(int fd) {
  std::string text(holder_cap, '\0');
  const auto got = ::pread(fd, text.data(), text.size(), 0);
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.empty() ? "another process" : text;
}

}  // namespace

std::string read_file(const fs::path& path, std::size_t cap) {
  // Non-blocking: opening a FIFO must not wait for a writer.
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) unreadable(path, errno == ENXIO ? "it is not a regular file" : std::strerror(errno));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) unreadable(path, std::strerror(errno));
  if (S_ISDIR(info.st_mode)) unreadable(path, "it is a folder");
  if (!S_ISREG(info.st_mode)) unreadable(path, "it is not a regular file");

  std::string content;
  content.reserve(std::min(cap, static_cast<std::size_t>(info.st_size)) + 1);
  std::array<char, 65536> block;
  for (;;) {
    const auto got = ::read(fd.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) unreadable(path, std::strerror(errno));
    if (got == 0) return content;
    content.append(block.data(), static_cast<std::size_t>(got));
    if (content.size() > cap) unreadable(path, fmt::format("it is larger than {} bytes", cap));
  }
}

std::string read_tail(const fs::path& path, std::uint64_t from, std::size_t cap) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!fd || ::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return "";
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (size < from) from = 0;
  if (size - from > cap) from = size - cap;
  std::string text(static_cast<std::size_t>(size - from), '\0');
  const auto got = ::pread(fd.get(), text.data(), text.size(), static_cast<off_t>(from));
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return text;
}

void write_file(const fs::path& path, std::string_view content, unsigned mode) {
  TemporaryFile file(path);
  if (!file) unwritable(path, std::strerror(errno));
  if (const int error = write_all(file.fd(), content)) unwritable(path, std::strerror(error));
  if (::fchmod(file.fd(), static_cast<mode_t>(mode)) != 0 || flush(file.fd()) != 0) {
    unwritable(path, std::strerror(errno));
  }
  if (!file.rename_to(path)) unwritable(path, std::strerror(errno));
  flush_folder(path.parent_path());
}

void ensure_private_folder(const fs::path& path) {
  make_folders(path);
  struct stat info {};
  // A slash at the end would be read through a link.
  if (::lstat((path.has_filename() ? path : path.parent_path()).c_str(), &info) != 0) unusable(path, errno);
  if (S_ISLNK(info.st_mode)) unusable(path, "it is a symbolic link", "name the real folder with LUMELIFT_STATE_DIR");
  if (!S_ISDIR(info.st_mode)) unusable(path, "it is not a folder", "move that file away");
  if (info.st_uid != ::geteuid()) {
    unusable(path, fmt::format("it belongs to user {}, not to user {}", info.st_uid, ::geteuid()),
             "run as its owner, or choose another folder with LUMELIFT_STATE_DIR");
  }
  if ((info.st_mode & 0022) != 0) {
    unusable(path, "others may write to it, so its content cannot be trusted",
             fmt::format("look through it, then run: chmod 700 {}", path.string()));
  }
  if ((info.st_mode & 07777) != 0700 && ::chmod(path.c_str(), 0700) != 0) unusable(path, errno);
  try_writing(path);
}

FileLock::FileLock(const fs::path& path, std::string_view purpose, const Deadline& deadline)
    : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)) {
  if (!fd_) unusable(path, errno);
  // holder() takes the lock for an instant; a caller who does not want to wait must not lose against that.
  const Deadline patience = deadline.expired() ? Deadline::in(Milliseconds{60}) : deadline;
  Milliseconds nap{5};
  while (::flock(fd_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) unusable(path, errno);
    if (patience.expired()) {
      throw Error(ErrorKind::busy, "lock-held", fmt::format("{} is locked by {}", path.filename().string(), holder_text(fd_.get())))
          .fix("wait for it to end, then try again");
    }
    pause(nap, patience);
    nap = std::min(nap * 2, Milliseconds{250});
  }
  const std::string text = fmt::format("pid {} since {}: {}\n", ::getpid(), iso_utc(wall_seconds()), purpose);
  // Only informs: a full disk must not cost us a lock that the kernel has granted.
  if (::pwrite(fd_.get(), text.data(), text.size(), 0) >= 0) {
    [[maybe_unused]] const int ignored = ::ftruncate(fd_.get(), static_cast<off_t>(text.size()));
  }
}

std::optional<std::string> FileLock::holder(const fs::path& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd || ::flock(fd.get(), LOCK_SH | LOCK_NB) == 0 || errno != EWOULDBLOCK) return std::nullopt;
  return holder_text(fd.get());
}

std::string stamp(const struct ::stat& about) {
#ifdef __APPLE__
  const auto modified = about.st_mtimespec, changed = about.st_ctimespec;
#else
  const auto modified = about.st_mtim, changed = about.st_ctim;
#endif
  return fmt::format("{}:{}.{:09}:{}.{:09}:{}:{}", about.st_size, modified.tv_sec, modified.tv_nsec, changed.tv_sec, changed.tv_nsec,
                     about.st_ino, about.st_dev);
}

}  // namespace lumelift::sys
