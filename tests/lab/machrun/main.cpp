// machrun: runs a macOS program (a Mach-O executable) on Linux, as far as the rehearsal lab needs it.
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "exec/launch.hpp"
#include "machrun/dyld.hpp"
#include "metal/framework.hpp"

namespace {

[[noreturn]] void usage() {
  std::fprintf(stderr,
               "usage: machrun [--argv0 NAME] [--absent-at-call] [--] FILE [ARGUMENT...]\n       machrun --dyld-death MESSAGE | --abort\n");
  std::exit(2);
}

}  // namespace

int main(int argc, char** argv) {
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);  // programs that crash on purpose leave no core file
  char* name = nullptr;
  int at = 1;
  for (; at < argc && std::strncmp(argv[at], "--", 2) == 0; ++at) {
    if (std::strcmp(argv[at], "--") == 0) {
      ++at;
      break;
    }
    if (std::strcmp(argv[at], "--abort") == 0) lab::abort_program();
    if (std::strcmp(argv[at], "--absent-at-call") == 0) {
      lab::Dyld::instance().let_absent_functions_pass();
      continue;
    }
    if (at + 1 >= argc) usage();
    if (std::strcmp(argv[at], "--dyld-death") == 0) lab::dyld_death(argv[at + 1]);
    if (std::strcmp(argv[at], "--argv0") != 0) usage();
    name = argv[++at];
  }
  if (at >= argc) usage();
  lab::exec::hide_lab_variables();
  lab::metal::read_scenario(lab::exec::LabEnvironment::instance().get("LAB_METAL"));
  const char* file = argv[at];
  argv[at] = name ? name : argv[at];
  lab::Dyld::instance().launch(file, argc - at, argv + at);
  std::exit(lab::Dyld::instance().run_main());
}
