/* Preloaded: connect() of lumelift itself fails with EHOSTUNREACH, as under macOS's Local Network privacy, while programs that it
 * starts get through. LAB_UNREACHABLE names the only address that is meant. Part of the rehearsal lab. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static int meant(const struct sockaddr *address) {
  const char *only = getenv("LAB_UNREACHABLE");
  char text[INET_ADDRSTRLEN];
  return only == NULL || strcmp(only, inet_ntop(AF_INET, &((const struct sockaddr_in *)address)->sin_addr, text, sizeof text)) == 0;
}

int connect(int fd, const struct sockaddr *address, socklen_t length) {
  if (address->sa_family == AF_INET && strcmp(program_invocation_short_name, "lumelift") == 0 && meant(address)) {
    errno = EHOSTUNREACH;
    return -1;
  }
  int (*next)(int, const struct sockaddr *, socklen_t);
  *(void **)&next = dlsym(RTLD_NEXT, "connect");
  return next(fd, address, length);
}
