// Time, memory and what a process learns about itself and the machine.
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "machrun/symbol_tables.hpp"

namespace lab {
namespace {

clockid_t linux_clock(int id) {
  switch (id) {
    case 0:
      return CLOCK_REALTIME;
    case 4:
    case 5:
      return CLOCK_MONOTONIC_RAW;
    case 12:
      return CLOCK_PROCESS_CPUTIME_ID;
    case 16:
      return CLOCK_THREAD_CPUTIME_ID;
    default:
      return CLOCK_MONOTONIC;
  }
}
int apple_clock_gettime(int id, timespec* out) {
  return ::clock_gettime(linux_clock(id), out);
}
uint64_t clock_nanoseconds(int id) {
  timespec now{};
  ::clock_gettime(linux_clock(id), &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}
uint64_t absolute_time() {
  return clock_nanoseconds(4);
}
struct Timebase {
  uint32_t numerator, denominator;
};
int timebase(Timebase* out) {
  return *out = {1, 1}, 0;
}
int apple_gettimeofday(timeval* out, void*) {
  return ::gettimeofday(out, nullptr);
}

long apple_sysconf(int name) {
  switch (name) {
    case 29:
      return ::sysconf(_SC_PAGESIZE);
    case 57:
      return ::sysconf(_SC_NPROCESSORS_CONF);
    case 58:
      return ::sysconf(_SC_NPROCESSORS_ONLN);
    case 200:
      return ::sysconf(_SC_PHYS_PAGES);
    case 5:
      return ::sysconf(_SC_OPEN_MAX);
    default:
      errno = EINVAL;
      return -1;
  }
}

int give(const void* value, size_t length, void* out, size_t* size) {
  if (!size) return 0;
  if (out && *size < length) {
    errno = ENOMEM;
    return -1;
  }
  if (out) std::memcpy(out, value, length);
  *size = length;
  return 0;
}

int apple_sysctlbyname(const char* name, void* out, size_t* size, const void*, size_t) {
  const std::string_view key = name;
  const auto number = [&](int value) { return give(&value, sizeof value, out, size); };
  const auto text = [&](const char* value) { return give(value, std::strlen(value) + 1, out, size); };
  if (key == "hw.ncpu" || key == "hw.logicalcpu" || key == "hw.physicalcpu" || key == "hw.activecpu")
    return number(static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
  if (key == "hw.memsize") {
    const uint64_t bytes = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    return give(&bytes, sizeof bytes, out, size);
  }
  if (key == "hw.optional.arm64") return number(1);
  if (key == "hw.model") return text("VirtualMac2,1");
  if (key == "machdep.cpu.brand_string") return text("Apple M1 Ultra (Virtual)");
#if defined(__x86_64__)
  if (key == "sysctl.proc_translated") return number(1);
#else
  if (key == "sysctl.proc_translated") return number(0);
#endif
  errno = ENOENT;
  return -1;
}

uint64_t boot_seconds() {
  std::FILE* file = std::fopen("/proc/stat", "re");
  unsigned long long seconds = 0;
  char line[4096];
  while (file && std::fgets(line, sizeof line, file))
    if (std::sscanf(line, "btime %llu", &seconds) == 1) break;
  if (file) std::fclose(file);
  return seconds;
}

/// PROC_PIDTBSDINFO: of struct proc_bsdinfo only the process ids and the start time are filled in.
int apple_proc_pidinfo(int pid, int flavor, uint64_t, void* out, int size) {
  constexpr int kBsdInfo = 3, kLength = 136;
  if (flavor != kBsdInfo || size < kLength) {
    errno = EINVAL;
    return 0;
  }
  char path[64], line[1024];
  std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
  std::FILE* file = std::fopen(path, "re");
  const bool got = file && std::fgets(line, sizeof line, file);
  if (file) std::fclose(file);
  if (!got) {
    errno = ESRCH;
    return 0;
  }
  // Field 22 counts clock ticks from boot; the name in field 2 may hold blanks.
  const char* p = std::strrchr(line, ')');
  int parent = 0;
  std::sscanf(p + 1, " %*c %d", &parent);
  for (int field = 2; field < 22 && p; ++field) p = std::strchr(p + 1, ' ');
  const unsigned long ticks = p ? std::strtoul(p + 1, nullptr, 10) : 0;
  const auto per_second = static_cast<unsigned long>(::sysconf(_SC_CLK_TCK));
  const uint64_t booted = boot_seconds();
  const uint64_t seconds = booted + ticks / per_second;
  const uint64_t microseconds = ticks % per_second * 1000000 / per_second;
  const uint32_t ids[2] = {static_cast<uint32_t>(pid), static_cast<uint32_t>(parent)};
  auto* bytes = static_cast<char*>(out);
  std::memset(bytes, 0, kLength);
  std::memcpy(bytes + 12, ids, sizeof ids);
  std::memcpy(bytes + 120, &seconds, sizeof seconds);
  std::memcpy(bytes + 128, &microseconds, sizeof microseconds);
  return kLength;
}

struct SineCosine {
  double sine, cosine;
};
struct SineCosineFloat {
  float sine, cosine;
};
SineCosine sincos_pair(double x) {
  return {std::sin(x), std::cos(x)};
}
SineCosineFloat sincosf_pair(float x) {
  return {std::sin(x), std::cos(x)};
}

uintptr_t stack_guard = 0x595e9fbd94fda766;

}  // namespace

SymbolTable machine_symbols() {
  static const SystemSymbol table[] = {
      {"_clock_gettime", as_address(apple_clock_gettime)},
      {"_clock_gettime_nsec_np", as_address(clock_nanoseconds)},
      {"_mach_absolute_time", as_address(absolute_time)},
      {"_mach_timebase_info", as_address(timebase)},
      {"_gettimeofday", as_address(apple_gettimeofday)},
      {"_sysconf", as_address(apple_sysconf)},
      {"___exp10", as_address(static_cast<double (*)(double)>(::exp10))},
      {"_sysctlbyname", as_address(apple_sysctlbyname)},
      {"_proc_pidinfo", as_address(apple_proc_pidinfo)},
      {"___sincos_stret", as_address(sincos_pair)},
      {"___sincosf_stret", as_address(sincosf_pair)},
      {"___stack_chk_guard", &stack_guard},
  };
  return table;
}

}  // namespace lab
