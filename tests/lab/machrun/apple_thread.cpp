// POSIX threads: macOS marks a statically initialised object by a signature word where glibc wants zeroes, and some
// objects are smaller there. So each one gets a glibc object of its own at first use, its address kept behind the
// signature.
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "machrun/apple_errno.hpp"
#include "machrun/symbol_tables.hpp"

namespace lab {
namespace {

struct Shell {  // the first 16 bytes of every Apple object
  long signature;
  std::atomic<void*> inner;
};

template <typename T>
T* inner(Shell* shell, void (*make)(T*)) {
  if (void* there = shell->inner.load(std::memory_order_acquire)) return static_cast<T*>(there);
  auto* fresh = new T;
  make(fresh);
  void* expected = nullptr;
  if (shell->inner.compare_exchange_strong(expected, fresh, std::memory_order_acq_rel)) return fresh;
  delete fresh;
  return static_cast<T*>(expected);
}

constexpr long kRecursiveSignature = 0x32AAABA2;

pthread_mutex_t* mutex_of(Shell* shell) {
  // A static recursive mutex has a signature of its own.
  if (shell->signature == kRecursiveSignature)
    return inner<pthread_mutex_t>(shell, [](pthread_mutex_t* m) { *m = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP; });
  return inner<pthread_mutex_t>(shell, [](pthread_mutex_t* m) { *m = PTHREAD_MUTEX_INITIALIZER; });
}
pthread_cond_t* cond_of(Shell* shell) {
  return inner<pthread_cond_t>(shell, [](pthread_cond_t* c) { *c = PTHREAD_COND_INITIALIZER; });
}
pthread_rwlock_t* rwlock_of(Shell* shell) {
  return inner<pthread_rwlock_t>(shell, [](pthread_rwlock_t* l) { *l = PTHREAD_RWLOCK_INITIALIZER; });
}

// Results are error numbers, so they are translated here and not through errno.
int mutex_init(Shell* shell, const Shell* attributes) {
  shell->signature = attributes && attributes->signature == kRecursiveSignature ? kRecursiveSignature : 0x32AAABA7;
  shell->inner = nullptr;
  return 0;
}
int mutex_destroy(Shell* shell) {
  delete static_cast<pthread_mutex_t*>(shell->inner.exchange(nullptr));
  return 0;
}
int mutex_lock(Shell* shell) {
  return apple_error(::pthread_mutex_lock(mutex_of(shell)));
}
int mutex_trylock(Shell* shell) {
  return apple_error(::pthread_mutex_trylock(mutex_of(shell)));
}
int mutex_unlock(Shell* shell) {
  return apple_error(::pthread_mutex_unlock(mutex_of(shell)));
}
int mutexattr_init(Shell* attributes) {
  return attributes->signature = 0, 0;
}
int mutexattr_settype(Shell* attributes, int type) {
  return attributes->signature = type == 2 ? kRecursiveSignature : 0, 0;
}
int mutexattr_destroy(Shell*) {
  return 0;
}

int cond_init(Shell* shell, const void*) {
  shell->inner = nullptr;
  return 0;
}
int cond_destroy(Shell* shell) {
  delete static_cast<pthread_cond_t*>(shell->inner.exchange(nullptr));
  return 0;
}
int cond_wait(Shell* cond, Shell* mutex) {
  return apple_error(::pthread_cond_wait(cond_of(cond), mutex_of(mutex)));
}
int cond_timedwait(Shell* cond, Shell* mutex, const timespec* until) {
  return apple_error(::pthread_cond_timedwait(cond_of(cond), mutex_of(mutex), until));
}
int cond_signal(Shell* cond) {
  return apple_error(::pthread_cond_signal(cond_of(cond)));
}
int cond_broadcast(Shell* cond) {
  return apple_error(::pthread_cond_broadcast(cond_of(cond)));
}

int rwlock_init(Shell* shell, const void*) {
  shell->inner = nullptr;
  return 0;
}
int rwlock_destroy(Shell* shell) {
  delete static_cast<pthread_rwlock_t*>(shell->inner.exchange(nullptr));
  return 0;
}
int rwlock_rdlock(Shell* lock) {
  return apple_error(::pthread_rwlock_rdlock(rwlock_of(lock)));
}
int rwlock_wrlock(Shell* lock) {
  return apple_error(::pthread_rwlock_wrlock(rwlock_of(lock)));
}
int rwlock_unlock(Shell* lock) {
  return apple_error(::pthread_rwlock_unlock(rwlock_of(lock)));
}

int once(Shell* shell, void (*function)()) {
  auto* control = inner<pthread_once_t>(shell, [](pthread_once_t* o) { *o = PTHREAD_ONCE_INIT; });
  return apple_error(::pthread_once(control, function));
}

int key_create(unsigned long* key, void (*drop)(void*)) {
  pthread_key_t own = 0;
  const int result = ::pthread_key_create(&own, drop);
  *key = own;
  return apple_error(result);
}
int key_delete(unsigned long key) {
  return apple_error(::pthread_key_delete(static_cast<pthread_key_t>(key)));
}
void* getspecific(unsigned long key) {
  return ::pthread_getspecific(static_cast<pthread_key_t>(key));
}
int setspecific(unsigned long key, const void* value) {
  return apple_error(::pthread_setspecific(static_cast<pthread_key_t>(key), value));
}

int create(pthread_t* thread, const void*, void* (*start)(void*), void* argument) {
  return apple_error(::pthread_create(thread, nullptr, start, argument));
}
int join(pthread_t thread, void** result) {
  return apple_error(::pthread_join(thread, result));
}
int detach(pthread_t thread) {
  return apple_error(::pthread_detach(thread));
}
int setname(const char* name) {
  return apple_error(::pthread_setname_np(::pthread_self(), name));
}
int threadid(pthread_t, uint64_t* id) {
  return *id = static_cast<uint64_t>(::syscall(SYS_gettid)), 0;
}
/// A port is a number that is the thread's own.
uint32_t port(pthread_t) {
  return static_cast<uint32_t>(::syscall(SYS_gettid));
}
int is_main() {
  return ::getpid() == static_cast<pid_t>(::syscall(SYS_gettid));
}
// The sizes of attribute objects suffice, and threads of loaded programs keep the default stack.
int attr_ignore(void*, size_t) {
  return 0;
}
int attr_init(void*) {
  return 0;
}

void unfair_lock(std::atomic<uint32_t>* lock) {
  uint32_t free = 0;
  while (!lock->compare_exchange_weak(free, 1, std::memory_order_acquire)) {
    free = 0;
    ::sched_yield();
  }
}
bool unfair_trylock(std::atomic<uint32_t>* lock) {
  uint32_t free = 0;
  return lock->compare_exchange_strong(free, 1, std::memory_order_acquire);
}
void unfair_unlock(std::atomic<uint32_t>* lock) {
  lock->store(0, std::memory_order_release);
}

void dispatch_once(std::atomic<long>* predicate, void* context, void (*function)(void*)) {
  // 0: not yet, 1: running, ~0: done, as on macOS.
  long expected = 0;
  if (predicate->compare_exchange_strong(expected, 1)) {
    function(context);
    predicate->store(~0L, std::memory_order_release);
  }
  while (predicate->load(std::memory_order_acquire) != ~0L) ::sched_yield();
}

}  // namespace

SymbolTable thread_symbols() {
  static const SystemSymbol table[] = {
      {"_pthread_mutex_init", as_address(mutex_init)},
      {"_pthread_mutex_destroy", as_address(mutex_destroy)},
      {"_pthread_mutex_lock", as_address(mutex_lock)},
      {"_pthread_mutex_trylock", as_address(mutex_trylock)},
      {"_pthread_mutex_unlock", as_address(mutex_unlock)},
      {"_pthread_mutexattr_init", as_address(mutexattr_init)},
      {"_pthread_mutexattr_settype", as_address(mutexattr_settype)},
      {"_pthread_mutexattr_destroy", as_address(mutexattr_destroy)},
      {"_pthread_cond_init", as_address(cond_init)},
      {"_pthread_cond_destroy", as_address(cond_destroy)},
      {"_pthread_cond_wait", as_address(cond_wait)},
      {"_pthread_cond_timedwait", as_address(cond_timedwait)},
      {"_pthread_cond_signal", as_address(cond_signal)},
      {"_pthread_cond_broadcast", as_address(cond_broadcast)},
      {"_pthread_rwlock_init", as_address(rwlock_init)},
      {"_pthread_rwlock_destroy", as_address(rwlock_destroy)},
      {"_pthread_rwlock_rdlock", as_address(rwlock_rdlock)},
      {"_pthread_rwlock_wrlock", as_address(rwlock_wrlock)},
      {"_pthread_rwlock_unlock", as_address(rwlock_unlock)},
      {"_pthread_once", as_address(once)},
      {"_pthread_key_create", as_address(key_create)},
      {"_pthread_key_delete", as_address(key_delete)},
      {"_pthread_getspecific", as_address(getspecific)},
      {"_pthread_setspecific", as_address(setspecific)},
      {"_pthread_create", as_address(create)},
      {"_pthread_join", as_address(join)},
      {"_pthread_detach", as_address(detach)},
      {"_pthread_self", as_address(::pthread_self)},
      {"_pthread_setname_np", as_address(setname)},
      {"_pthread_threadid_np", as_address(threadid)},
      {"_pthread_mach_thread_np", as_address(port)},
      {"_pthread_main_np", as_address(is_main)},
      {"_pthread_attr_init", as_address(attr_init)},
      {"_pthread_attr_destroy", as_address(attr_init)},
      {"_pthread_attr_setstacksize", as_address(attr_ignore)},
      {"_sched_yield", as_address(::sched_yield)},
      {"_os_unfair_lock_lock", as_address(unfair_lock)},
      {"_os_unfair_lock_trylock", as_address(unfair_trylock)},
      {"_os_unfair_lock_unlock", as_address(unfair_unlock)},
      {"_dispatch_once_f", as_address(dispatch_once)},
  };
  return table;
}

}  // namespace lab
