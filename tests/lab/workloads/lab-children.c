// Starts a child and says of both whether they were injected.
//   lab-children [--spawn|--exec|--keep-nothing] [PROGRAM [ARGUMENT...]]     without PROGRAM: itself
#include "metal.h"

extern char*** _NSGetEnviron(void);

static const char* inserted_library(void) {
  for (uint32_t i = 1; i < _dyld_image_count(); ++i) {
    const char* name = _dyld_get_image_name(i);
    const char* listed = getenv("DYLD_INSERT_LIBRARIES");
    if (strstr(name, "metal") || (listed && strstr(listed, name))) return name;
  }
  return NULL;
}

static void report(const char* role) {
  const char *variable = getenv("DYLD_INSERT_LIBRARIES"), *library = inserted_library();
  printf("{\"role\":\"%s\",\"pid\":%d,\"injected\":%s,\"library\":\"%s\",\"variable\":%s,\"apple7\":%s}\n", role,
         getpid(), library ? "true" : "false", library ? library : "", variable ? "true" : "false",
         supports(default_device(), 1007) ? "true" : "false");
  fflush(stdout);
}

int main(int argc, char** argv) {
  if (argc > 1 && !strcmp(argv[1], "--child")) return report("child"), 0;
  bool by_spawn = true;
  char* nothing[] = {NULL};
  char** environment = *_NSGetEnviron();
  int first = 1;
  for (; first < argc && !strncmp(argv[first], "--", 2); ++first) {
    if (!strcmp(argv[first], "--exec")) by_spawn = false;
    else if (!strcmp(argv[first], "--keep-nothing")) environment = nothing;
    else if (strcmp(argv[first], "--spawn"))
      return fprintf(stderr, "usage: lab-children [--spawn|--exec|--keep-nothing] [PROGRAM]\n"), 2;
  }
  report("parent");
  static char own[1024];
  uint32_t size = sizeof own;
  if (_NSGetExecutablePath(own, &size) != 0) return 2;
  char* child[] = {own, "--child", NULL};
  char** command = first < argc ? argv + first : child;
  // Making the device may have changed the environment that is read again here.
  if (environment != nothing) environment = *_NSGetEnviron();
  int pid = 0, status = 0;
  if (by_spawn) {
    const int error = posix_spawn(&pid, command[0], NULL, NULL, command, environment);
    if (error) return fprintf(stderr, "lab-children: %s: %s\n", command[0], strerror(error)), 127;
  } else if ((pid = fork()) == 0) {
    execve(command[0], command, environment);
    fprintf(stderr, "lab-children: %s: %s\n", command[0], strerror(errno));
    _exit(127);
  }
  if (waitpid(pid, &status, 0) != pid) return 2;
  if (status & 0x7f) printf("{\"role\":\"end\",\"signal\":%d}\n", status & 0x7f);
  else printf("{\"role\":\"end\",\"status\":%d}\n", status >> 8);
  return status & 0x7f ? 128 + (status & 0x7f) : status >> 8;
}
