// A program that believes what the device promises, and dies of it.
//   default          aborts when Apple7 is offered, as a runtime does whose first residency set then fails
//   --chatter        the same, behind 120 kB of text
//   --out-of-memory  fails by a text and status 1, whatever the device offers
#include "metal.h"

int main(int argc, char** argv) {
  if (argc > 1 && !strcmp(argv[1], "--out-of-memory")) {
    fputs(
        "RuntimeError: MPS backend out of memory (MPS allocated: 0 bytes, other allocations: 0 bytes, max allowed: "
        "7.93 GB)\n",
        stderr);
    return 1;
  }
  if (argc > 1 && !strcmp(argv[1], "--chatter")) {
    for (int i = 0; i < 3000; ++i) fputs("one of very many lines of a chatty log\n", stderr);
  }
  if (supports(default_device(), 1007)) {
    fputs("[metal::Device] Unable to construct residency set.\n", stderr);
    abort();
  }
  printf("lab-crash: careful path\n");
  return 0;
}
