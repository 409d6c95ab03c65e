#include "shim/macho.hpp"

#include <algorithm>
#include <utility>

#include "shim/bytes.hpp"

namespace lumelift {

namespace {

using macho::Bytes;
using macho::damaged;

constexpr std::uint32_t fat_magic = 0xcafebabe, fat_magic_64 = 0xcafebabf;
constexpr std::uint32_t thin_magic = 0xfeedfacf, thin_magic_32 = 0xfeedface;
constexpr std::uint32_t reversed_magic = 0xcffaedfe, reversed_magic_32 = 0xcefaedfe;
// A Java class begins like a universal file; its version number, 45 or more, stands where the slices are counted.
constexpr std::uint32_t max_slices = 44;

enum Command : std::uint32_t {
  must_understand = 0x80000000,
  symtab = 0x2,
  load_dylib = 0xc,
  id_dylib = 0xd,
  segment_64 = 0x19,
  uuid = 0x1b,
  code_signature = 0x1d,
  lazy_load_dylib = 0x20,
  encryption_info = 0x21,
  version_min_macos = 0x24,
  version_min_ios = 0x25,
  version_min_tvos = 0x2f,
  version_min_watchos = 0x30,
  encryption_info_64 = 0x2c,
  build_version = 0x32,
  load_weak_dylib = 0x18 | must_understand,
  rpath = 0x1c | must_understand,
  reexport_dylib = 0x1f | must_understand,
  load_upward_dylib = 0x23 | must_understand,
  entry_main = 0x28 | must_understand,
  chained_fixups = 0x34 | must_understand,
};

Cpu cpu_of(std::uint32_t type, std::uint32_t subtype) {
  const std::uint32_t kind = subtype & 0x00ffffff;  // the top byte holds capability bits, as of pointer authentication
  switch (type) {
    case 0x0100000c:
      return kind == 2 ? Cpu::arm64e : Cpu::arm64;
    case 0x0200000c:
      return Cpu::arm64_32;
    case 0x01000007:
      return kind == 8 ? Cpu::x86_64h : Cpu::x86_64;
    case 0x00000007:
      return Cpu::i386;
    case 0x00000012:
    case 0x01000012:
      return Cpu::powerpc;
    default:
      return Cpu::other;
  }
}

FileType file_type(std::uint32_t type) {
  switch (type) {
    case 1:
      return FileType::object;
    case 2:
      return FileType::program;
    case 6:
      return FileType::library;
    case 8:
      return FileType::bundle;
    default:
      return FileType::other;
  }
}

Platform platform_of(std::uint32_t number) {
  switch (number) {
    case 1:
      return Platform::macos;
    case 2:
      return Platform::ios;
    case 3:
      return Platform::tvos;
    case 4:
      return Platform::watchos;
    case 6:
      return Platform::catalyst;
    case 7:
    case 8:
    case 9:
    case 12:
      return Platform::simulator;
    case 10:
      return Platform::driverkit;
    default:
      return Platform::other;
  }
}

Version version_of(std::uint32_t packed) {
  return {packed >> 16, packed >> 8 & 0xff, packed & 0xff};
}

/// Reads the load commands of one slice into values.
class SliceReader {
 public:
  SliceReader(Slice& slice, Bytes bytes) : slice_(slice), bytes_(bytes) {}

  void read() {
    const std::uint64_t count = bytes_.little<std::uint32_t>(16);
    const Bytes commands = bytes_.part(header_size, bytes_.little<std::uint32_t>(20), "load commands");
    std::uint64_t at = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto size = commands.little<std::uint32_t>(at + 4);
      if (size < 8 || size % 4 != 0) {
        damaged("load command " + std::to_string(i) + " has an impossible size");
      }
      command(commands.little<std::uint32_t>(at), commands.part(at, size, "load command"));
      at += size;
    }
    if (signature_) {
      slice_.signature = parse_signature(bytes_.span(), signature_->offset, signature_->size);
    }
  }

 private:
  static constexpr std::uint64_t header_size = 32;

