#include <algorithm>

#include "shim/bytes.hpp"
#include "shim/macho.hpp"

namespace lumelift {

namespace {

using macho::Bytes;
using macho::damaged;

constexpr std::size_t longest_name = 16384;  // C++ symbols get long; a bound keeps hostile tables linear

constexpr std::uint8_t stab_bits = 0xe0, private_bit = 0x10, type_bits = 0x0e, external_bit = 0x01;
constexpr std::uint8_t undefined = 0x0, defined_in_section = 0xe, defined_absolute = 0x2;

/// External names of the symbol table whose type (without flags) is accepted.
template <typename Accept>
std::vector<std::string_view> external_names(const Bytes& slice, const Slice& about, Accept accept) {
  const Bytes table = slice.part(about.symbols.offset, about.symbols.size, "symbol table");
  const Bytes strings = slice.part(about.strings.offset, about.strings.size, "symbol names");
  std::vector<std::string_view> names;
  for (std::uint64_t i = 0; i < about.symbol_count; ++i) {
    const std::uint8_t flags = table.byte(i * 16 + 4);
    if ((flags & stab_bits) != 0 || (flags & external_bit) == 0 || (flags & private_bit) != 0) {
      continue;
    }
    if (!accept(flags & type_bits)) {
      continue;
    }
    names.push_back(strings.c_string(table.little<std::uint32_t>(i * 16), longest_name));
  }
  return names;
}

/// Names in the import table of LC_DYLD_CHAINED_FIXUPS; nothing where the table is compressed or of a newer format.
std::optional<std::vector<std::string_view>> chained_imports(const Bytes& slice, const SliceRange& range) {
  const Bytes fixups = slice.part(range.offset, range.size, "chained fixups");
  const std::uint64_t table = fixups.little<std::uint32_t>(8), pool = fixups.little<std::uint32_t>(12);
  const std::uint64_t count = fixups.little<std::uint32_t>(16);
  const auto format = fixups.little<std::uint32_t>(20), compression = fixups.little<std::uint32_t>(24);
  if (compression != 0 || format < 1 || format > 3) {
    return std::nullopt;
  }
  static constexpr std::uint64_t sizes[] = {0, 4, 8, 16};
  const std::uint64_t size = sizes[format];
  if (!fixups.holds(table, count * size) || pool > fixups.size()) {
    damaged("the imports run past the chained fixups");
  }
  const Bytes names = fixups.part(pool, fixups.size() - pool, "import names");
  std::vector<std::string_view> out;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t at = table + i * size;
    const std::uint64_t offset =
        format == 3 ? fixups.little<std::uint64_t>(at) >> 32 : std::uint64_t{fixups.little<std::uint32_t>(at) >> 9};
    out.push_back(names.c_string(offset, longest_name));
  }
  return out;
}

}  // namespace

std::optional<std::vector<std::string_view>> imports(std::span<const std::byte> file, const Slice& slice) {
  const Bytes bytes(slice_bytes(file, slice), "slice");
  if (slice.fixups.size != 0) {
    if (auto names = chained_imports(bytes, slice.fixups)) {
      return names;
    }
  }
  if (slice.symbol_count == 0) {
    return std::nullopt;
  }
  return external_names(bytes, slice, [](int type) { return type == undefined; });
}

std::vector<std::string_view> exports(std::span<const std::byte> file, const Slice& slice) {
  if (slice.symbol_count == 0) {
    return {};
  }
  return external_names(Bytes(slice_bytes(file, slice), "slice"), slice,
                        [](int type) { return type == defined_in_section || type == defined_absolute; });
}

}  // namespace lumelift
