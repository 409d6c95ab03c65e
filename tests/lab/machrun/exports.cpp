// The export trie: a prefix tree whose edges are pieces of symbol names.
#include <cstring>
#include <functional>

#include "machrun/image.hpp"

namespace lab {
namespace {

constexpr uint64_t kKindMask = 3, kKindAbsolute = 2, kReexport = 8;

struct Trie {
  const uint8_t* data = nullptr;
  size_t size = 0;
};

Trie find_trie(const Image& image) {
  if (const auto* trie = image.command<macho::LinkeditData>(macho::kExportsTrie); trie && trie->datasize)
    return {image.linkedit(trie->dataoff), trie->datasize};
  for (uint32_t cmd : {macho::kDyldInfoOnly, macho::kDyldInfo})
    if (const auto* info = image.command<macho::DyldInfo>(cmd); info && info->export_size)
      return {image.linkedit(info->export_off), info->export_size};
  return {};
}

struct Terminal {
  uint64_t flags = 0;
  uint64_t offset = 0;
};

Terminal read_terminal(const uint8_t* p) {
  Terminal out;
  out.flags = read_uleb(p);
  out.offset = read_uleb(p);
  return out;
}

void walk(const Trie& trie, size_t node, const std::string& prefix, int depth,
          const std::function<void(const std::string&, Terminal)>& visit) {
  if (node >= trie.size || depth > 256) return;
  const uint8_t* p = trie.data + node;
  const uint64_t terminal_size = read_uleb(p);
  if (terminal_size) visit(prefix, read_terminal(p));
  p += terminal_size;
  for (unsigned children = *p++; children; --children) {
    const std::string edge = reinterpret_cast<const char*>(p);
    p += edge.size() + 1;
    walk(trie, read_uleb(p), prefix + edge, depth + 1, visit);
  }
}

}  // namespace

void* Image::find_export(std::string_view symbol) const {
  const Trie trie = find_trie(*this);
  size_t node = 0;
  std::string_view rest = symbol;
  while (trie.data && node < trie.size) {
    const uint8_t* p = trie.data + node;
    const uint64_t terminal_size = read_uleb(p);
    if (rest.empty()) {
      if (!terminal_size) return nullptr;
      const Terminal found = read_terminal(p);
      if (found.flags & kReexport) return nullptr;
      if ((found.flags & kKindMask) == kKindAbsolute) return reinterpret_cast<void*>(found.offset);
      return const_cast<char*>(reinterpret_cast<const char*>(header_)) + found.offset;
    }
    p += terminal_size;
    size_t next = trie.size;
    for (unsigned children = *p++; children; --children) {
      const std::string_view edge = reinterpret_cast<const char*>(p);
      p += edge.size() + 1;
      const uint64_t child = read_uleb(p);
      if (rest.substr(0, edge.size()) == edge) {
        rest.remove_prefix(edge.size());
        next = child;
        break;
      }
    }
    node = next;
  }
  return nullptr;
}

std::string Image::nearest_export(const void* address, void** start) const {
  const auto wanted = static_cast<uint64_t>(static_cast<const char*>(address) - reinterpret_cast<const char*>(header_));
  std::string best;
  uint64_t best_offset = 0;
  walk(find_trie(*this), 0, "", 0, [&](const std::string& name, Terminal found) {
    if (found.flags & kReexport || found.offset > wanted || (!best.empty() && found.offset < best_offset)) return;
    best = name;
    best_offset = found.offset;
  });
  if (start && !best.empty()) *start = const_cast<char*>(reinterpret_cast<const char*>(header_)) + best_offset;
  return best;
}

}  // namespace lab
