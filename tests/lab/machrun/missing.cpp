#include "machrun/missing.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "machrun/dyld.hpp"

namespace lab {
namespace {

[[noreturn]] void report(const char* symbol) {
  dyld_death("missing symbol called: " + std::string(symbol));
}

/// Loads the symbol's name into the first argument's register and goes to report().
struct Stub {
#if defined(__aarch64__)
  uint32_t code[4] = {0x58000080, 0x580000b0, 0xd61f0200, 0};  // ldr x0, name; ldr x16, target; br x16
  const char* name;
  void (*target)(const char*);
#else
  uint8_t code[16] = {0x48, 0x8b, 0x3d, 0x09, 0, 0, 0, 0xff, 0x25, 0x0b, 0, 0, 0, 0, 0, 0};  // mov rdi, [name]; jmp [target]
  const char* name;
  void (*target)(const char*);
#endif
};
static_assert(sizeof(Stub) == 32);

constexpr size_t kPage = 4096;

}  // namespace

void* missing_function(const char* symbol) {
  static Stub* next = nullptr;
  static Stub* end = nullptr;
  if (next == end) {
    void* page = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) throw LoadError("cannot reserve memory");
    next = static_cast<Stub*>(page);
    end = next + kPage / sizeof(Stub);
  }
  Stub stub{};
  stub.name = symbol;
  stub.target = report;
  std::memcpy(next, &stub, sizeof stub);
  __builtin___clear_cache(reinterpret_cast<char*>(next), reinterpret_cast<char*>(next + 1));
  return next++;
}

}  // namespace lab
