#include "host/sys/clone.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "host/sys/error.hpp"
#include "host/sys/fd.hpp"

#ifdef __APPLE__
#include <sys/clonefile.h>
#else
#include <linux/fs.h>
#include <sys/ioctl.h>
#endif

namespace lumelift::sys {
namespace {

bool clone(const std::filesystem::path& source, const std::filesystem::path& target) {
#ifdef __APPLE__
  return ::clonefile(source.c_str(), target.c_str(), 0) == 0;
#else
  const Fd from(::open(source.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!from) {
    return false;
  }
  const Fd to(::open(target.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  struct stat about {};
  if (to && ::ioctl(to.get(), FICLONE, from.get()) == 0 && ::fstat(from.get(), &about) == 0) {
    const timespec times[] = {about.st_atim, about.st_mtim};
    (void)::futimens(to.get(), times);
    return true;
  }
  if (to) {
    ::unlink(target.c_str());
  }
  return false;
#endif
}

}  // namespace

void clone_or_link(const std::filesystem::path& source, const std::filesystem::path& target) {
  if (clone(source, target) || ::linkat(AT_FDCWD, source.c_str(), AT_FDCWD, target.c_str(), AT_SYMLINK_FOLLOW) == 0) {
    return;
  }
  throw Error(ErrorKind::failed, "file-unwritable",
              fmt::format("{} can be neither a clone of {} nor a link to it: {}", target.string(), source.string(), std::strerror(errno)));
}

bool one_file_system(const std::filesystem::path& one, const std::filesystem::path& other) {
  struct stat first {
  }, second{};
  return ::stat(one.c_str(), &first) == 0 && ::stat(other.c_str(), &second) == 0 && first.st_dev == second.st_dev;
}

}  // namespace lumelift::sys
