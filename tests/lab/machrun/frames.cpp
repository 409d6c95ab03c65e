// Exceptions of loaded C++ code: macOS's unwinder is asked for by name and stood in for by GCC's, which knows DWARF
// alone.
#include "machrun/frames.hpp"

#include <unwind.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "machrun/symbol_tables.hpp"

extern "C" void __register_frame(void* begin);  // libgcc: a list of DWARF entries that ends with a zero length

namespace lab {
namespace {

#if defined(__aarch64__)

/// DWARF entries, being written.
class Entries {
 public:
  void byte(uint64_t value) { bytes_.push_back(static_cast<uint8_t>(value)); }
  void word(uint32_t value) { append(&value, sizeof value); }
  void address(const void* value) { append(&value, sizeof value); }
  void number(uint64_t value) { append(&value, sizeof value); }
  void append(const void* from, size_t size) {
    const auto* p = static_cast<const uint8_t*>(from);
    bytes_.insert(bytes_.end(), p, p + size);
  }
  size_t size() const { return bytes_.size(); }
  /// Pads to 8 bytes with operations that do nothing, and writes the entry's length in front.
  void close(size_t start) {
    while (bytes_.size() % 8 != 0) byte(0);
    const auto length = static_cast<uint32_t>(bytes_.size() - start - 4);
    std::memcpy(&bytes_[start], &length, sizeof length);
  }
  /// Hands them over for the life of the process.
  void publish() {
    word(0);
    auto* kept = new std::vector<uint8_t>(std::move(bytes_));
    ::__register_frame(kept->data());
  }

 private:
  std::vector<uint8_t> bytes_;
};

struct UnwindHeader {
  uint32_t version, common_offset, common_count, personality_offset, personality_count, index_offset, index_count;
};
struct UnwindIndex {
  uint32_t function, page, handlers;
};
struct Handler {
  uint32_t function, table;
};

constexpr uint32_t kModeMask = 0x0f000000, kModeFrame = 0x04000000, kHasHandlers = 0x40000000;

/// Reads __unwind_info: which function starts where, and how it is left. Offsets count from the image's header.
class CompactTable {
 public:
  CompactTable(const Image& image, const macho::Section64& section)
      : base_(reinterpret_cast<const char*>(image.header())), table_(image.at(section.addr)), head_(read<UnwindHeader>(0)) {}

  void convert(Entries& out) {
    for (uint32_t i = 0; i + 1 < head_.index_count; ++i) {
      const auto index = this->index(i), next = this->index(i + 1);
      for (uint32_t at = index.handlers; at < next.handlers; at += sizeof(Handler)) {
        const auto handler = read<Handler>(at);
        handlers_[handler.function] = handler.table;
      }
      if (index.page != 0) page(index, next.function);
    }
    for (size_t i = 0; i + 1 < functions_.size(); ++i) function(functions_[i], functions_[i + 1].start, out);
  }

 private:
  struct Function {
    uint32_t start, encoding;
  };

  template <typename T>
  T read(uint32_t offset) const {
    T value;
    std::memcpy(&value, table_ + offset, sizeof value);
    return value;
  }
  UnwindIndex index(uint32_t number) const { return read<UnwindIndex>(head_.index_offset + number * sizeof(UnwindIndex)); }

  void page(const UnwindIndex& index, uint32_t end) {
    const uint32_t at = index.page;
    const auto kind = read<uint32_t>(at);
    const uint32_t entries = at + read<uint16_t>(at + 4), count = read<uint16_t>(at + 6);
    for (uint32_t i = 0; i < count; ++i) {
      if (kind == 2) {
        functions_.push_back(read<Function>(entries + i * 8));
        continue;
      }
      const auto packed = read<uint32_t>(entries + i * 4);
      const uint32_t number = packed >> 24;
      const uint32_t encodings = at + read<uint16_t>(at + 8);
      const uint32_t encoding = number < head_.common_count ? read<uint32_t>(head_.common_offset + number * 4)
                                                            : read<uint32_t>(encodings + (number - head_.common_count) * 4);
      functions_.push_back({index.function + (packed & 0xffffff), encoding});
    }
    functions_.push_back({end, 0});  // closes the page's last function; the next page begins there
  }

