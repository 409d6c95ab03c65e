#pragma once

/// The few functions of libSystem and libobjc that the injected library and the probe call, declared by hand so that
/// the same text compiles with and without Apple's SDK. The stubs beside this file name exactly these symbols.
///
/// No variadic function is declared with arguments in its variable part: on arm64 Apple passes those on the stack and
/// Linux does not, and the tests execute the same bytes on both. `open` is used without a mode only, new files come
/// from `mkstemp`, and `objc_msgSend` is always cast to the exact prototype of the method.

#include <stddef.h>
#include <stdint.h>

extern "C" {

// libSystem
int open(const char* path, int flags, ...);
long read(int fd, void* buffer, size_t size);
long write(int fd, const void* buffer, size_t size);
int close(int fd);
int mkstemp(char* path_template);
int rename(const char* from, const char* to);
int link(const char* existing, const char* added);
int unlink(const char* path);
char* getcwd(char* buffer, size_t size);
char* getenv(const char* name);
int setenv(const char* name, const char* value, int overwrite);
int unsetenv(const char* name);
int getpid(void);
int sched_yield(void);
unsigned alarm(unsigned seconds);
int proc_pidinfo(int pid, int flavor, uint64_t argument, void* buffer, int size);
int _NSGetExecutablePath(char* buffer, uint32_t* size);
int __cxa_atexit(void (*function)(void*), void* argument, void* library);
void* dlopen(const char* path, int mode);
void* dlsym(void* handle, const char* name);
typedef struct {
  const char* dli_fname;
  void* dli_fbase;
  const char* dli_sname;
  void* dli_saddr;
} Dl_info;
int dladdr(const void* address, Dl_info* info);
void free(void* memory);
int strcmp(const char* left, const char* right);
size_t strlen(const char* text);

// libobjc
typedef struct objc_class* Class;
typedef struct objc_object* id;
typedef struct objc_selector* SEL;
typedef struct objc_method* Method;
typedef void (*IMP)(void);
#if defined(__x86_64__)
typedef signed char BOOL;  // the ABI of Intel processes, Rosetta's included
#else
typedef bool BOOL;
#endif

void objc_msgSend(void);
Class objc_lookUpClass(const char* name);
Class object_getClass(id object);
const char* class_getName(Class cls);
Class class_getSuperclass(Class cls);
BOOL class_respondsToSelector(Class cls, SEL selector);
Method class_getInstanceMethod(Class cls, SEL selector);
IMP class_getMethodImplementation(Class cls, SEL selector);
Method* class_copyMethodList(Class cls, unsigned* count);
BOOL class_addMethod(Class cls, SEL selector, IMP implementation, const char* types);
SEL method_getName(Method method);
const char* method_getTypeEncoding(Method method);
IMP method_getImplementation(Method method);
IMP method_setImplementation(Method method, IMP implementation);
SEL sel_registerName(const char* name);
const char* sel_getName(SEL selector);
}
