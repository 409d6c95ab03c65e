#include "machrun/image.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "machrun/macho_file.hpp"

namespace lab {
namespace {

constexpr uint64_t kHostPage = 4096;

uint64_t page_up(uint64_t value) {
  return (value + kHostPage - 1) & ~(kHostPage - 1);
}

struct FileCloser {
  int fd;
  ~FileCloser() { ::close(fd); }
};

std::string hex_uuid(const uint8_t* bytes) {
  static constexpr char digits[] = "0123456789ABCDEF";
  std::string out;
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) out += '-';
    out += digits[bytes[i] >> 4];
    out += digits[bytes[i] & 15];
  }
  return out;
}

Slice choose_slice(const std::string& path) {
  const FileSummary file = summarize(path);
  switch (file.kind) {
    case FileKind::missing:
      throw LoadError("no such file");
    case FileKind::unreadable:
      throw LoadError("file not readable, errno=13");
    case FileKind::mach_o:
      break;
    default:
      throw LoadError("not a mach-o file");
  }
  if (auto slice = find_slice(file, kArch)) return *slice;
  const std::string what =
      file.slices.size() > 1 ? "fat file, but missing compatible architecture" : "mach-o file, but is an incompatible architecture";
  throw LoadError(what + " (have '" + slice_list(file) + "', need '" + kArch + "')");
}

}  // namespace

uint64_t read_uleb(const uint8_t*& p) {
  uint64_t value = 0;
  for (unsigned shift = 0;; shift += 7) {
    const uint8_t byte = *p++;
    if (shift < 64) value |= uint64_t{byte & 0x7fu} << shift;
    if (!(byte & 0x80)) return value;
  }
}

int64_t read_sleb(const uint8_t*& p) {
  int64_t value = 0;
  for (unsigned shift = 0;;) {
    const uint8_t byte = *p++;
    if (shift < 64) value |= static_cast<int64_t>(uint64_t{byte & 0x7fu} << shift);
    shift += 7;
    if (!(byte & 0x80)) {
      if ((byte & 0x40) && shift < 64) value |= static_cast<int64_t>(~uint64_t{0} << shift);
      return value;
    }
  }
}

Image::Image(const std::string& file) : path(file) {
  const Slice slice = choose_slice(file);
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw LoadError("file not readable, errno=" + std::to_string(errno));
  const FileCloser closer{fd};
  map(fd, slice.offset, slice.size);
  read_commands();
}

void Image::map(int fd, uint64_t slice_offset, uint64_t slice_size) {
  struct stat info {};
  macho::Header head{};
  if (::fstat(fd, &info) != 0 || slice_offset + sizeof head > static_cast<uint64_t>(info.st_size) ||
      slice_offset + slice_size > static_cast<uint64_t>(info.st_size))
    throw LoadError("truncated mach-o file");
  if (::pread(fd, &head, sizeof head, static_cast<off_t>(slice_offset)) != sizeof head || head.magic != macho::kMagic64)
    throw LoadError("not a mach-o file");
  if (head.sizeofcmds > slice_size - sizeof head) throw LoadError("malformed mach-o: load commands extend past the file");
  std::vector<char> commands(head.sizeofcmds);
  if (::pread(fd, commands.data(), commands.size(), static_cast<off_t>(slice_offset + sizeof head)) !=
      static_cast<ssize_t>(commands.size()))
    throw LoadError("truncated mach-o file");

  std::vector<macho::Segment64> wanted;
  uint64_t low = UINT64_MAX, high = 0;
  for (size_t at = 0, i = 0; i < head.ncmds; ++i) {
    macho::LoadCommand lc{};
    if (at + sizeof lc > commands.size()) throw LoadError("malformed mach-o: load command past the end");
    std::memcpy(&lc, &commands[at], sizeof lc);
    if (lc.cmdsize < sizeof lc || lc.cmdsize > commands.size() - at) throw LoadError("malformed mach-o: load command size");
    if (lc.cmd == macho::kSegment64 && lc.cmdsize >= sizeof(macho::Segment64)) {
      macho::Segment64 segment{};
      std::memcpy(&segment, &commands[at], sizeof segment);
      const bool page_zero = segment.maxprot == 0 && segment.filesize == 0;
      if (!page_zero && segment.vmsize) {
        if (segment.filesize > slice_size || segment.fileoff > slice_size - segment.filesize || segment.filesize > page_up(segment.vmsize))
          throw LoadError("malformed mach-o: segment '" + std::string(segment.segname, strnlen(segment.segname, 16)) +
                          "' extends past the file");
        low = std::min(low, segment.vmaddr);
        high = std::max(high, page_up(segment.vmaddr + segment.vmsize));
        wanted.push_back(segment);
      }
    }
    at += lc.cmdsize;
  }
  if (wanted.empty() || high - low > (uint64_t{1} << 32)) throw LoadError("malformed mach-o: no usable segments");

  void* room = ::mmap(nullptr, high - low, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) throw LoadError("cannot reserve memory");
  begin_ = static_cast<char*>(room);
  end_ = begin_ + (high - low);
  slide_ = reinterpret_cast<uint64_t>(begin_) - low;
  preferred_base_ = low;
  for (const auto& segment : wanted) {
    char* target = at(segment.vmaddr);
    const uint64_t offset = slice_offset + segment.fileoff;
    const int prot = PROT_READ | PROT_WRITE;
    // Mapped from the file, so that the memory map of the process names it as the one on a Mac does.
    if (segment.filesize && offset % kHostPage == 0) {
      if (::mmap(target, segment.filesize, prot, MAP_PRIVATE | MAP_FIXED, fd, static_cast<off_t>(offset)) == MAP_FAILED)
        throw LoadError("cannot map segment");
      const uint64_t mapped = page_up(segment.filesize);
      std::memset(target + segment.filesize, 0, std::min(mapped, page_up(segment.vmsize)) - segment.filesize);
      if (segment.vmsize > mapped) ::mmap(target + mapped, segment.vmsize - mapped, prot, MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0);
    } else {
      ::mmap(target, page_up(segment.vmsize), prot, MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0);
      if (::pread(fd, target, segment.filesize, static_cast<off_t>(offset)) != static_cast<ssize_t>(segment.filesize))
        throw LoadError("truncated mach-o file");
    }
    if (segment.fileoff == 0 && segment.filesize) header_ = reinterpret_cast<const macho::Header*>(target);
  }
  if (!header_) throw LoadError("malformed mach-o: no segment holds the header");
}

