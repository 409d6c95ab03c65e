/* Preloaded into lumelift alone by the crash test: kills it before or after the n-th call that makes its journal durable or
   changes it on disk. SQLite reaches these calls through libc, so nothing of the product is built differently.

   STRIKE_NAME    part of the path of the files that matter
   STRIKE_AT      number of the call to strike at, from 1; 0: only count
   STRIKE_SIDE    before | after
   STRIKE_REPORT  file that gets the number of calls when the process ends by itself */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static long at, counted;
static int after;
static char name[256], report[4096];

static void copy(char* into, size_t size, const char* variable) {
  const char* value = getenv(variable);
  if (value) { snprintf(into, size, "%s", value); }
}

__attribute__((constructor)) static void prepare(void) {
  copy(name, sizeof name, "STRIKE_NAME");
  copy(report, sizeof report, "STRIKE_REPORT");
  const char* number = getenv("STRIKE_AT");
  const char* side = getenv("STRIKE_SIDE");
  at = number ? atol(number) : 0;
  after = side && strcmp(side, "after") == 0;
  unsetenv("LD_PRELOAD"); /* no child of lumelift is meant */
}

__attribute__((destructor)) static void tell(void) {
  FILE* file = report[0] ? fopen(report, "w") : NULL;
  if (!file) { return; }
  fprintf(file, "%ld\n", counted);
  fclose(file);
}

static int path_matters(const char* path) { return name[0] && path && strstr(path, name) != NULL; }

static int fd_matters(int fd) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) { return 0; }
  path[length] = 0;
  return path_matters(path);
}

static void strike(int matters, int now_after) {
  if (!matters) { return; }
  if (!now_after) { ++counted; }
  if (counted == at && after == now_after) { kill(getpid(), SIGKILL); }
}

#define REAL(function) ((__typeof__(&function))dlsym(RTLD_NEXT, #function))
#define AROUND(matters, type, call)  \
  const int meant = matters;         \
  strike(meant, 0);                  \
  const type result = call;          \
  strike(meant, 1);                  \
  return result

int fsync(int fd) { AROUND(fd_matters(fd), int, REAL(fsync)(fd)); }
int fdatasync(int fd) { AROUND(fd_matters(fd), int, REAL(fdatasync)(fd)); }
int ftruncate(int fd, off_t size) { AROUND(fd_matters(fd), int, REAL(ftruncate)(fd, size)); }
int ftruncate64(int fd, off64_t size) { AROUND(fd_matters(fd), int, REAL(ftruncate64)(fd, size)); }
int unlink(const char* path) { AROUND(path_matters(path), int, REAL(unlink)(path)); }
ssize_t pwrite(int fd, const void* bytes, size_t size, off_t offset) {
  AROUND(fd_matters(fd), ssize_t, REAL(pwrite)(fd, bytes, size, offset));
}
ssize_t pwrite64(int fd, const void* bytes, size_t size, off64_t offset) {
  AROUND(fd_matters(fd), ssize_t, REAL(pwrite64)(fd, bytes, size, offset));
}
