#include "machrun/fixups.hpp"

#include <cstring>

namespace lab {
namespace {

struct Import {
  int ordinal = 0;
  bool weak = false;
  const char* name = nullptr;
  int64_t addend = 0;
};

int sign_ordinal8(uint32_t raw) {
  return raw > 0xf0 ? static_cast<int8_t>(raw) : static_cast<int>(raw);
}
int sign_ordinal16(uint32_t raw) {
  return raw > 0xfff0 ? static_cast<int16_t>(raw) : static_cast<int>(raw);
}

template <typename T>
T load(const uint8_t* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

Import read_import(const macho::ChainedHeader& head, const uint8_t* blob, uint32_t index) {
  const uint8_t* table = blob + head.imports_offset;
  const char* names = reinterpret_cast<const char*>(blob + head.symbols_offset);
  switch (head.imports_format) {
    case 1: {
      const auto raw = load<uint32_t>(table + index * 4);
      return {sign_ordinal8(raw & 0xff), (raw >> 8 & 1) != 0, names + (raw >> 9), 0};
    }
    case 2: {
      const auto raw = load<uint32_t>(table + index * 8);
      return {sign_ordinal8(raw & 0xff), (raw >> 8 & 1) != 0, names + (raw >> 9), load<int32_t>(table + index * 8 + 4)};
    }
    case 3: {
      const auto raw = load<uint64_t>(table + index * 16);
      return {sign_ordinal16(raw & 0xffff), (raw >> 16 & 1) != 0, names + (raw >> 32), load<int64_t>(table + index * 16 + 8)};
    }
    default:
      throw LoadError("unknown chained import format " + std::to_string(head.imports_format));
  }
}

class ChainWalker {
 public:
  ChainWalker(const Image& image, std::vector<char*> targets) : image_(image), targets_(std::move(targets)) {}

  void segment(const macho::ChainedStarts& starts) const {
    if (starts.pointer_format != macho::kPointer64 && starts.pointer_format != macho::kPointer64Offset)
      throw LoadError("chained pointer format " + std::to_string(starts.pointer_format) + " is not one of arm64 or x86_64");
    char* base = image_.at(image_.preferred_base() + starts.segment_offset);
    for (uint16_t page = 0; page < starts.page_count; ++page)
      if (starts.page_start[page] != macho::kPageStartNone)
        chain(base + size_t{page} * starts.page_size + starts.page_start[page], starts.pointer_format);
  }

 private:
  void chain(char* location, uint16_t format) const {
    for (;;) {
      uint64_t raw;
      std::memcpy(&raw, location, sizeof raw);
      const uint64_t next = raw >> 51 & 0xfff;
      uint64_t value;
      if (raw >> 63) {
        const uint64_t ordinal = raw & 0xffffff;
        if (ordinal >= targets_.size()) throw LoadError("chained bind to import " + std::to_string(ordinal) + " of none");
        value = reinterpret_cast<uint64_t>(targets_[ordinal]) + (raw >> 24 & 0xff);
      } else {
        const uint64_t target = raw & 0xfffffffffULL, high = (raw >> 36 & 0xff) << 56;
        const uint64_t address = format == macho::kPointer64Offset ? image_.preferred_base() + target : target;
        value = reinterpret_cast<uint64_t>(image_.at(address)) | high;
      }
      std::memcpy(location, &value, sizeof value);
      if (!next) return;
      location += next * 4;
    }
  }

  const Image& image_;
  std::vector<char*> targets_;
};

void apply_chained(const Image& image, const uint8_t* blob, const Binder& bind) {
  const auto head = load<macho::ChainedHeader>(blob);
  if (head.version != 0 || head.symbols_format != 0) throw LoadError("unknown chained fixups version");
  std::vector<char*> targets;
  for (uint32_t i = 0; i < head.imports_count; ++i) {
    const Import import = read_import(head, blob, i);
    auto* found = static_cast<char*>(bind(import.ordinal, import.name, import.weak ? Need::weak : Need::strong));
    targets.push_back(found ? found + import.addend : nullptr);
  }
  const ChainWalker walker(image, std::move(targets));
  const uint8_t* starts = blob + head.starts_offset;
  const auto segments = load<uint32_t>(starts);
  for (uint32_t i = 0; i < segments; ++i)
    if (const auto offset = load<uint32_t>(starts + 4 + i * 4))
      walker.segment(*reinterpret_cast<const macho::ChainedStarts*>(starts + offset));
}

/// The opcode machine of LC_DYLD_INFO: rebase and bind streams share its addressing.
class OpcodeRunner {
 public:
  OpcodeRunner(const Image& image, const Binder& bind) : image_(image), bind_(bind), segments_(image.segments()) {}

  void rebase(const uint8_t* p, size_t size) {
    const uint8_t* end = p + size;
    char* at = nullptr;
    const auto repeat = [&](uint64_t count, uint64_t skip) {
      for (; count; --count, at += 8 + skip) {
        uint64_t value;
        std::memcpy(&value, at, sizeof value);
        value = reinterpret_cast<uint64_t>(image_.at(value));
        std::memcpy(at, &value, sizeof value);
      }
    };
    while (p < end) {
      const uint8_t op = *p & 0xf0, imm = *p & 0x0f;
      ++p;
      switch (op) {
        case 0x00:
          return;
        case 0x10:
          break;
        case 0x20:
          at = segment(imm) + read_uleb(p);
          break;
        case 0x30:
          at += read_uleb(p);
          break;
        case 0x40:
          at += imm * 8;
          break;
        case 0x50:
          repeat(imm, 0);
          break;
        case 0x60:
          repeat(read_uleb(p), 0);
          break;
        case 0x70:
          repeat(1, read_uleb(p));
          break;
        case 0x80: {
          const uint64_t count = read_uleb(p);
          repeat(count, read_uleb(p));
          break;
        }
        default:
          throw LoadError("bad rebase opcode");
      }
    }
  }

  /// `lazy` streams hold one DONE per symbol, so DONE does not end them.
  void bind(const uint8_t* p, size_t size, bool lazy) {
    const uint8_t* end = p + size;
    char* at = nullptr;
    Import import;
    const auto store = [&](uint64_t skip) {
      auto* found = static_cast<char*>(bind_(import.ordinal, import.name, import.weak ? Need::weak : lazy ? Need::lazy : Need::strong));
      char* value = found ? found + import.addend : nullptr;
      std::memcpy(at, &value, sizeof value);
      at += 8 + skip;
    };
    while (p < end) {
      const uint8_t op = *p & 0xf0, imm = *p & 0x0f;
      ++p;
      switch (op) {
        case 0x00:
          if (!lazy) return;
          break;
        case 0x10:
          import.ordinal = imm;
          break;
        case 0x20:
          import.ordinal = static_cast<int>(read_uleb(p));
          break;
        case 0x30:
          import.ordinal = imm ? static_cast<int8_t>(0xf0 | imm) : 0;
          break;
        case 0x40:
          import.name = reinterpret_cast<const char*>(p);
          import.weak = imm & 1;
          p += std::strlen(import.name) + 1;
          break;
        case 0x50:
          break;
        case 0x60:
          import.addend = read_sleb(p);
          break;
        case 0x70:
          at = segment(imm) + read_uleb(p);
          break;
        case 0x80:
          at += read_uleb(p);
          break;
        case 0x90:
          store(0);
          break;
        case 0xa0:
          store(read_uleb(p));
          break;
        case 0xb0:
          store(imm * 8u);
          break;
        case 0xc0: {
          uint64_t count = read_uleb(p);
          const uint64_t skip = read_uleb(p);
          for (; count; --count) store(skip);
          break;
        }
        default:
          throw LoadError("bad bind opcode " + std::to_string(op));
      }
    }
  }

 private:
  char* segment(unsigned index) const {
    if (index >= segments_.size()) throw LoadError("bind opcode names a segment that is not there");
    return image_.at(segments_[index]->vmaddr);
  }

  const Image& image_;
  const Binder& bind_;
  std::vector<const macho::Segment64*> segments_;
};

}  // namespace

void apply_fixups(const Image& image, const Binder& bind) {
  if (const auto* chained = image.command<macho::LinkeditData>(macho::kChainedFixups)) {
    apply_chained(image, image.linkedit(chained->dataoff), bind);
    return;
  }
  const auto* info = image.command<macho::DyldInfo>(macho::kDyldInfoOnly);
  if (!info) info = image.command<macho::DyldInfo>(macho::kDyldInfo);
  if (!info) return;
  OpcodeRunner run(image, bind);
  if (info->rebase_size) run.rebase(image.linkedit(info->rebase_off), info->rebase_size);
  if (info->bind_size) run.bind(image.linkedit(info->bind_off), info->bind_size, false);
  if (info->lazy_bind_size) run.bind(image.linkedit(info->lazy_bind_off), info->lazy_bind_size, true);
}

}  // namespace lab
