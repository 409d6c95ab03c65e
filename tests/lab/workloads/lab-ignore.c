// A program that has nothing to do with Metal. With --serve it stays until it is stopped.
#include "darwin.h"

static volatile bool stopping;
static void stop(int number) { stopping = number != 0; }

int main(int argc, char** argv) {
  signal(SIGTERM, stop);
  printf("lab-ignore: working without any device\n");
  fflush(stdout);
  const struct timespec tick = {0, 50000000};
  while (argc > 1 && !strcmp(argv[1], "--serve") && !stopping) nanosleep(&tick, NULL);
  return 0;
}
