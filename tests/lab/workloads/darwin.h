#pragma once

// The few declarations of macOS that the lab's programs use. Written by hand: no SDK is needed to build them.

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct FILE FILE;
extern FILE* __stdoutp;
extern FILE* __stderrp;
#define stdout __stdoutp
#define stderr __stderrp

int printf(const char* format, ...);
int fprintf(FILE* stream, const char* format, ...);
int vsnprintf(char* out, size_t size, const char* format, va_list args);
int snprintf(char* out, size_t size, const char* format, ...);
int sscanf(const char* text, const char* format, ...);
int fputs(const char* text, FILE* stream);
int fflush(FILE* stream);
FILE* fopen(const char* path, const char* mode);
size_t fread(void* out, size_t unit, size_t count, FILE* stream);
int fclose(FILE* stream);

void* malloc(size_t size);
void* calloc(size_t count, size_t size);
void free(void* memory);
_Noreturn void exit(int status);
_Noreturn void _exit(int status);
_Noreturn void abort(void);
int atoi(const char* text);
char* getenv(const char* name);
int setenv(const char* name, const char* value, int replace);
void* memcpy(void* to, const void* from, size_t size);
void* memset(void* to, int value, size_t size);
int memcmp(const void* a, const void* b, size_t size);
size_t strlen(const char* text);
int strcmp(const char* a, const char* b);
int strncmp(const char* a, const char* b, size_t size);
char* strstr(const char* text, const char* part);
char* strchr(const char* text, int byte);
char* strrchr(const char* text, int byte);
char* strerror(int number);
double sqrt(double value);
int* __error(void);
#define errno (*__error())

struct timespec {
  long seconds, nanoseconds;
};
struct tm {
  int fields[9];
  long offset;
  const char* zone;
};
int clock_gettime(int clock, struct timespec* now);
int nanosleep(const struct timespec* time, struct timespec* rest);
long time(long* out);
struct tm* gmtime_r(const long* seconds, struct tm* out);
size_t strftime(char* out, size_t size, const char* format, const struct tm* time);

int open(const char* path, int flags, ...);
long read(int fd, void* out, size_t size);
long write(int fd, const void* bytes, size_t size);
int close(int fd);
int unlink(const char* path);
int pipe(int* ends);
int dup2(int from, int to);

int getpid(void);
int fork(void);
int execv(const char* path, char* const* argv);
int execve(const char* path, char* const* argv, char* const* envp);
int posix_spawn(int* pid, const char* path, void** actions, void** attributes, char* const* argv, char* const* envp);
int waitpid(int pid, int* status, int options);
int kill(int pid, int signal);
void (*signal(int number, void (*handler)(int)))(int);
#define SIGINT 2
#define SIGTERM 15
#define SIGUSR1 30

struct sockaddr_in {
  uint8_t length, family;
  uint16_t port;
  uint32_t address;
  char zero[8];
};
struct pollfd {
  int fd;
  short events, revents;
};
int socket(int family, int type, int protocol);
int bind(int fd, const void* address, unsigned size);
int listen(int fd, int waiting);
int accept(int fd, void* address, unsigned* size);
int setsockopt(int fd, int level, int option, const void* value, unsigned size);
int poll(struct pollfd* fds, unsigned count, int milliseconds);

typedef struct pthread* pthread_t;
int pthread_create(pthread_t* thread, const void* attributes, void* (*start)(void*), void* argument);
int pthread_join(pthread_t thread, void** result);
typedef struct {
  long signature;
  char opaque[56];
} pthread_mutex_t;
#define PTHREAD_MUTEX_INITIALIZER {0x32AAABA7, {0}}
int pthread_mutex_lock(pthread_mutex_t* mutex);
int pthread_mutex_unlock(pthread_mutex_t* mutex);

void* dlopen(const char* path, int mode);
void* dlsym(void* handle, const char* name);
uint32_t _dyld_image_count(void);
const char* _dyld_get_image_name(uint32_t index);
int _NSGetExecutablePath(char* buffer, uint32_t* size);

typedef struct objc_object* id;
typedef struct objc_selector* SEL;
typedef struct objc_class* Class;
#if defined(__x86_64__)
typedef signed char BOOL;
#else
typedef bool BOOL;
#endif
void objc_msgSend(void);
Class objc_lookUpClass(const char* name);
Class object_getClass(id object);
const char* class_getName(Class type);
SEL sel_registerName(const char* name);
BOOL class_respondsToSelector(Class type, SEL selector);
