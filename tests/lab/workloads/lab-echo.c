// Tells what reached it, byte for byte, and ends as it is told.
//   lab-echo args [ARGUMENT...]        each argument with a NUL behind it
//   lab-echo env                       the environment, one entry per line
//   lab-echo cat                       standard input
//   lab-echo exit STATUS [MS]          closes its output, then ends with STATUS after MS milliseconds
//   lab-echo both                      "out" on standard output, "err" on standard error
//   lab-echo wait                      "ready", then waits for a signal and ends with 100 + its number
//   lab-echo abort
#include "darwin.h"

extern char*** _NSGetEnviron(void);

static volatile int caught;
static void note(int number) { caught = number; }

static void put(const char* bytes, size_t size) {
  while (size > 0) {
    const long written = write(1, bytes, size);
    if (written <= 0) _exit(3);
    bytes += written;
    size -= (size_t)written;
  }
}

static void sleep_ms(int ms) {
  const struct timespec time = {ms / 1000, ms % 1000 * 1000000L};
  nanosleep(&time, NULL);
}

static void cat(void) {
  static char buffer[1 << 16];
  for (;;) {
    const long got = read(0, buffer, sizeof buffer);
    if (got <= 0) return;
    put(buffer, (size_t)got);
  }
}

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  if (!strcmp(what, "args")) {
    for (int i = 2; i < argc; ++i) put(argv[i], strlen(argv[i]) + 1);
  } else if (!strcmp(what, "env")) {
    for (char** entry = *_NSGetEnviron(); *entry; ++entry) put(*entry, strlen(*entry)), put("\n", 1);
  } else if (!strcmp(what, "cat")) {
    cat();
  } else if (!strcmp(what, "exit") && argc > 2) {
    put("said\n", 5);
    close(1), close(2);
    if (argc > 3) sleep_ms(atoi(argv[3]));
    return atoi(argv[2]);
  } else if (!strcmp(what, "both")) {
    put("out\n", 4);
    write(2, "err\n", 4);
  } else if (!strcmp(what, "wait")) {
    signal(SIGINT, note), signal(SIGTERM, note);
    put("ready\n", 6);
    while (!caught) sleep_ms(20);
    return 100 + caught;
  } else if (!strcmp(what, "abort")) {
    abort();
  } else {
    return 2;
  }
  return 0;
}
