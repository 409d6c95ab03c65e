#include "machrun/macho_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "machrun/macho_format.hpp"

namespace lab {
namespace {

uint32_t big32(const unsigned char* p) {
  return uint32_t{p[0]} << 24 | uint32_t{p[1]} << 16 | uint32_t{p[2]} << 8 | p[3];
}
uint64_t big64(const unsigned char* p) {
  return uint64_t{big32(p)} << 32 | big32(p + 4);
}
uint32_t little32(const unsigned char* p) {
  return __builtin_bswap32(big32(p));
}

void read_fat(const unsigned char* head, size_t length, bool wide, std::vector<Slice>& slices) {
  const uint32_t count = big32(head + 4);
  const size_t entry = wide ? 32 : 20;
  // Java class files share the magic; their "count" is a version of 45 and more.
  if (count > 30) return;
  for (uint32_t i = 0; i < count && 8 + (i + 1) * entry <= length; ++i) {
    const unsigned char* p = head + 8 + i * entry;
    slices.push_back(wide ? Slice{big32(p), big32(p + 4), big64(p + 8), big64(p + 16)}
                          : Slice{big32(p), big32(p + 4), big32(p + 8), big32(p + 12)});
  }
}

}  // namespace

std::string Slice::arch() const {
  const uint32_t sub = cpusubtype & 0xff;
  if (cputype == macho::kCpuX86_64) return sub == 8 ? "x86_64h" : "x86_64";
  if (cputype == macho::kCpuArm64) return sub == 2 ? "arm64e" : "arm64";
  if (cputype == 7) return "i386";
  if (cputype == 18) return "ppc";
  return "unknown";
}

FileSummary summarize(const std::string& path) {
  FileSummary out;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    out.kind = errno == ENOENT || errno == ENOTDIR ? FileKind::missing : FileKind::unreadable;
    return out;
  }
  struct stat info {};
  unsigned char head[1024];
  const bool regular = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  const ssize_t got = regular ? ::pread(fd, head, sizeof head, 0) : -1;
  ::close(fd);
  if (got < 0) {
    out.kind = FileKind::unreadable;
    return out;
  }
  const auto length = static_cast<size_t>(got);
  out.kind = FileKind::other;
  if (length >= 2 && head[0] == '#' && head[1] == '!') {
    const void* end = std::memchr(head, '\n', length);
    const size_t stop = end ? static_cast<size_t>(static_cast<const unsigned char*>(end) - head) : length;
    out.kind = FileKind::script;
    out.interpreter_line.assign(reinterpret_cast<const char*>(head) + 2, stop - 2);
  } else if (length >= 8 && (big32(head) == macho::kMagicFat || big32(head) == macho::kMagicFat64)) {
    read_fat(head, length, big32(head) == macho::kMagicFat64, out.slices);
    if (!out.slices.empty()) out.kind = FileKind::mach_o;
  } else if (length >= sizeof(macho::Header) && (little32(head) & ~1u) == (macho::kMagic64 & ~1u)) {
    out.kind = FileKind::mach_o;
    out.slices.push_back({little32(head + 4), little32(head + 8), 0, static_cast<uint64_t>(info.st_size)});
  }
  return out;
}

std::optional<Slice> find_slice(const FileSummary& file, const std::string& arch) {
  for (const Slice& slice : file.slices)
    if (slice.arch() == arch) return slice;
  return std::nullopt;
}

std::string slice_list(const FileSummary& file) {
  std::string out;
  for (const Slice& slice : file.slices) out += (out.empty() ? "" : ",") + slice.arch();
  return out;
}

}  // namespace lab
