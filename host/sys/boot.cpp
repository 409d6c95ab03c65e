#include "host/sys/boot.hpp"

#ifdef __APPLE__
#include <sys/sysctl.h>
#else
#include <fstream>
#endif
#include <ctime>

namespace lumelift::sys {

std::int64_t up_seconds() {
#ifdef __APPLE__
  constexpr clockid_t clock = CLOCK_MONOTONIC;  // goes on while the Mac sleeps
#else
  constexpr clockid_t clock = CLOCK_BOOTTIME;
#endif
  timespec now{};
  ::clock_gettime(clock, &now);
  return now.tv_sec;
}

std::string boot_session() {
#ifdef __APPLE__
  char text[64] = {};
  std::size_t size = sizeof text - 1;
  return ::sysctlbyname("kern.bootsessionuuid", text, &size, nullptr, 0) == 0 ? text : "";
#else
  std::string text;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), text);
  return text;
#endif
}

}  // namespace lumelift::sys
