// Thread-local variables: loaded code calls the function that its variable's descriptor names, and gets this thread's
// address.
#include "machrun/thread_variables.hpp"

#include <pthread.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "machrun/symbol_tables.hpp"

extern "C" {
void lab_tlv_bootstrap();  // thread_variables.S: keeps every register but the result's
int __cxa_thread_atexit_impl(void (*function)(void*), void* object, void* image);
}

namespace lab {
namespace {

/// As the linker writes it, `key` still zero.
struct Descriptor {
  void* function;
  uint64_t key;
  uint64_t offset;
};

/// What a new thread's copy begins with. Its address is the key of the image's descriptors.
struct Block {
  pthread_key_t key;
  const char* content;
  size_t content_size, size;
};

char* copy_of(const Block& block) {
  constexpr size_t alignment = 64;
  auto* copy = static_cast<char*>(std::aligned_alloc(alignment, (block.size + alignment - 1) / alignment * alignment));
  std::memcpy(copy, block.content, block.content_size);
  std::memset(copy + block.content_size, 0, block.size - block.content_size);
  ::pthread_setspecific(block.key, copy);
  return copy;
}

int at_thread_exit(void (*function)(void*), void* object) {
  return ::__cxa_thread_atexit_impl(function, object, nullptr);
}

}  // namespace

extern "C" __attribute__((used)) void* lab_tlv_address(const Descriptor* variable) {
  const auto& block = *reinterpret_cast<const Block*>(variable->key);
  auto* copy = static_cast<char*>(::pthread_getspecific(block.key));
  return (copy ? copy : copy_of(block)) + variable->offset;
}

void prepare_thread_variables(const Image& image) {
  uint64_t begin = UINT64_MAX, content_end = 0, end = 0;
  for (const auto* section : image.sections()) {
    const uint32_t type = section->flags & macho::kSectionTypeMask;
    if (type != macho::kThreadLocalRegular && type != macho::kThreadLocalZeroFill) continue;
    begin = std::min(begin, section->addr);
    end = std::max(end, section->addr + section->size);
    if (type == macho::kThreadLocalRegular) content_end = end;
  }
  if (end == 0) return;
  auto* block = new Block{{}, image.at(begin), std::max(begin, content_end) - begin, end - begin};
  // Freed with the process: destructors of the variables may run after any destructor that a key could have.
  if (::pthread_key_create(&block->key, nullptr) != 0) throw LoadError("too many images with thread-local variables");
  for (const auto* section : image.sections()) {
    if ((section->flags & macho::kSectionTypeMask) != macho::kThreadLocalVariables) continue;
    auto* variables = reinterpret_cast<Descriptor*>(image.at(section->addr));
    for (size_t i = 0; i < section->size / sizeof(Descriptor); ++i) variables[i].key = reinterpret_cast<uint64_t>(block);
  }
}

SymbolTable thread_variable_symbols() {
  static const SystemSymbol table[] = {
      {"__tlv_bootstrap", as_address(lab_tlv_bootstrap)},
      {"__tlv_atexit", as_address(at_thread_exit)},
  };
  return table;
}

}  // namespace lab
