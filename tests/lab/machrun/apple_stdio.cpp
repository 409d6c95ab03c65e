// Formatted input and output, and the streams' names.
#include <strings.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "machrun/symbol_tables.hpp"
#include "machrun/variadic.hpp"

LAB_VARIADIC(int, printf, 1, (const char* format), format, ::vprintf(format, args))
LAB_VARIADIC(int, fprintf, 2, (FILE * stream, const char* format), format, ::vfprintf(stream, format, args))
LAB_VARIADIC(int, dprintf, 2, (int fd, const char* format), format, ::vdprintf(fd, format, args))
LAB_VARIADIC(int, sprintf, 2, (char* out, const char* format), format, ::vsprintf(out, format, args))
LAB_VARIADIC(int, snprintf, 3, (char* out, size_t size, const char* format), format, ::vsnprintf(out, size, format, args))
LAB_VARIADIC(int, asprintf, 2, (char** out, const char* format), format, ::vasprintf(out, format, args))
LAB_VARIADIC(int, sscanf, 2, (const char* text, const char* format), format, ::vsscanf(text, format, args))
LAB_VARIADIC(int, fscanf, 2, (FILE * stream, const char* format), format, ::vfscanf(stream, format, args))
// The checked forms carry a flag and the size of the buffer.
LAB_VARIADIC(int, sprintf_chk, 4, (char* out, int, size_t size, const char* format), format, ::vsnprintf(out, size, format, args))
LAB_VARIADIC(int, snprintf_chk, 5, (char* out, size_t size, int, size_t, const char* format), format, ::vsnprintf(out, size, format, args))

namespace lab {
namespace {

int apple_vprintf(const char* format, AppleVaList apple) {
  LAB_OPEN_VA_LIST(args, apple);
  return ::vprintf(format, args);
}
int apple_vfprintf(FILE* stream, const char* format, AppleVaList apple) {
  LAB_OPEN_VA_LIST(args, apple);
  return ::vfprintf(stream, format, args);
}
int apple_vsnprintf(char* out, size_t size, const char* format, AppleVaList apple) {
  LAB_OPEN_VA_LIST(args, apple);
  return ::vsnprintf(out, size, format, args);
}
int apple_vdprintf(int fd, const char* format, AppleVaList apple) {
  LAB_OPEN_VA_LIST(args, apple);
  return ::vdprintf(fd, format, args);
}

// _IOFBF, _IOLBF and _IONBF have the same values on both systems, and off_t has the same size.
size_t apple_strlcpy(char* out, const char* text, size_t size) {
  const size_t length = std::strlen(text);
  if (size) {
    const size_t copied = length < size ? length : size - 1;
    std::memcpy(out, text, copied);
    out[copied] = 0;
  }
  return length;
}

size_t apple_strlcat(char* out, const char* text, size_t size) {
  const size_t used = strnlen(out, size);
  return used + (used < size ? apple_strlcpy(out + used, text, size - used) : std::strlen(text));
}

void memset_pattern(void* out, const void* pattern, size_t length, size_t unit) {
  for (size_t done = 0; done < length; done += unit)
    std::memcpy(static_cast<char*>(out) + done, pattern, length - done < unit ? length - done : unit);
}
void apple_memset_pattern4(void* out, const void* pattern, size_t length) {
  memset_pattern(out, pattern, length, 4);
}
void apple_memset_pattern8(void* out, const void* pattern, size_t length) {
  memset_pattern(out, pattern, length, 8);
}
void apple_memset_pattern16(void* out, const void* pattern, size_t length) {
  memset_pattern(out, pattern, length, 16);
}

}  // namespace

SymbolTable stdio_symbols() {
  static const SystemSymbol table[] = {
      {"_printf", as_address(apple_printf)},
      {"_fprintf", as_address(apple_fprintf)},
      {"_dprintf", as_address(apple_dprintf)},
      {"_sprintf", as_address(apple_sprintf)},
      {"_snprintf", as_address(apple_snprintf)},
      {"_asprintf", as_address(apple_asprintf)},
      {"_sscanf", as_address(apple_sscanf)},
      {"_fscanf", as_address(apple_fscanf)},
      {"___sprintf_chk", as_address(apple_sprintf_chk)},
      {"___snprintf_chk", as_address(apple_snprintf_chk)},
      {"_vprintf", as_address(apple_vprintf)},
      {"_vfprintf", as_address(apple_vfprintf)},
      {"_vsnprintf", as_address(apple_vsnprintf)},
      {"_vdprintf", as_address(apple_vdprintf)},
      {"_strlcpy", as_address(apple_strlcpy)},
      {"_strlcat", as_address(apple_strlcat)},
      {"___bzero", as_address(::bzero)},
      {"_memset_pattern4", as_address(apple_memset_pattern4)},
      {"_memset_pattern8", as_address(apple_memset_pattern8)},
      {"_memset_pattern16", as_address(apple_memset_pattern16)},
      // Variables: the loaded code reads the pointer that is stored there.
      {"___stdinp", &stdin},
      {"___stdoutp", &stdout},
      {"___stderrp", &stderr},
  };
  return table;
}

}  // namespace lab