void Image::read_commands() {
  for (const auto* lc : commands()) {
    const char* text = reinterpret_cast<const char*>(lc);
    switch (lc->cmd) {
      case macho::kLoadDylib:
      case macho::kLoadWeakDylib:
      case macho::kReexportDylib:
      case macho::kUpwardDylib: {
        const auto* dylib = reinterpret_cast<const macho::DylibCommand*>(lc);
        dependencies.push_back({text + dylib->name_offset, lc->cmd == macho::kLoadWeakDylib});
        break;
      }
      case macho::kIdDylib:
        install_name = text + reinterpret_cast<const macho::DylibCommand*>(lc)->name_offset;
        break;
      case macho::kRpath:
        rpaths.emplace_back(text + reinterpret_cast<const macho::RpathCommand*>(lc)->path_offset);
        break;
      case macho::kUuid:
        uuid = hex_uuid(reinterpret_cast<const macho::UuidCommand*>(lc)->uuid);
        break;
      case macho::kEncryptionInfo64:
        if (reinterpret_cast<const macho::EncryptionInfo64*>(lc)->cryptid) throw LoadError("mach-o file is encrypted");
        break;
      default:
        break;
    }
  }
  linked.resize(dependencies.size());
}

std::vector<const macho::LoadCommand*> Image::commands() const {
  std::vector<const macho::LoadCommand*> out;
  const char* p = reinterpret_cast<const char*>(header_ + 1);
  for (uint32_t i = 0; i < header_->ncmds; ++i) {
    const auto* lc = reinterpret_cast<const macho::LoadCommand*>(p);
    out.push_back(lc);
    p += lc->cmdsize;
  }
  return out;
}

const macho::LoadCommand* Image::find_command(uint32_t cmd) const {
  for (const auto* lc : commands())
    if (lc->cmd == cmd) return lc;
  return nullptr;
}

std::vector<const macho::Segment64*> Image::segments() const {
  std::vector<const macho::Segment64*> out;
  for (const auto* lc : commands())
    if (lc->cmd == macho::kSegment64) out.push_back(reinterpret_cast<const macho::Segment64*>(lc));
  return out;
}

bool Image::contains(const void* address) const {
  return address >= begin_ && address < end_;
}

const uint8_t* Image::linkedit(uint32_t file_offset) const {
  for (const auto* segment : segments())
    if (file_offset >= segment->fileoff && file_offset < segment->fileoff + segment->filesize)
      return reinterpret_cast<const uint8_t*>(at(segment->vmaddr + (file_offset - segment->fileoff)));
  throw LoadError("malformed mach-o: link-edit offset outside every segment");
}

void* Image::entry() const {
  const auto* main = command<macho::EntryPoint>(macho::kMain);
  return main ? const_cast<char*>(reinterpret_cast<const char*>(header_)) + main->entryoff : nullptr;
}

std::vector<const macho::Section64*> Image::sections() const {
  std::vector<const macho::Section64*> out;
  for (const auto* segment : segments()) {
    const auto* first = reinterpret_cast<const macho::Section64*>(segment + 1);
    for (uint32_t i = 0; i < segment->nsects; ++i) out.push_back(first + i);
  }
  return out;
}

const macho::Section64* Image::section(std::string_view segment, std::string_view name) const {
  const auto text = [](const char(&field)[16]) { return std::string_view(field, strnlen(field, 16)); };
  for (const auto* one : sections())
    if (text(one->segname) == segment && text(one->sectname) == name) return one;
  return nullptr;
}

std::vector<void*> Image::initialisers() const {
  std::vector<void*> out;
  for (const auto* section : sections()) {
    const uint32_t type = section->flags & macho::kSectionTypeMask;
    if (type == macho::kModInitPointers) {
      auto* pointers = reinterpret_cast<void**>(at(section->addr));
      out.insert(out.end(), pointers, pointers + section->size / sizeof(void*));
    } else if (type == macho::kInitOffsets) {
      const auto* offsets = reinterpret_cast<const uint32_t*>(at(section->addr));
      char* base = const_cast<char*>(reinterpret_cast<const char*>(header_));
      for (size_t i = 0; i < section->size / sizeof(uint32_t); ++i) out.push_back(base + offsets[i]);
    }
  }
  return out;
}

void Image::protect() const {
  for (const auto* segment : segments()) {
    if (segment->maxprot == 0 || !segment->vmsize) continue;
    ::mprotect(at(segment->vmaddr), page_up(segment->vmsize), static_cast<int>(segment->initprot));
    if (segment->initprot & PROT_EXEC) __builtin___clear_cache(at(segment->vmaddr), at(segment->vmaddr + segment->vmsize));
  }
}

}  // namespace lab
