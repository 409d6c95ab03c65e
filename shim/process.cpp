#include "shim/process.hpp"

#include "shim/sdk/darwin.hpp"

namespace lumelift::shim {
namespace {

constexpr int kTaskBsdInfo = 3;       // PROC_PIDTBSDINFO
constexpr size_t kTaskBsdSize = 136;  // struct proc_bsdinfo, of which only the last two members matter here
constexpr size_t kStartSeconds = 120;

bool write_all(int fd, const char* data, size_t size) {
  while (size > 0) {
    const long count = ::write(fd, data, size);
    if (count <= 0) return false;
    data += count;
    size -= static_cast<size_t>(count);
  }
  return true;
}

}  // namespace

const char* slice_name() {
#if defined(__arm64e__)
  return "arm64e";
#elif defined(__aarch64__)
  return "arm64";
#else
  return "x86_64";
#endif
}

void Process::read() {
  pid = getpid();
  uint32_t size = sizeof executable;
  if (_NSGetExecutablePath(executable, &size) != 0) executable[0] = '\0';
  alignas(8) unsigned char info[kTaskBsdSize];
  if (proc_pidinfo(pid, kTaskBsdInfo, 0, info, sizeof info) != static_cast<int>(sizeof info)) return;
  __builtin_memcpy(&started_seconds, info + kStartSeconds, sizeof started_seconds);
  __builtin_memcpy(&started_microseconds, info + kStartSeconds + 8, sizeof started_microseconds);
}

const char* last_component(const char* path) {
  const char* name = path;
  for (; *path != '\0'; ++path)
    if (*path == '/') name = path + 1;
  return name;
}

void Process::describe(Text& json) const {
  json.key("pid").signed_number(pid).key("started");
  if (started_seconds == 0)
    json.put("null");
  else
    json.put('"').number(started_seconds).put('.').padded(started_microseconds, 6).put('"');
  json.key("executable").quoted(executable).key("slice").quoted(slice_name());
}

bool write_whole(const char* path, const Text& content, IfPresent present) {
  if (!content.complete()) return false;
  char temporary[1100];
  Text name(temporary);
  name.put(path).put(".XXXXXX").c_str();
  if (!name.complete()) return false;
  const int fd = mkstemp(temporary);
  if (fd < 0) return false;
  bool good = write_all(fd, content.data(), content.size());
  good = ::close(fd) == 0 && good;
  if (present == IfPresent::keep) {
    good = good && link(temporary, path) == 0;
    unlink(temporary);
    return good;
  }
  good = good && rename(temporary, path) == 0;
  if (!good) unlink(temporary);
  return good;
}

bool expand_path(const char* pattern, int pid, char* path, size_t size, bool& per_process) {
  Text text(path, size);
  per_process = false;
  if (pattern[0] != '/') {
    char folder[1024];
    if (getcwd(folder, sizeof folder) == nullptr) return false;
    text.put(folder).put('/');
  }
  for (; *pattern != '\0'; ++pattern) {
    if (pattern[0] == '%' && pattern[1] == 'p') {
      text.signed_number(pid);
      per_process = true;
      ++pattern;
    } else {
      text.put(*pattern);
    }
  }
  text.c_str();
  return text.complete();
}

void Publisher::publish(void (*write)()) {
  wanted_.store(1);
  // Asking again after letting go of `busy_` catches a note left between the write and the release.
  while (wanted_.load() != 0 && busy_.exchange(1) == 0) {
    wanted_.store(0);
    write();
    busy_.store(0);
  }
}

}  // namespace lumelift::shim