  /// A description shared by functions with the same personality: registers by the frame pointer, return address in
  /// x30.
  uint32_t common(uint32_t personality, Entries& out) {
    if (const auto known = commons_.find(personality); known != commons_.end()) return known->second;
    const size_t start = out.size();
    out.word(0);
    out.word(0);
    out.byte(1);
    const char* augmentation = personality ? "zPLR" : "zR";
    out.append(augmentation, std::strlen(augmentation) + 1);
    out.byte(1);     // code alignment
    out.byte(0x78);  // data alignment -8
    out.byte(30);
    out.byte(personality ? 11 : 1);
    if (personality) {
      const auto slot = read<uint32_t>(head_.personality_offset + (personality - 1) * 4);
      const void* function = nullptr;
      std::memcpy(&function, base_ + slot, sizeof function);
      out.byte(0);  // plain addresses, here and for both others
      out.address(function);
      out.byte(0);
    }
    out.byte(0);
    out.close(start);
    return commons_[personality] = static_cast<uint32_t>(start);
  }

  void function(const Function& one, uint32_t end, Entries& out) {
    // Functions without a frame of their own call nobody; those of the third kind are described by __eh_frame.
    if ((one.encoding & kModeMask) != kModeFrame || end <= one.start) return;
    const uint32_t personality = one.encoding >> 28 & 3;
    const uint32_t shared = common(personality, out);
    const size_t start = out.size();
    out.word(0);
    out.word(static_cast<uint32_t>(out.size()) - shared);
    out.address(base_ + one.start);
    out.number(end - one.start);
    out.byte(personality ? 8 : 0);
    if (personality) out.address(one.encoding & kHasHandlers ? base_ + handlers_[one.start] : nullptr);
    // x29 and x30 at the frame pointer; below them pairs in fixed order, each bit telling whether one is there.
    for (const uint8_t byte : {0x0c, 29, 16, 0x80 | 29, 2, 0x80 | 30, 1}) out.byte(byte);
    uint8_t place = 3;
    for (uint32_t pair = 0; pair < 5; ++pair)
      if (one.encoding & 1u << pair)
        for (uint8_t i = 0; i < 2; ++i) out.byte(0x80 | (19 + pair * 2 + i)), out.byte(place++);
    for (uint32_t pair = 0; pair < 4; ++pair)
      if (one.encoding & 0x100u << pair)
        for (uint8_t i = 0; i < 2; ++i) out.byte(0x05), out.byte(72 + pair * 2 + i), out.byte(place++);
    out.close(start);
  }

  const char* base_;
  const char* table_;
  UnwindHeader head_;
  std::vector<Function> functions_;
  std::map<uint32_t, uint32_t> handlers_, commons_;
};

/// Reads __eh_frame: the functions that the compact form cannot describe. Written anew with plain addresses, since the originals count from
/// where they stand.
class DwarfTable {
 public:
  DwarfTable(const Image& image, const macho::Section64& section) : begin_(image.at(section.addr)), end_(begin_ + section.size) {}

  void convert(Entries& out) {
    for (const char* at = begin_; at + 8 <= end_;) {
      const auto length = take<uint32_t>(at);
      if (length == 0) return;
      const char *record = at, *end = at + length;
      const auto back = take<uint32_t>(at);
      if (back != 0) function(record - back + 4, at, end, out);
      at = end;
    }
  }

 private:
  struct Common {
    uint32_t place;
    uint8_t addresses, handlers;  ///< how they are encoded in the original
    bool personality;
  };

  template <typename T>
  static T take(const char*& at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    at += sizeof value;
    return value;
  }
  static uint64_t take_number(const char*& at) {
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      const auto byte = take<uint8_t>(at);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return value;
    }
  }
  /// An address as `encoding` says: its size, whether it counts from its own place, and whether it is that of a pointer.
  static const char* take_address(const char*& at, uint8_t encoding) {
    const char* from = (encoding & 0x70) == 0x10 ? at : nullptr;
    const bool narrow = (encoding & 7) == 3;
    const int64_t distance = narrow ? take<int32_t>(at) : take<int64_t>(at);
    if (distance == 0) return nullptr;
    const char* address = from + distance;
    return encoding & 0x80 ? take<const char*>(address) : address;
  }

