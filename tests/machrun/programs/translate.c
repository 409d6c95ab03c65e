// Asks libSystem for what differs between macOS and Linux and checks the answers against macOS's headers.
#include "lab/workloads/darwin.h"

extern int unlink(const char*), rmdir(const char*), mkdir(const char*, unsigned short),
    symlink(const char*, const char*);
extern int fcntl(int, int, ...), openat(int, const char*, int, ...), access(const char*, int),
    sscanf(const char*, const char*, ...);
extern int sprintf(char*, const char*, ...), asprintf(char**, const char*, ...), dprintf(int, const char*, ...);
extern void* mmap(void*, size_t, int, int, int, long);
extern int munmap(void*, size_t), raise(int), atexit(void (*)(void)), execl(const char*, const char*, ...);
extern void qsort(void*, size_t, size_t, int (*)(const void*, const void*));
extern long sysconf(int), strtol(const char*, char**, int);
extern int pthread_once(void*, void (*)(void)), pthread_mutex_trylock(pthread_mutex_t*),
    sigaction(int, const void*, void*);
extern int pthread_cond_wait(void*, pthread_mutex_t*), pthread_cond_broadcast(void*);
extern int proc_pidinfo(int, int, uint64_t, void*, int), sysctlbyname(const char*, void*, size_t*, void*, size_t);
extern void* opendir(const char*);
extern void* newlocale(int, const char*, void*);
extern double strtod_l(const char*, char**, void*);
extern int __maskrune(int, unsigned long), __toupper(int), snprintf_l(char*, size_t, void*, const char*, ...);
extern const char rune_table[] __asm("__DefaultRuneLocale");
extern int closedir(void*);
struct stat_ {
  int dev;
  unsigned short mode, links;
  uint64_t ino;
  unsigned uid, gid;
  int rdev;
  struct timespec access, modified, changed, born;
  long size, blocks;
  int block_size;
  unsigned flags, generation, spare;
  long more[2];
};
struct dirent_ {
  uint64_t ino, offset;
  unsigned short record, length;
  unsigned char type;
  char name[1024];
};
#if defined(__x86_64__)
extern int stat_(const char*, struct stat_*) __asm("_stat$INODE64");
extern struct dirent_* readdir_(void*) __asm("_readdir$INODE64");
#else
extern int stat_(const char*, struct stat_*) __asm("_stat");
extern struct dirent_* readdir_(void*) __asm("_readdir");
#endif

static int failures;
static void check(const char* what, long got, long want) {
  if (got != want) ++failures;
  printf("%s %s: %ld, expected %ld\n", got == want ? "ok" : "FAIL", what, got, want);
}
static void same(const char* what, const char* got, const char* want) {
  if (strcmp(got, want) != 0) ++failures;
  printf("%s %s: '%s', expected '%s'\n", strcmp(got, want) ? "FAIL" : "ok", what, got, want);
}

static int format_list(char* out, size_t size, const char* format, ...) {
  va_list args;
  va_start(args, format);
  const int result = vsnprintf(out, size, format, args);
  va_end(args);
  return result;
}

static void formatted(void) {
  char text[200], *made = NULL;
  snprintf(text, sizeof text, "%d %s %.2f %c %ld %d %d %d %.1f %d", 1, "two", 3.5, '4', 5L, 6, 7, 8, 9.5, 10);
  same("snprintf", text, "1 two 3.50 4 5 6 7 8 9.5 10");
  format_list(text, sizeof text, "%s/%.3f/%lld/%x", "a", 0.125, 1234567890123LL, 255);
  same("vsnprintf", text, "a/0.125/1234567890123/ff");
  sprintf(text, "%5d|%-5s|%05.1f", 42, "ab", 2.25);
  same("sprintf", text, "   42|ab   |002.2");
  asprintf(&made, "%s-%d", "made", 7);
  same("asprintf", made, "made-7");
  int number = 0;
  double real = 0;
  char word[16];
  check("sscanf", sscanf("12 word 2.5", "%d %15s %lf", &number, word, &real), 3);
  check("sscanf integer", number, 12);
  check("sscanf real", (long)(real * 10), 25);
  same("strerror", strerror(35), "Resource temporarily unavailable");
}

static void files(void) {
  struct stat_ info;
  check("create", (unlink("t.txt"), open("t.txt", 0x1 | 0x200 | 0x800, 0640)) > 2, 1);
  check("exclusive", open("t.txt", 0x1 | 0x200 | 0x800, 0640), -1);
  check("EEXIST", errno, 17);
  int fd = openat(-2, "t.txt", 0x1 | 0x8);
  check("append", write(fd, "hello", 5), 5);
  check("F_GETFL", fcntl(fd, 3) & 0xf, 0x9);
  close(fd);
  check("stat", stat_("t.txt", &info), 0);
  check("st_size", info.size, 5);
  check("st_mode", info.mode, 0100640);
  check("st_mtime", info.modified.seconds > 1700000000, 1);
  check("truncate", close(open("t.txt", 0x2 | 0x400)), 0);
  stat_("t.txt", &info);
  check("size after O_TRUNC", info.size, 0);
  mkdir("d", 0700);
  close(open("d/one", 0x201, 0600));
  check("rmdir", rmdir("d"), -1);
  check("ENOTEMPTY", errno, 66);
  void* folder = opendir("d");
  int seen = 0;
  for (struct dirent_* e; (e = readdir_(folder));) seen += !strcmp(e->name, "one") && e->length == 3 && e->type == 8;
  check("readdir", seen, 1);
  closedir(folder);
  symlink("loop", "loop");
  check("loop", open("loop", 0), -1);
  check("ELOOP", errno, 62);
  errno = 0;
  check("errno is cleared", errno, 0);
  int ends[2];
  char byte;
  pipe(ends);
  fcntl(ends[0], 4, 0x4);
  check("nonblocking read", read(ends[0], &byte, 1), -1);
  check("EAGAIN", errno, 35);
  check("close on exec", fcntl(fcntl(0, 67, 20), 1), 1);
  check("F_FULLFSYNC", fcntl(open("t.txt", 2), 51), 0);
  struct { long start, length; int pid; short type, whence; } lock = {0, 0, 0, 3, 0};
  check("F_SETLK", fcntl(open("t.txt", 2), 8, &lock), 0);
  char* memory = mmap(NULL, 8192, 3, 0x1002, -1, 0);
  check("mmap anonymous", memory[5000], 0);
  munmap(memory, 8192);
}

