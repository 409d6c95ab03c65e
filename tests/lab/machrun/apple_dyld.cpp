// The loader's own functions, and what a program asks about itself.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "machrun/dyld.hpp"
#include "machrun/symbol_tables.hpp"

extern "C" char** environ;

namespace lab {
namespace {

void* apple_dlopen(const char* name, int mode) {
  return Dyld::instance().open(name, mode, __builtin_return_address(0));
}
void* apple_dlsym(void* handle, const char* name) {
  return Dyld::instance().symbol(handle, name, __builtin_return_address(0));
}
const char* apple_dlerror() {
  return Dyld::instance().take_error();
}
int apple_dlclose(void*) {
  return 0;
}  // images stay, as most do on a Mac

struct AppleDlInfo {
  const char* file;
  void* base;
  const char* symbol;
  void* address;
};

int apple_dladdr(const void* address, AppleDlInfo* out) {
  const Image* image = Dyld::instance().image_of(address);
  if (!image) return 0;
  static thread_local std::string name;
  void* start = nullptr;
  name = image->nearest_export(address, &start);
  *out = {image->path.c_str(), const_cast<macho::Header*>(image->header()), name.empty() ? nullptr : name.c_str() + 1, start};
  return 1;
}

int executable_path(char* buffer, uint32_t* size) {
  const std::string& path = Dyld::instance().executable();
  const auto needed = static_cast<uint32_t>(path.size() + 1);
  const bool fits = *size >= needed;
  if (fits) std::memcpy(buffer, path.c_str(), needed);
  *size = needed;
  return fits ? 0 : -1;
}

char*** get_environ() {
  return &environ;
}
int* get_argc() {
  return &Dyld::instance().arguments.argc;
}
char*** get_argv() {
  return &Dyld::instance().arguments.argv;
}
const char* get_progname() {
  const std::string& path = Dyld::instance().executable();
  return path.c_str() + path.rfind('/') + 1;
}
char** get_progname_pointer() {
  static char* name = const_cast<char*>(get_progname());
  return &name;
}

uint32_t image_count() {
  return static_cast<uint32_t>(Dyld::instance().image_count());
}
const char* image_name(uint32_t index) {
  const Image* image = Dyld::instance().image_at(index);
  return image ? image->path.c_str() : nullptr;
}
const void* image_header(uint32_t index) {
  const Image* image = Dyld::instance().image_at(index);
  return image ? image->header() : nullptr;
}
intptr_t image_slide(uint32_t index) {
  const Image* image = Dyld::instance().image_at(index);
  return image ? reinterpret_cast<intptr_t>(image->header()) - static_cast<intptr_t>(image->preferred_base()) : 0;
}
const void* execute_header() {
  return image_header(0);
}

uint8_t* section_data(const macho::Header* header, const char* segment, const char* section, unsigned long* size) {
  const Image* image = Dyld::instance().image_of(header);
  if (!image) return nullptr;
  const auto* found = image->section({segment, strnlen(segment, 16)}, {section, strnlen(section, 16)});
  if (!found) return nullptr;
  *size = found->size;
  return reinterpret_cast<uint8_t*>(image->at(found->addr));
}

int apple_atexit(void (*function)()) {
  return ::atexit(function);
}

}  // namespace

SymbolTable dyld_symbols() {
  static const SystemSymbol table[] = {
      {"_dlopen", as_address(apple_dlopen)},
      {"_dlsym", as_address(apple_dlsym)},
      {"_dlerror", as_address(apple_dlerror)},
      {"_dlclose", as_address(apple_dlclose)},
      {"_dladdr", as_address(apple_dladdr)},
      {"__NSGetExecutablePath", as_address(executable_path)},
      {"__NSGetEnviron", as_address(get_environ)},
      {"__NSGetArgc", as_address(get_argc)},
      {"__NSGetArgv", as_address(get_argv)},
      {"__NSGetProgname", as_address(get_progname_pointer)},
      {"__NSGetMachExecuteHeader", as_address(execute_header)},
      {"_getprogname", as_address(get_progname)},
      {"__dyld_image_count", as_address(image_count)},
      {"__dyld_get_image_name", as_address(image_name)},
      {"__dyld_get_image_header", as_address(image_header)},
      {"__dyld_get_image_vmaddr_slide", as_address(image_slide)},
      {"_getsectiondata", as_address(section_data)},
      {"_atexit", as_address(apple_atexit)},
      {"dyld_stub_binder", as_address(std::abort)},  // every lazy pointer is bound at once, so nothing calls it
  };
  return table;
}

}  // namespace lab