  /// What functions share; `record` stands behind its length.
  const Common& common(const char* record, Entries& out) {
    if (const auto known = commons_.find(record); known != commons_.end()) return known->second;
    const char *length = record - 4, *at = record + 5;
    const char* end = record + take<uint32_t>(length);
    const std::string augmentation = at;
    at += augmentation.size() + 1;
    const char* alignments = at;
    take_number(at);
    take_number(at);
    const std::string kept(alignments, static_cast<size_t>(++at - alignments));  // and the register of the return address
    Common one{static_cast<uint32_t>(out.size()), 0, 0, false};
    const char* personality = nullptr;
    if (augmentation.starts_with("z")) {
      const uint64_t size = take_number(at);
      const char* behind = at + size;
      for (const char kind : augmentation.substr(1)) {
        if (kind == 'R') one.addresses = take<uint8_t>(at);
        if (kind == 'L') one.handlers = take<uint8_t>(at);
        if (kind == 'P') {
          const auto encoding = take<uint8_t>(at);
          personality = take_address(at, encoding);
        }
      }
      at = behind;
    }
    one.personality = personality != nullptr;
    out.word(0);
    out.word(0);
    out.byte(1);
    const char* text = personality ? "zPLR" : "zR";
    out.append(text, std::strlen(text) + 1);
    out.append(kept.data(), kept.size());
    out.byte(personality ? 11 : 1);
    if (personality) {
      out.byte(0);
      out.address(personality);
      out.byte(0);
    }
    out.byte(0);
    out.append(at, static_cast<size_t>(end - at));
    out.close(one.place);
    return commons_[record] = one;
  }

  void function(const char* shared, const char* at, const char* end, Entries& out) {
    const Common& one = common(shared, out);
    const char* start = take_address(at, one.addresses);
    const uint64_t size = (one.addresses & 7) == 3 ? take<uint32_t>(at) : take<uint64_t>(at);
    const uint64_t more = take_number(at);
    const char *behind = at + more, *table = more > 0 ? take_address(at, one.handlers) : nullptr;
    const size_t place = out.size();
    out.word(0);
    out.word(static_cast<uint32_t>(out.size()) - one.place);
    out.address(start);
    out.number(size);
    out.byte(one.personality ? 8 : 0);
    if (one.personality) out.address(table);
    out.append(behind, static_cast<size_t>(end - behind));
    out.close(place);
  }

  const char *begin_, *end_;
  std::map<const char*, Common> commons_;
};

#endif

}  // namespace

#if defined(__aarch64__)

// One list for both kinds: GCC's unwinder takes the address ranges of two lists for apart from each other.
void register_frames(const Image& image) {
  Entries out;
  if (const auto* section = image.section("__TEXT", "__eh_frame")) DwarfTable(image, *section).convert(out);
  if (const auto* section = image.section("__TEXT", "__unwind_info")) CompactTable(image, *section).convert(out);
  if (out.size() > 0) out.publish();
}

#else

void register_frames(const Image& image) {
  const auto* section = image.section("__TEXT", "__eh_frame");
  if (!section) return;
  char* begin = image.at(section->addr);
  uint32_t behind = 1;
  std::memcpy(&behind, begin + section->size, sizeof behind);
  if (behind == 0) ::__register_frame(begin);  // else its end cannot be told; nothing but exceptions is lost
}

#endif

SymbolTable frame_symbols() {
  static const SystemSymbol table[] = {
      {"__Unwind_RaiseException", as_address(_Unwind_RaiseException)},
      {"__Unwind_Resume", as_address(_Unwind_Resume)},
      {"__Unwind_Resume_or_Rethrow", as_address(_Unwind_Resume_or_Rethrow)},
      {"__Unwind_DeleteException", as_address(_Unwind_DeleteException)},
      {"__Unwind_GetIP", as_address(_Unwind_GetIP)},
      {"__Unwind_SetIP", as_address(_Unwind_SetIP)},
      {"__Unwind_SetGR", as_address(_Unwind_SetGR)},
      {"__Unwind_GetGR", as_address(_Unwind_GetGR)},
      {"__Unwind_GetCFA", as_address(_Unwind_GetCFA)},
      {"__Unwind_GetRegionStart", as_address(_Unwind_GetRegionStart)},
      {"__Unwind_GetLanguageSpecificData", as_address(_Unwind_GetLanguageSpecificData)},
      {"__Unwind_Backtrace", as_address(_Unwind_Backtrace)},
  };
  return table;
}

}  // namespace lab
