/* Preloaded: connect() of lumelift itself fails with EHOSTUNREACH, as under macOS's Local Network privacy, while programs that it
 * starts get through. Part of the rehearsal lab. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

int connect(int fd, const struct sockaddr *address, socklen_t length) {
  if (address->sa_family == AF_INET && strcmp(program_invocation_short_name, "lumelift") == 0) {
    errno = EHOSTUNREACH;
    return -1;
  }
  int (*next)(int, const struct sockaddr *, socklen_t);
  *(void **)&next = dlsym(RTLD_NEXT, "connect");
  return next(fd, address, length);
}
