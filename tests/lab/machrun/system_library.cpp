#include "machrun/system_library.hpp"

#include <dlfcn.h>

#include <string>
#include <unordered_map>

#include "machrun/symbol_tables.hpp"
#include "metal/framework.hpp"

namespace lab {
namespace {

// clang-format off
// Functions and variables whose meaning, types and calling convention are the same in both C libraries.
constexpr const char* kSame[] = {
    "abs", "access", "acos", "aligned_alloc", "arc4random", "arc4random_buf", "arc4random_uniform", "asin", "atan",
    "atan2", "atan2f", "atof", "atoi", "atol", "atoll", "bcmp", "bsearch", "bzero", "calloc", "ceil", "ceilf",
    "chdir", "chmod", "chown", "clearerr", "close", "closedir", "cos", "cosf", "creat", "dup", "dup2", "environ",
    "erf", "exp", "exp2", "exp2f", "expf", "fabs", "fabsf", "fchmod", "fchown", "fclose", "fdopen", "feof", "ferror",
    "fflush", "fgetc", "fgets", "fileno", "floor", "floorf", "fmax", "fmaxf", "fmin", "fminf", "fmod", "fmodf",
    "fopen", "fputc", "fputs", "fread", "free", "freopen", "frexp", "fseek", "fseeko", "fsync", "ftell", "ftello",
    "ftruncate", "fwrite", "getc", "getchar", "getcwd", "getegid", "getenv", "geteuid", "getgid", "getline",
    "getpagesize", "getpgid", "getpgrp", "getpid", "getppid", "getsid", "getuid", "gmtime", "gmtime_r", "index",
    "isalnum", "isalpha", "isatty", "isdigit", "isspace", "isxdigit", "labs", "ldexp", "link", "llabs", "localeconv", "localtime",
    "localtime_r", "log", "log10", "log2", "log2f", "logf", "lrint", "lrintf", "lround", "lroundf", "lseek",
    "malloc", "memccpy", "memchr", "memcmp", "memcpy", "memmem", "memmove", "memset", "mkdir", "mkdtemp", "mkfifo",
    "mkstemp", "mktime", "mprotect", "munmap", "nanosleep", "opendir", "pause", "poll", "posix_memalign", "pow",
    "powf", "pread", "putc", "putchar", "putenv", "puts", "pwrite", "qsort", "rand", "random", "read", "readlink",
    "realloc", "realpath", "remove", "rename", "rewind", "rewinddir", "btowc", "catclose", "catgets", "catopen", "fputwc",
    "getwc", "isblank", "iscntrl", "isgraph", "islower", "isprint", "ispunct", "isupper", "mbrtowc", "mbsrtowcs", "mbtowc",
    "memrchr", "nan", "pthread_atfork", "strerror_l", "swab", "ungetwc", "wcrtomb", "wcscmp", "wcscpy", "wcslen",
    "wcsncmp", "wcstod", "wcstof", "wcstol", "wcstoll", "wcstoul", "wcstoull", "wmemchr", "wmemcmp", "wmemcpy",
    "wmemmove", "wmemset", "rindex", "rint", "rintf", "rmdir", "round",
    "roundf", "setbuf", "setenv", "setpgid", "setsid", "setvbuf", "sin", "sinf", "sleep", "sqrt", "sqrtf", "srand",
    "srandom", "stpcpy", "stpncpy", "strcasecmp", "strcat", "strchr", "strcmp", "strcpy", "strcspn", "strdup",
    "strftime", "strlen", "strncasecmp", "strncat", "strncmp", "strncpy", "strndup", "strnlen", "strpbrk",
    "strrchr", "strsep", "strspn", "strstr", "strtod", "strtof", "strtok", "strtok_r", "strtol", "strtoll",
    "strtoul", "strtoull", "symlink", "tan", "tanf", "tanh", "tanhf", "time", "tolower", "toupper", "trunc",
    "truncate", "truncf", "umask", "ungetc", "unlink", "unsetenv", "usleep", "utimes", "write", "__cxa_atexit",
    "__cxa_finalize", "__memcpy_chk", "__memmove_chk", "__memset_chk", "__strcat_chk", "__strcpy_chk",
    "__strncat_chk", "__strncpy_chk", "__stack_chk_fail",
};
// clang-format on

constexpr std::string_view kSystemLibraries[] = {"libSystem.B.dylib", "libSystem.dylib", "libobjc.A.dylib",  "libobjc.dylib",
                                                 "libc.dylib",        "libm.dylib",      "libpthread.dylib", "libdl.dylib",
                                                 "CoreFoundation",    "Foundation",      "CoreGraphics",     "Metal"};

using Symbols = std::unordered_map<std::string_view, const void*>;

Symbols make_symbols() {
  Symbols out;
  for (const SymbolTable& table :
       {error_symbols(), file_symbols(), stdio_symbols(), thread_symbols(), process_symbols(), machine_symbols(), socket_symbols(),
        dyld_symbols(), objc_symbols(), thread_variable_symbols(), frame_symbols(), locale_symbols(), jump_symbols()})
    for (const SystemSymbol& symbol : table) out.emplace(symbol.name, symbol.address);
  static std::string names[std::size(kSame)];
  for (size_t i = 0; i < std::size(kSame); ++i) {
    names[i] = std::string("_") + kSame[i];
    if (const void* address = ::dlsym(RTLD_DEFAULT, kSame[i])) out.emplace(names[i], address);
  }
  return out;
}

}  // namespace

bool load_system_library(std::string_view name) {
  if (name.rfind("/usr/lib/", 0) != 0 && name.rfind("/System/Library/Frameworks/", 0) != 0) return false;
  const std::string_view leaf = name.substr(name.rfind('/') + 1);
  for (const std::string_view known : kSystemLibraries) {
    if (leaf != known) continue;
    if (leaf == "Metal") metal::load_framework();
    if (leaf == "CoreGraphics") metal::note_core_graphics();
    return true;
  }
  return false;
}

void* system_symbol(std::string_view name) {
  static const Symbols symbols = make_symbols();
  // Suffixes such as $INODE64 and $DARWIN_EXTSN choose the variants that are the only ones here.
  const std::string_view plain = name.substr(0, name.find('$', 1));
  if (void* found = metal::framework_symbol(plain)) return found;
  const auto found = symbols.find(plain);
  return found == symbols.end() ? nullptr : const_cast<void*>(found->second);
}

}  // namespace lab
