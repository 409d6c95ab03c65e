#include "host/sys/platform.hpp"

#ifdef __APPLE__
#include <mach-o/dyld.h>

#include <cstdint>
#include <string>
#endif

namespace lumelift::sys {

std::filesystem::path executable_path() {
  std::error_code fault;
#ifdef __APPLE__
  std::string name(4096, '\0');
  auto size = static_cast<std::uint32_t>(name.size());
  if (_NSGetExecutablePath(name.data(), &size) != 0) return {};
  return std::filesystem::canonical(name.c_str(), fault);
#else
  return std::filesystem::read_symlink("/proc/self/exe", fault);
#endif
}

}  // namespace lumelift::sys
