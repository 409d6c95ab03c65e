/* Preloaded into lumelift alone by the crash test: kills it before or after the n-th call that makes its journal durable or
   changes it on disk. SQLite reaches these calls through libc, so nothing of the product is built differently.

   STRIKE_NAME    part of the path of the files that matter
   STRIKE_AT      number of the call to strike at, from 1; 0: only count
   STRIKE_SIDE    before | after; full: from this call on nothing more can be written, since the disk is full
   STRIKE_REPORT  file that gets the number of calls when the process ends by itself
   STRIKE_CLOCK   file that says by how many seconds the wall clock is off; read at each look at the clock
   STRIKE_TRACE   file that gets each call and its bytes, and each start of a program, for replaying a loss of power */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static long at, counted;
static int after, full, trace = -1;
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
  full = side && strcmp(side, "full") == 0;
  const char* file = getenv("STRIKE_TRACE");
  if (file) { trace = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600); }
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

/* A folder's flush makes an unlink in it durable: of no interest but to a trace. */
static int sync_matters(int fd) {
  struct stat about;
  return fd_matters(fd) || (trace >= 0 && fstat(fd, &about) == 0 && S_ISDIR(about.st_mode));
}

static void strike(int matters, int now_after) {
  if (!matters) { return; }
  if (!now_after) { ++counted; }
  if (counted == at && after == now_after && !full) { kill(getpid(), SIGKILL); }
}

static int no_room(int matters) {
  if (!matters || !full || counted < at) { return 0; }
  errno = ENOSPC;
  return 1;
}

/* One line of text, then the bytes. Recorded after the call: what failed has not happened. */
static void record(const char* what, const char* path, long long offset, const void* bytes, size_t size) {
  if (trace < 0) { return; }
  dprintf(trace, "%s %lld %zu %s\n", what, offset, size, path);
  for (size_t done = 0; done < size;) {
    const ssize_t put = write(trace, (const char*)bytes + done, size - done);
    if (put <= 0) { return; }
    done += (size_t)put;
  }
}

static void record_fd(const char* what, int fd, long long offset, const void* bytes, size_t size) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) { return; }
  path[length] = 0;
  record(what, path, offset, bytes, size);
}

static long clock_shift(void) {
  const char* file = getenv("STRIKE_CLOCK");
  char text[32] = "";
  const int fd = file ? open(file, O_RDONLY | O_CLOEXEC) : -1;
  if (fd >= 0) {
    if (read(fd, text, sizeof text - 1) < 0) { text[0] = 0; }
    close(fd);
  }
  return atol(text);
}

#define REAL(function) ((__typeof__(&function))dlsym(RTLD_NEXT, #function))
#define AROUND(matters, type, call, note) \
  const int meant = matters;              \
  strike(meant, 0);                       \
  if (no_room(meant)) { return -1; }      \
  const type result = call;               \
  if (meant && result >= 0) { note; }     \
  strike(meant, 1);                       \
  return result

/* Asked of the kernel: a sanitizer's allocator looks at the clock too, and finding libc's function may allocate. */
int clock_gettime(clockid_t clock, struct timespec* now) {
  const int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (result == 0 && clock == CLOCK_REALTIME) { now->tv_sec += clock_shift(); }
  return result;
}

int fsync(int fd) { AROUND(sync_matters(fd), int, REAL(fsync)(fd), record_fd("sync", fd, 0, "", 0)); }
int fdatasync(int fd) { AROUND(sync_matters(fd), int, REAL(fdatasync)(fd), record_fd("sync", fd, 0, "", 0)); }
int ftruncate(int fd, off_t size) { AROUND(fd_matters(fd), int, REAL(ftruncate)(fd, size), record_fd("cut", fd, size, "", 0)); }
int ftruncate64(int fd, off64_t size) { AROUND(fd_matters(fd), int, REAL(ftruncate64)(fd, size), record_fd("cut", fd, size, "", 0)); }
ssize_t pwrite(int fd, const void* bytes, size_t size, off_t offset) {
  AROUND(fd_matters(fd), ssize_t, REAL(pwrite)(fd, bytes, size, offset), record_fd("write", fd, offset, bytes, (size_t)result));
}
ssize_t pwrite64(int fd, const void* bytes, size_t size, off64_t offset) {
  AROUND(fd_matters(fd), ssize_t, REAL(pwrite64)(fd, bytes, size, offset), record_fd("write", fd, offset, bytes, (size_t)result));
}
int unlink(const char* path) { AROUND(path_matters(path), int, REAL(unlink)(path), record("unlink", path, 0, "", 0)); }

int posix_spawnp(pid_t* pid, const char* file, const posix_spawn_file_actions_t* actions, const posix_spawnattr_t* attributes,
                 char* const argv[], char* const environment[]) {
  char line[4096];
  size_t used = 0;
  for (char* const* word = argv; *word && used < sizeof line - 1; ++word) {
    used += (size_t)snprintf(line + used, sizeof line - used, "%s%s", used ? " " : "", *word);
  }
  record("start", line, 0, "", 0);
  return REAL(posix_spawnp)(pid, file, actions, attributes, argv, environment);
}