  void command(std::uint32_t kind, const Bytes& body) {
    switch (kind) {
      case segment_64:
        return segment(body);
      case load_dylib:
      case load_weak_dylib:
      case reexport_dylib:
      case load_upward_dylib:
      case lazy_load_dylib:
        return library(kind, body);
      case id_dylib:
        slice_.install_name = string_at(body, 8);
        return;
      case rpath:
        slice_.rpaths.push_back(string_at(body, 8));
        return;
      case uuid: {
        const auto bytes = body.part(8, 16, "UUID").span();
        std::copy(bytes.begin(), bytes.end(), slice_.uuid.emplace().begin());
        return;
      }
      case entry_main:
        slice_.entry_offset = body.little<std::uint64_t>(8);
        return;
      case encryption_info:
      case encryption_info_64:
        slice_.encrypted |= body.little<std::uint32_t>(16) != 0;
        return;
      case build_version:
        return build(platform_of(body.little<std::uint32_t>(8)), body.little<std::uint32_t>(12));
      case version_min_macos:
        return build(Platform::macos, body.little<std::uint32_t>(8));
      case version_min_ios:
        return build(Platform::ios, body.little<std::uint32_t>(8));
      case version_min_tvos:
        return build(Platform::tvos, body.little<std::uint32_t>(8));
      case version_min_watchos:
        return build(Platform::watchos, body.little<std::uint32_t>(8));
      case code_signature:
        signature_ = range_at(body, 8, "code signature");
        return;
      case chained_fixups:
        slice_.fixups = range_at(body, 8, "chained fixups");
        return;
      case symtab:
        return symbol_table(body);
      default:
        return;
    }
  }

  void segment(const Bytes& body) {
    const auto name = body.padded(8, 16);
    const auto offset = body.little<std::uint64_t>(40), size = body.little<std::uint64_t>(48);
    if (!bytes_.holds(offset, size)) {
      damaged("the segment " + std::string(name) + " needs bytes " + std::to_string(offset) + " and " + std::to_string(size) +
              " more, but the slice has only " + std::to_string(bytes_.size()));
    }
    const std::uint64_t sections = body.little<std::uint32_t>(64);
    for (std::uint64_t i = 0; i < sections; ++i) {
      const Bytes section = body.part(72 + i * 80, 80, "section");
      if (section.padded(0, 16) == "__restrict" && section.padded(16, 16) == "__RESTRICT") {
        slice_.restrict_section = true;
      }
    }
  }

  void library(std::uint32_t kind, const Bytes& body) {
    LinkedLibrary linked{string_at(body, 8), kind == load_weak_dylib};
    // The newer form of the command marks itself by this time stamp and carries flags behind the version numbers.
    if (body.little<std::uint32_t>(12) == 0x1a741800 && body.size() >= 28) {
      linked.weak |= (body.little<std::uint32_t>(24) & 1) != 0;
    }
    slice_.libraries.push_back(std::move(linked));
  }

  void build(Platform platform, std::uint32_t minimum) {
    // A library for Catalyst names both platforms; macOS is the one that counts here.
    if (slice_.platform == Platform::macos) {
      return;
    }
    slice_.platform = platform;
    slice_.minimum_os = version_of(minimum);
  }

  void symbol_table(const Bytes& body) {
    slice_.symbol_count = body.little<std::uint32_t>(12);
    slice_.symbols = {body.little<std::uint32_t>(8), std::uint64_t{slice_.symbol_count} * 16};
    slice_.strings = {body.little<std::uint32_t>(16), body.little<std::uint32_t>(20)};
    if (!bytes_.holds(slice_.symbols.offset, slice_.symbols.size) || !bytes_.holds(slice_.strings.offset, slice_.strings.size)) {
      damaged("the symbol table runs past the end of the slice");
    }
  }

  static std::string string_at(const Bytes& body, std::uint64_t field) {
    return std::string(body.c_string(body.little<std::uint32_t>(field)));
  }
  SliceRange range_at(const Bytes& body, std::uint64_t field, std::string_view what) const {
    const SliceRange range{body.little<std::uint32_t>(field), body.little<std::uint32_t>(field + 4)};
    (void)bytes_.part(range.offset, range.size, what);
    return range;
  }

