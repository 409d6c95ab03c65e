// Files: flags, commands and structures whose numbers or layouts differ.
#include <dirent.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "machrun/symbol_tables.hpp"
#include "machrun/variadic.hpp"

namespace lab {
namespace {

struct FlagPair {
  int apple_flag, linux_flag;
};
constexpr FlagPair kOpenFlags[] = {
    {0x4, O_NONBLOCK}, {0x8, O_APPEND}, {0x80, O_SYNC},      {0x100, O_NOFOLLOW},     {0x200, O_CREAT},
    {0x400, O_TRUNC},  {0x800, O_EXCL}, {0x20000, O_NOCTTY}, {0x100000, O_DIRECTORY}, {0x1000000, O_CLOEXEC},
};

int linux_open_flags(int flags) {
  int out = flags & O_ACCMODE;
  for (const auto& pair : kOpenFlags)
    if (flags & pair.apple_flag) out |= pair.linux_flag;
  return out;
}

int apple_open_flags(int flags) {
  int out = flags & O_ACCMODE;
  for (const auto& pair : kOpenFlags)
    if (pair.linux_flag && (flags & pair.linux_flag) == pair.linux_flag) out |= pair.apple_flag;
  return out;
}

int linux_at(int fd) {
  return fd == -2 ? AT_FDCWD : fd;
}

int linux_at_flags(int flags) {
  return (flags & 0x10 ? AT_EACCESS : 0) | (flags & 0x20 ? AT_SYMLINK_NOFOLLOW : 0) | (flags & 0x40 ? AT_SYMLINK_FOLLOW : 0) |
         (flags & 0x80 ? AT_REMOVEDIR : 0);
}

mode_t mode_argument(int flags, va_list& args) {
  return flags & 0x200 ? static_cast<mode_t>(va_arg(args, int)) : 0;
}

int open_with(const char* path, int flags, va_list& args) {
  const mode_t mode = mode_argument(flags, args);
  return ::open(path, linux_open_flags(flags), mode);
}

int openat_with(int folder, const char* path, int flags, va_list& args) {
  const mode_t mode = mode_argument(flags, args);
  return ::openat(linux_at(folder), path, linux_open_flags(flags), mode);
}

struct AppleFlock {
  int64_t start, length;
  int32_t pid;
  int16_t type, whence;
};

int lock_with(int fd, int command, AppleFlock* lock) {
  static constexpr short kinds[] = {0, F_RDLCK, F_UNLCK, F_WRLCK};
  struct flock own {};
  own.l_type = kinds[lock->type & 3];
  own.l_whence = lock->whence;
  own.l_start = lock->start;
  own.l_len = lock->length;
  const int result = ::fcntl(fd, command, &own);
  if (command == F_GETLK && result == 0) {
    lock->type = own.l_type == F_RDLCK ? 1 : own.l_type == F_WRLCK ? 3 : 2;
    lock->start = own.l_start;
    lock->length = own.l_len;
    lock->pid = own.l_pid;
  }
  return result;
}

int path_of(int fd, char* buffer) {
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t length = ::readlink(link.c_str(), buffer, 1023);
  if (length >= 0) buffer[length] = 0;
  return length < 0 ? -1 : 0;
}

int fcntl_with(int fd, int command, va_list& args) {
  switch (command) {
    case 0:
      return ::fcntl(fd, F_DUPFD, va_arg(args, int));
    case 67:
      return ::fcntl(fd, F_DUPFD_CLOEXEC, va_arg(args, int));
    case 1:
      return ::fcntl(fd, F_GETFD);
    case 2:
      return ::fcntl(fd, F_SETFD, va_arg(args, int));
    case 3: {
      const int flags = ::fcntl(fd, F_GETFL);
      return flags < 0 ? flags : apple_open_flags(flags);
    }
    case 4:
      return ::fcntl(fd, F_SETFL, linux_open_flags(va_arg(args, int)));
    case 7:
      return lock_with(fd, F_GETLK, va_arg(args, AppleFlock*));
    case 8:
      return lock_with(fd, F_SETLK, va_arg(args, AppleFlock*));
    case 9:
      return lock_with(fd, F_SETLKW, va_arg(args, AppleFlock*));
    case 48:
      return 0;  // F_NOCACHE: advice only
    case 50:
      return path_of(fd, va_arg(args, char*));
    case 51:
    case 85:
      return ::fsync(fd);  // F_FULLFSYNC, F_BARRIERFSYNC
    default:
      errno = EINVAL;
      return -1;
  }
}

int ioctl_with(int fd, unsigned long request, va_list& args) {
  if (request == 0x40087468) return ::ioctl(fd, TIOCGWINSZ, va_arg(args, void*));
  errno = ENOTTY;
  return -1;
}

}  // namespace

LAB_VARIADIC(int, open, 2, (const char* path, int flags), flags, open_with(path, flags, args))
LAB_VARIADIC(int, openat, 3, (int folder, const char* path, int flags), flags, openat_with(folder, path, flags, args))
LAB_VARIADIC(int, fcntl, 2, (int fd, int command), command, fcntl_with(fd, command, args))
LAB_VARIADIC(int, ioctl, 2, (int fd, unsigned long request), request, ioctl_with(fd, request, args))

namespace {

struct AppleTime {
  int64_t seconds, nanoseconds;
};
struct AppleStat {
  int32_t dev;
  uint16_t mode, nlink;
  uint64_t ino;
  uint32_t uid, gid;
  int32_t rdev;
  AppleTime access, modified, changed, born;
  int64_t size, blocks;
  int32_t block_size;
  uint32_t flags, generation;
  int32_t spare;
  int64_t more_spare[2];
};
static_assert(sizeof(AppleStat) == 144);

int store(int result, const struct stat& from, AppleStat* to) {
  if (result != 0) return result;
  *to = {};
  to->dev = static_cast<int32_t>(from.st_dev);
  to->mode = static_cast<uint16_t>(from.st_mode);
  to->nlink = static_cast<uint16_t>(from.st_nlink);
  to->ino = from.st_ino;
  to->uid = from.st_uid;
  to->gid = from.st_gid;
  to->rdev = static_cast<int32_t>(from.st_rdev);
  to->access = {from.st_atim.tv_sec, from.st_atim.tv_nsec};
  to->modified = {from.st_mtim.tv_sec, from.st_mtim.tv_nsec};
  to->changed = to->born = {from.st_ctim.tv_sec, from.st_ctim.tv_nsec};
  to->size = from.st_size;
  to->blocks = from.st_blocks;
  to->block_size = static_cast<int32_t>(from.st_blksize);
  return 0;
}

int apple_stat(const char* path, AppleStat* out) {
  struct stat own {};
  return store(::stat(path, &own), own, out);
}
int apple_lstat(const char* path, AppleStat* out) {
  struct stat own {};
  return store(::lstat(path, &own), own, out);
}
int apple_fstat(int fd, AppleStat* out) {
  struct stat own {};
  return store(::fstat(fd, &own), own, out);
}
int apple_fstatat(int folder, const char* path, AppleStat* out, int flags) {
  struct stat own {};
  return store(::fstatat(linux_at(folder), path, &own, linux_at_flags(flags)), own, out);
}

int apple_faccessat(int folder, const char* path, int mode, int flags) {
  return ::faccessat(linux_at(folder), path, mode, linux_at_flags(flags));
}
int apple_unlinkat(int folder, const char* path, int flags) {
  return ::unlinkat(linux_at(folder), path, linux_at_flags(flags));
}
int apple_renameat(int from, const char* old_name, int to, const char* new_name) {
  return ::renameat(linux_at(from), old_name, linux_at(to), new_name);
}
int apple_mkdirat(int folder, const char* path, mode_t mode) {
  return ::mkdirat(linux_at(folder), path, mode);
}

void* apple_mmap(void* hint, size_t size, int protection, int flags, int fd, off_t offset) {
  const int own = (flags & 0x13) | (flags & 0x1000 ? MAP_ANONYMOUS : 0);
  return ::mmap(hint, size, protection, own, flags & 0x1000 ? -1 : fd, offset);
}

struct AppleDirent {
  uint64_t ino, seek_offset;
  uint16_t record_length, name_length;
  uint8_t type;
  char name[1024];
};

AppleDirent* apple_readdir(DIR* folder) {
  static thread_local AppleDirent out;
  const struct dirent* entry = ::readdir(folder);
  if (!entry) return nullptr;
  out.ino = entry->d_ino;
  out.seek_offset = static_cast<uint64_t>(entry->d_off);
  out.record_length = sizeof out;
  out.name_length = static_cast<uint16_t>(std::strlen(entry->d_name));
  out.type = entry->d_type;
  std::memcpy(out.name, entry->d_name, out.name_length + 1u);
  return &out;
}

}  // namespace

SymbolTable file_symbols() {
  static const SystemSymbol table[] = {
      {"_open", as_address(apple_open)},         {"_openat", as_address(apple_openat)},     {"_fcntl", as_address(apple_fcntl)},
      {"_ioctl", as_address(apple_ioctl)},       {"_stat", as_address(apple_stat)},         {"_lstat", as_address(apple_lstat)},
      {"_fstat", as_address(apple_fstat)},       {"_fstatat", as_address(apple_fstatat)},   {"_faccessat", as_address(apple_faccessat)},
      {"_unlinkat", as_address(apple_unlinkat)}, {"_renameat", as_address(apple_renameat)}, {"_mkdirat", as_address(apple_mkdirat)},
      {"_mmap", as_address(apple_mmap)},         {"_readdir", as_address(apple_readdir)},
  };
  return table;
}

}  // namespace lab
