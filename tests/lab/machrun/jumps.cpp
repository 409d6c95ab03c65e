#include <signal.h>

#include <cstdint>
#include <cstring>

#include "machrun/symbol_tables.hpp"

namespace lab {

extern "C" {
int lab_sigsetjmp(void* buffer, int with_mask);
[[noreturn]] void lab_jump(const void* buffer, int value);

/// Behind the registers that lab_sigsetjmp has stored: whether there is a mask, and its first 64 signals.
int lab_save_mask(void* place, int with_mask) {
  uint64_t words[2] = {with_mask != 0, 0};
  sigset_t mask;
  if (with_mask != 0 && ::sigprocmask(SIG_SETMASK, nullptr, &mask) == 0) std::memcpy(&words[1], &mask, sizeof words[1]);
  std::memcpy(place, words, sizeof words);
  return 0;
}
}

namespace {

#if defined(__aarch64__)
constexpr size_t kRegisters = 168;
#else
constexpr size_t kRegisters = 64;
#endif

[[noreturn]] void apple_siglongjmp(const void* buffer, int value) {
  uint64_t words[2];
  std::memcpy(words, static_cast<const char*>(buffer) + kRegisters, sizeof words);
  if (words[0] != 0) {
    sigset_t mask;
    ::sigemptyset(&mask);
    std::memcpy(&mask, &words[1], sizeof words[1]);
    ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  }
  lab_jump(buffer, value != 0 ? value : 1);
}

}  // namespace

SymbolTable jump_symbols() {
  static const SystemSymbol table[] = {
      {"_sigsetjmp", as_address(lab_sigsetjmp)},
      {"_siglongjmp", as_address(apple_siglongjmp)},
  };
  return table;
}

}  // namespace lab