static volatile int last_signal;
static void remember(int number) { last_signal = number; }

static void signals_and_children(void) {
  signal(30, remember);
  raise(30);
  check("SIGUSR1", last_signal, 30);
  struct { void* handler; unsigned mask; int flags; } action = {(void*)remember, 0, 2};
  sigaction(20, &action, NULL);
  int status = 0, pid = fork();
  if (pid == 0) {
    signal(31, NULL);
    kill(getpid(), 31);
    _exit(1);
  }
  check("waitpid", waitpid(pid, &status, 0), pid);
  check("killed by SIGUSR2", status & 0x7f, 31);
  check("SIGCHLD", last_signal, 20);
  pid = fork();
  if (pid == 0) {
    execl("/bin/nothing-there", "nothing", "a", (char*)NULL);
    _exit(errno);
  }
  waitpid(pid, &status, 0);
  check("exec of nothing", status >> 8, 2);
}

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static struct { long signature; char opaque[40]; } ready = {0x3CB0B1BB, {0}};
static struct { long signature; char opaque[8]; } once = {0x30B1BCBA, {0}};
static int counter, once_count, turn;
static void count_once(void) { ++once_count; }
// Initial content, alignment, and zeroes that have no room in the file.
static _Thread_local int own_count = 7;
static _Thread_local _Alignas(16) char own_room[40];
static int own_sum;
static void* add(void* unused) {
  pthread_once(&once, count_once);
  const double before = 2.5;  // in a register that the variable's address must not cost
  own_room[39] += 1;
  own_count += own_room[39];
  for (int i = 0; i < 5000; ++i) {
    pthread_mutex_lock(&gate);
    ++counter;
    pthread_mutex_unlock(&gate);
  }
  pthread_mutex_lock(&gate);
  own_sum += (int)(own_count * before);
  ++turn;
  pthread_cond_broadcast(&ready);
  pthread_mutex_unlock(&gate);
  return unused;
}

static void threads(void) {
  pthread_t made[4];
  for (int i = 0; i < 4; ++i) pthread_create(&made[i], NULL, add, NULL);
  pthread_mutex_lock(&gate);
  while (turn < 4) pthread_cond_wait(&ready, &gate);
  check("trylock held", (pthread_mutex_unlock(&gate), pthread_mutex_lock(&gate), pthread_mutex_trylock(&gate)), 16);
  pthread_mutex_unlock(&gate);
  for (int i = 0; i < 4; ++i) pthread_join(made[i], NULL);
  check("mutex", counter, 20000);
  check("once", once_count, 1);
  check("thread-local in four threads", own_sum, 80);
  check("thread-local here", own_count + own_room[39], 7);
}

static int backwards(const void* a, const void* b) { return *(const int*)b - *(const int*)a; }

static void locales(void) {
  void* locale = newlocale(0x3f, "C", NULL);
  char* end = NULL;
  check("strtod_l", (long)(strtod_l("2.5x", &end, locale) * 10), 25);
  same("its rest", end, "x");
  check("maskrune digit", __maskrune('7', 0x400) != 0, 1);
  check("maskrune other", __maskrune('x', 0x400), 0);
  check("toupper", __toupper('q'), 'Q');
  check("class table", ((const unsigned*)(rune_table + 60))['A'] & 0x8100, 0x8100);
  char text[40];
  check("snprintf_l", snprintf_l(text, sizeof text, locale, "%d %s", 5, "words"), 7);
  same("snprintf_l's text", text, "5 words");
}

static void rest(void) {
  int numbers[] = {3, 1, 2};
  qsort(numbers, 3, sizeof(int), backwards);
  check("qsort", numbers[0] * 100 + numbers[1] * 10 + numbers[2], 321);
  check("page size", sysconf(29) >= 4096, 1);
  unsigned char info[136];
  check("proc_pidinfo", proc_pidinfo(getpid(), 3, 0, info, sizeof info), 136);
  int arm = 0;
  size_t size = sizeof arm;
  check("sysctl", sysctlbyname("hw.optional.arm64", &arm, &size, NULL, 0), 0);
  check("hw.optional.arm64", arm, 1);
  errno = 0;
  check("unknown sysctl", sysctlbyname("no.such", &arm, &size, NULL, 0), -1);
  check("ENOENT", errno, 2);
  check("dlsym", dlsym((void*)-2L, "no_such_function") == NULL, 1);
  check("dlopen", dlopen("/System/Library/Frameworks/Nothing.framework/Nothing", 1) == NULL, 1);
}

static void last(void) { printf("atexit: %d failures\n", failures); }

int main(int argc, char** argv, char** envp, char** apple) {
  atexit(last);
  check("argc", argc, 3);
  same("argv[2]", argv[2], "b c");
  check("envp", envp[0] != NULL, 1);
  check("apple", strncmp(apple[0], "executable_path=/", 17), 0);
  formatted();
  files();
  signals_and_children();
  threads();
  locales();
  rest();
  return failures != 0;
}
