// Starting, signalling and awaiting processes. What is started obeys the rules of the guest (exec/launch.hpp).
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "exec/launch.hpp"
#include "machrun/apple_errno.hpp"
#include "machrun/dyld.hpp"
#include "machrun/symbol_tables.hpp"
#include "machrun/variadic.hpp"

extern "C" char** environ;

namespace lab {
namespace {

int run(const exec::Launch& launch) {
  if (launch.error) {
    errno = launch.error;
    return -1;
  }
  return ::execve(launch.file.c_str(), exec::to_pointers(launch.argv).data(), exec::to_pointers(launch.envp).data());
}

int apple_execve(const char* path, char* const* argv, char* const* envp) {
  return run(exec::plan(path, exec::to_strings(argv), exec::to_strings(envp)));
}
int apple_execv(const char* path, char* const* argv) {
  return apple_execve(path, argv, environ);
}
int apple_execvp(const char* name, char* const* argv) {
  return run(exec::plan_search(name, exec::to_strings(argv), exec::to_strings(environ)));
}

exec::Strings list_arguments(const char* first, va_list& args) {
  exec::Strings out;
  for (const char* text = first; text; text = va_arg(args, const char*)) out.emplace_back(text);
  return out;
}
int execl_with(const char* path, const char* first, va_list& args) {
  return run(exec::plan(path, list_arguments(first, args), exec::to_strings(environ)));
}
int execlp_with(const char* name, const char* first, va_list& args) {
  return run(exec::plan_search(name, list_arguments(first, args), exec::to_strings(environ)));
}
int execle_with(const char* path, const char* first, va_list& args) {
  auto argv = list_arguments(first, args);
  return run(exec::plan(path, std::move(argv), exec::to_strings(va_arg(args, char**))));
}

}  // namespace

LAB_VARIADIC(int, execl, 2, (const char* path, const char* first), first, execl_with(path, first, args))
LAB_VARIADIC(int, execlp, 2, (const char* name, const char* first), first, execlp_with(name, first, args))
LAB_VARIADIC(int, execle, 2, (const char* path, const char* first), first, execle_with(path, first, args))

namespace {

// On macOS both objects are pointers.
int actions_init(posix_spawn_file_actions_t** actions) {
  *actions = new posix_spawn_file_actions_t;
  return apple_error(::posix_spawn_file_actions_init(*actions));
}
int actions_destroy(posix_spawn_file_actions_t** actions) {
  const int result = ::posix_spawn_file_actions_destroy(*actions);
  delete *actions;
  return apple_error(result);
}
int actions_dup2(posix_spawn_file_actions_t** actions, int from, int to) {
  return apple_error(::posix_spawn_file_actions_adddup2(*actions, from, to));
}
int actions_close(posix_spawn_file_actions_t** actions, int fd) {
  return apple_error(::posix_spawn_file_actions_addclose(*actions, fd));
}

int spawn(pid_t* pid, const exec::Launch& launch, posix_spawn_file_actions_t** actions) {
  if (launch.error) return apple_error(launch.error);
  pid_t child = 0;
  const int result = ::posix_spawn(&child, launch.file.c_str(), actions ? *actions : nullptr, nullptr,
                                   exec::to_pointers(launch.argv).data(), exec::to_pointers(launch.envp).data());
  if (pid && result == 0) *pid = child;
  return apple_error(result);
}
int apple_spawn(pid_t* pid, const char* path, posix_spawn_file_actions_t** actions, void**, char* const* argv, char* const* envp) {
  return spawn(pid, exec::plan(path, exec::to_strings(argv), exec::to_strings(envp)), actions);
}
int apple_spawnp(pid_t* pid, const char* name, posix_spawn_file_actions_t** actions, void**, char* const* argv, char* const* envp) {
  return spawn(pid, exec::plan_search(name, exec::to_strings(argv), exec::to_strings(envp)), actions);
}
// Attributes (flags, signal sets) of spawned programs stay at their defaults.
int attributes_init(void** attributes) {
  return *attributes = nullptr, 0;
}
int attributes_any(void**, int) {
  return 0;
}

int apple_status(int status) {
  if (WIFSIGNALED(status)) return (status & ~0x7f) | apple_signal(WTERMSIG(status));
  if (WIFSTOPPED(status)) return 0x7f | apple_signal(WSTOPSIG(status)) << 8;
  return status;
}
pid_t apple_waitpid(pid_t pid, int* status, int options) {
  int own = 0;
  const pid_t result = ::waitpid(pid, &own, options & 3);
  if (result > 0 && status) *status = apple_status(own);
  return result;
}
pid_t apple_wait(int* status) {
  return apple_waitpid(-1, status, 0);
}

int apple_getrusage(int who, struct rusage* usage) {
  const int result = ::getrusage(who, usage);
  if (result == 0) usage->ru_maxrss *= 1024;  // bytes there, kilobytes here
  return result;
}

using Handler = void (*)(int);
struct AppleAction {
  void* handler;
  uint32_t mask;
  int flags;
};
AppleAction handlers[65];

void deliver(int number, siginfo_t* info, void* context) {
  const AppleAction& action = handlers[number];
  if (action.flags & 0x40)
    reinterpret_cast<void (*)(int, siginfo_t*, void*)>(action.handler)(apple_signal(number), info, context);
  else
    reinterpret_cast<Handler>(action.handler)(apple_signal(number));
}

sigset_t linux_mask(uint32_t mask) {
  sigset_t out;
  sigemptyset(&out);
  for (int number = 1; number < 32; ++number)
    if (mask >> (number - 1) & 1) sigaddset(&out, linux_signal(number));
  return out;
}

int linux_action_flags(int flags) {
  return (flags & 1 ? SA_ONSTACK : 0) | (flags & 2 ? SA_RESTART : 0) | (flags & 4 ? SA_RESETHAND : 0) | (flags & 8 ? SA_NOCLDSTOP : 0) |
         (flags & 0x10 ? SA_NODEFER : 0) | (flags & 0x20 ? SA_NOCLDWAIT : 0);
}

int apple_sigaction(int apple_number, const AppleAction* action, AppleAction* old) {
  const int number = linux_signal(apple_number);
  if (number < 1 || number > 64) {
    errno = EINVAL;
    return -1;
  }
  if (old) *old = handlers[number];
  if (!action) return 0;
  struct sigaction own {};
  const bool plain = reinterpret_cast<uintptr_t>(action->handler) <= 1;  // SIG_DFL and SIG_IGN
  if (plain) {
    own.sa_handler = reinterpret_cast<Handler>(action->handler);
  } else {
    own.sa_sigaction = deliver;
  }
  own.sa_flags = linux_action_flags(action->flags) | (plain ? 0 : SA_SIGINFO);
  own.sa_mask = linux_mask(action->mask);
  handlers[number] = *action;
  return ::sigaction(number, &own, nullptr);
}

void* apple_signal_function(int number, void* handler) {
  AppleAction action{handler, 0, 2}, old{};
  return apple_sigaction(number, &action, &old) == 0 ? old.handler : reinterpret_cast<void*>(-1L);
}

int apple_sigprocmask(int how, const uint32_t* set, uint32_t* old) {
  sigset_t own = linux_mask(set ? *set : 0), before;
  const int result = ::sigprocmask(how - 1, set ? &own : nullptr, &before);
  if (old) {
    *old = 0;
    for (int number = 1; number < 32; ++number)
      if (sigismember(&before, linux_signal(number)) == 1) *old |= 1u << (number - 1);
  }
  return result;
}

int apple_kill(pid_t pid, int number) {
  return ::kill(pid, linux_signal(number));
}
int apple_raise(int number) {
  return ::raise(linux_signal(number));
}

}  // namespace

SymbolTable process_symbols() {
  static const SystemSymbol table[] = {
      {"_execve", as_address(apple_execve)},
      {"_execv", as_address(apple_execv)},
      {"_execvp", as_address(apple_execvp)},
      {"_execl", as_address(apple_execl)},
      {"_execlp", as_address(apple_execlp)},
      {"_execle", as_address(apple_execle)},
      {"_posix_spawn", as_address(apple_spawn)},
      {"_posix_spawnp", as_address(apple_spawnp)},
      {"_posix_spawn_file_actions_init", as_address(actions_init)},
      {"_posix_spawn_file_actions_destroy", as_address(actions_destroy)},
      {"_posix_spawn_file_actions_adddup2", as_address(actions_dup2)},
      {"_posix_spawn_file_actions_addclose", as_address(actions_close)},
      {"_posix_spawnattr_init", as_address(attributes_init)},
      {"_posix_spawnattr_destroy", as_address(attributes_any)},
      {"_posix_spawnattr_setflags", as_address(attributes_any)},
      {"_fork", as_address(::fork)},
      {"_vfork", as_address(::fork)},
      {"_pipe", as_address(::pipe)},
      {"_waitpid", as_address(apple_waitpid)},
      {"_wait", as_address(apple_wait)},
      {"_getrusage", as_address(apple_getrusage)},
      {"_sigaction", as_address(apple_sigaction)},
      {"_signal", as_address(apple_signal_function)},
      {"_sigprocmask", as_address(apple_sigprocmask)},
      {"_pthread_sigmask", as_address(apple_sigprocmask)},
      {"_kill", as_address(apple_kill)},
      {"_raise", as_address(apple_raise)},
      {"_alarm", as_address(::alarm)},
      {"_abort", as_address(abort_program)},
      {"_exit", as_address(::exit)},
      {"__exit", as_address(::_exit)},
  };
  return table;
}

}  // namespace lab
