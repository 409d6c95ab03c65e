// libguestexec.so: preloaded into every program of a lab guest. What such a program starts goes through the rules of
// launch.hpp, and shells find the guest's own tools where a Mac has its own.
#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "exec/launch.hpp"

extern "C" char** environ;

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using lab::exec::Launch;
using lab::exec::Strings;
using lab::exec::to_pointers;
using lab::exec::to_strings;

template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

using ExecveType = int(const char*, char* const*, char* const*);
using SpawnType = int(pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*, char* const*, char* const*);

int run(const Launch& launch) {
  static auto* const real = next<ExecveType>("execve");
  if (launch.error) {
    errno = launch.error;
    return -1;
  }
  return real(launch.file.c_str(), to_pointers(launch.argv).data(), to_pointers(launch.envp).data());
}

/// A text file without an interpreter line is run by the guest's shell, as execvp does.
int run_or_shell(const Launch& launch) {
  const int result = run(launch);
  if (errno != ENOEXEC) return result;
  Strings argv{"sh", launch.file};
  if (launch.argv.size() > 1) argv.insert(argv.end(), launch.argv.begin() + 1, launch.argv.end());
  return run(lab::exec::plan("/bin/sh", std::move(argv), launch.envp));
}

int spawn(pid_t* pid, const Launch& launch, const posix_spawn_file_actions_t* actions, const posix_spawnattr_t* attributes) {
  static auto* const real = next<SpawnType>("posix_spawn");
  if (launch.error) return launch.error;
  return real(pid, launch.file.c_str(), actions, attributes, to_pointers(launch.argv).data(), to_pointers(launch.envp).data());
}

Strings arguments(const char* first, va_list& args) {
  Strings out;
  for (const char* text = first; text; text = va_arg(args, const char*)) out.emplace_back(text);
  return out;
}

/// Only shells look for tools before they start them. Other programs, the lab's own machinery in Python among them,
/// must see the real files.
bool is_shell() {
  static const bool shell = [] {
    char path[4096];
    const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0) return false;
    path[length] = 0;
    const char* slash = std::strrchr(path, '/');
    const std::string name = slash ? slash + 1 : path;
    for (const char* known : {"zsh", "zsh5", "bash", "dash", "sh", "ksh"})
      if (name == known) return true;
    return false;
  }();
  return shell;
}

std::string seen(const char* path) {
  return is_shell() ? lab::exec::guest_path(path) : path ? path : "";
}

__attribute__((constructor)) void remember() {
  lab::exec::LabEnvironment::instance();
}

}  // namespace

EXPORT int execve(const char* path, char* const* argv, char* const* envp) {
  return run(lab::exec::plan(path, to_strings(argv), to_strings(envp)));
}
EXPORT int execv(const char* path, char* const* argv) {
  return execve(path, argv, environ);
}
EXPORT int execvpe(const char* name, char* const* argv, char* const* envp) {
  return run_or_shell(lab::exec::plan_search(name, to_strings(argv), to_strings(envp)));
}
EXPORT int execvp(const char* name, char* const* argv) {
  return execvpe(name, argv, environ);
}

EXPORT int execl(const char* path, const char* first, ...) {
  va_list args;
  va_start(args, first);
  Strings argv = arguments(first, args);
  va_end(args);
  return run(lab::exec::plan(path, std::move(argv), to_strings(environ)));
}
EXPORT int execlp(const char* name, const char* first, ...) {
  va_list args;
  va_start(args, first);
  const Strings argv = arguments(first, args);
  va_end(args);
  return run_or_shell(lab::exec::plan_search(name, argv, to_strings(environ)));
}
EXPORT int execle(const char* path, const char* first, ...) {
  va_list args;
  va_start(args, first);
  Strings argv = arguments(first, args);
  char* const* envp = va_arg(args, char* const*);
  va_end(args);
  return run(lab::exec::plan(path, std::move(argv), to_strings(envp)));
}
EXPORT int fexecve(int fd, char* const* argv, char* const* envp) {
  return execve(("/proc/self/fd/" + std::to_string(fd)).c_str(), argv, envp);
}

EXPORT int posix_spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions, const posix_spawnattr_t* attributes,
                       char* const* argv, char* const* envp) {
  return spawn(pid, lab::exec::plan(path, to_strings(argv), to_strings(envp)), actions, attributes);
}
EXPORT int posix_spawnp(pid_t* pid, const char* name, const posix_spawn_file_actions_t* actions, const posix_spawnattr_t* attributes,
                        char* const* argv, char* const* envp) {
  return spawn(pid, lab::exec::plan_search(name, to_strings(argv), to_strings(envp)), actions, attributes);
}

// Every lookup of a path that shells use, in both names that the C library gives it.
#define LAB_STAT(name, type)                                             \
  EXPORT int name(const char* path, type* out) {                         \
    static auto* const real = next<int(const char*, type*)>(#name);      \
    return is_shell() ? real(seen(path).c_str(), out) : real(path, out); \
  }
LAB_STAT(stat, struct stat)
LAB_STAT(lstat, struct stat)
LAB_STAT(stat64, struct stat64)
LAB_STAT(lstat64, struct stat64)

EXPORT int fstatat(int folder, const char* path, struct stat* out, int flags) {
  static auto* const real = next<int(int, const char*, struct stat*, int)>("fstatat");
  return is_shell() ? real(folder, seen(path).c_str(), out, flags) : real(folder, path, out, flags);
}
EXPORT int access(const char* path, int mode) {
  static auto* const real = next<int(const char*, int)>("access");
  return is_shell() ? real(seen(path).c_str(), mode) : real(path, mode);
}
EXPORT int faccessat(int folder, const char* path, int mode, int flags) {
  static auto* const real = next<int(int, const char*, int, int)>("faccessat");
  return is_shell() ? real(folder, seen(path).c_str(), mode, flags) : real(folder, path, mode, flags);
}
EXPORT int eaccess(const char* path, int mode) {
  static auto* const real = next<int(const char*, int)>("eaccess");
  return is_shell() ? real(seen(path).c_str(), mode) : real(path, mode);
}
EXPORT int euidaccess(const char* path, int mode) {
  return eaccess(path, mode);
}

/// The one error of macOS that Linux has no number for.
EXPORT char* strerror(int number) noexcept {
  static auto* const real = next<char*(int)>("strerror");
  static char text[] = "Bad CPU type in executable";
  return number == lab::exec::kBadCpuType ? text : real(number);
}
EXPORT char* strerror_r(int number, char* buffer, size_t size) noexcept {
  static auto* const real = next<char*(int, char*, size_t)>("strerror_r");
  if (number != lab::exec::kBadCpuType) return real(number, buffer, size);
  std::snprintf(buffer, size, "%s", strerror(number));
  return buffer;
}