  Slice& slice_;
  Bytes bytes_;
  std::optional<SliceRange> signature_;
};

Slice read_slice(const Bytes& file, SliceRange range) {
  Slice slice;
  slice.range = range;
  const Bytes bytes = file.part(range.offset, range.size, "slice");
  const auto magic = bytes.little<std::uint32_t>(0);
  const bool big = magic == reversed_magic || magic == reversed_magic_32;
  if (!big && magic != thin_magic && magic != thin_magic_32) {
    damaged("the slice at byte " + std::to_string(range.offset) + " does not begin with a Mach-O magic number");
  }
  const auto field = [&](std::uint64_t offset) { return big ? bytes.big<std::uint32_t>(offset) : bytes.little<std::uint32_t>(offset); };
  slice.cpu_type = field(4);
  slice.cpu_subtype = field(8);
  slice.cpu = cpu_of(slice.cpu_type, slice.cpu_subtype);
  slice.type = file_type(field(12));
  if (magic == thin_magic) {
    SliceReader(slice, bytes).read();
  }
  return slice;
}

}  // namespace

bool looks_like_macho(std::span<const std::byte> start) {
  if (start.size() < 8) {
    return false;
  }
  const Bytes bytes(start, "file");
  const auto magic = bytes.little<std::uint32_t>(0);
  const auto reversed = bytes.big<std::uint32_t>(0);
  if (reversed == fat_magic || reversed == fat_magic_64) {
    return bytes.big<std::uint32_t>(4) <= max_slices;
  }
  return magic == thin_magic || magic == thin_magic_32 || magic == reversed_magic || magic == reversed_magic_32;
}

MachO MachO::parse(std::span<const std::byte> data) {
  if (!looks_like_macho(data)) {
    throw Error(ErrorKind::usage, "macho-not", data.empty() ? "the file is empty" : "the file is not a Mach-O file");
  }
  const Bytes file(data, "file");
  MachO out;
  const auto magic = file.big<std::uint32_t>(0);
  if (magic != fat_magic && magic != fat_magic_64) {
    out.slices.push_back(read_slice(file, {0, file.size()}));
    return out;
  }
  out.universal = true;
  const bool wide = magic == fat_magic_64;
  const std::uint64_t entry = wide ? 32 : 20;
  const std::uint64_t count = file.big<std::uint32_t>(4);
  if (count == 0) {
    damaged("the universal file has no slices");
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    const Bytes header = file.part(8 + i * entry, entry, "universal header");
    const SliceRange range = wide ? SliceRange{header.big<std::uint64_t>(8), header.big<std::uint64_t>(16)}
                                  : SliceRange{header.big<std::uint32_t>(8), header.big<std::uint32_t>(12)};
    Slice slice = read_slice(file, range);
    const Cpu promised = cpu_of(header.big<std::uint32_t>(0), header.big<std::uint32_t>(4));
    if (promised != slice.cpu) {
      damaged("the universal header says " + std::string(shown(promised)) + " where the slice is " + std::string(shown(slice.cpu)) +
              ": it was relabelled");
    }
    if (out.find(slice.cpu) && slice.cpu != Cpu::other) {
      damaged("the universal file has two slices for " + std::string(shown(slice.cpu)));
    }
    out.slices.push_back(std::move(slice));
  }
  return out;
}

const Slice* MachO::find(Cpu cpu) const {
  const auto found = std::find_if(slices.begin(), slices.end(), [&](const Slice& slice) { return slice.cpu == cpu; });
  return found == slices.end() ? nullptr : &*found;
}

std::span<const std::byte> slice_bytes(std::span<const std::byte> file, const Slice& slice) {
  return Bytes(file, "file").part(slice.range.offset, slice.range.size, "slice").span();
}

std::string_view shown(Cpu cpu) {
  static constexpr std::string_view names[] = {"arm64", "arm64e", "x86_64", "x86_64h", "i386", "arm64_32", "powerpc", "unknown"};
  return names[static_cast<std::size_t>(cpu)];
}

std::string_view shown(Platform platform) {
  static constexpr std::string_view names[] = {"unknown",      "macOS",     "iOS",       "tvOS", "watchOS",
                                               "Mac Catalyst", "simulator", "DriverKit", "other"};
  return names[static_cast<std::size_t>(platform)];
}

std::string shown(const Version& version) {
  std::string out = std::to_string(version.major) + "." + std::to_string(version.minor);
  if (version.patch != 0) {
    out += "." + std::to_string(version.patch);
  }
  return out;
}

}  // namespace lumelift
