#pragma once

#include <cstdarg>
#include <cstring>

// Variadic functions. On x86_64 both systems pass variable arguments alike. On arm64 Apple puts all of them on the
// stack in slots of 8 bytes, Linux fills registers first; so there a thunk hands the stack pointer at entry to a
// function that reads a va_list whose register areas are empty.
//
//   LAB_VARIADIC(int, open, 2, (const char* path, int flags), flags, open_with(path, flags, args))
// defines apple_open, to be called by loaded code with 2 fixed arguments.

#define LAB_UNWRAP(...) __VA_ARGS__

#if defined(__aarch64__)

namespace lab {
/// The layout that the procedure call standard of arm64 gives va_list.
struct VaListLayout {
  void* stack;
  void* general_top;
  void* vector_top;
  int general_offset, vector_offset;
};
static_assert(sizeof(VaListLayout) == sizeof(va_list));

inline void bind_stack_arguments(va_list& list, void* stack) {
  const VaListLayout layout{stack, nullptr, nullptr, 0, 0};
  std::memcpy(&list, &layout, sizeof layout);
}
/// The va_list of loaded code, as it is passed to functions of the vprintf kind.
using AppleVaList = void*;
}  // namespace lab

#define LAB_OPEN_VA_LIST(list, apple) \
  va_list list;                       \
  ::lab::bind_stack_arguments(list, apple)
#define LAB_VARIADIC(type, name, fixed, params, last, call)                                                                        \
  extern "C" type apple_##name();                                                                                                  \
  extern "C" __attribute__((used)) type apple_##name##_on_stack(LAB_UNWRAP params, void* stack) {                                  \
    va_list args;                                                                                                                  \
    ::lab::bind_stack_arguments(args, stack);                                                                                      \
    return call;                                                                                                                   \
  }                                                                                                                                \
  asm(".text\n.globl apple_" #name "\n.type apple_" #name ", %function\napple_" #name ":\n  mov x" #fixed ", sp\n  b apple_" #name \
      "_on_stack\n");

#else

namespace lab {
using AppleVaList = va_list;
}

#define LAB_OPEN_VA_LIST(list, apple) \
  va_list list;                       \
  va_copy(list, apple)
#define LAB_VARIADIC(type, name, fixed, params, last, call) \
  extern "C" type apple_##name(LAB_UNWRAP params, ...) {    \
    va_list args;                                           \
    va_start(args, last);                                   \
    const type result = call;                               \
    va_end(args);                                           \
    return result;                                          \
  }

#endif
