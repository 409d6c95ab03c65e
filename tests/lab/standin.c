/* The front of every stand-in: hands its call to the lab's server (server.py), which has Python and all modules loaded already,
   and ends as the call ended. The server's process for this call has our arguments, environment, three streams, folder and
   umask; when we are killed, it is killed. What needs a process of its own, or finds no server, is started the plain way.

   Linked statically: the guest's exec layer leaves it alone, and it starts in well under a millisecond. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { kStreams = 3, kPassed = 4, kMessageMost = 160 * 1024 };

extern char** environ;

/* The absolute path that we were called by: its folder tells which lab and which guest is meant. */
static int called_path(char* path, size_t size) {
  const char* name = (const char*)getauxval(AT_EXECFN);
  if (!name) { return 0; }
  if (name[0] == '/') { return (size_t)snprintf(path, size, "%s", name) < size; }
  char folder[PATH_MAX];
  return getcwd(folder, sizeof folder) && (size_t)snprintf(path, size, "%s/%s", folder, name) < size;
}

/* The lab's folder: above `/vms/NAME/root/…` for a tool of a guest, above `/host/bin` for one of the host. */
static int lab_folder(const char* called, char* folder, size_t size) {
  const char* end = NULL;
  for (const char* at = strstr(called, "/vms/"); at; at = strstr(at + 1, "/vms/")) { end = at; }
  if (!end) { end = strstr(called, "/host/bin/"); }
  return end && (size_t)snprintf(folder, size, "%.*s", (int)(end - called), called) < size;
}

static int has_word(int argc, char** argv, const char* word) {
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], word) == 0) { return 1; }
  }
  return 0;
}

/* Calls that stay, carry streams, start programs of the guest, or run under a preloaded library: each needs its own process. */
static int needs_own_process(const char* tool, int argc, char** argv, int in_guest) {
  if (in_guest) { return strcmp(tool, "sudo") == 0; }
  if (getenv("LD_PRELOAD")) { return 1; }
  if (strcmp(tool, "nc") == 0) { return 1; }
  if (strcmp(tool, "lume") != 0 || argc < 2) { return 0; }
  return (strcmp(argv[1], "run") == 0 && !has_word(argc, argv, "--detach")) || strcmp(argv[1], "serve") == 0 || strcmp(argv[1], "ssh") == 0;
}

/* A process that hangs is deaf to signals, and we are not: those faults take the plain way. */
static int hang_is_set(const char* folder) {
  char path[PATH_MAX], text[65536];
  if ((size_t)snprintf(path, sizeof path, "%s/faults.json", folder) >= sizeof path) { return 1; }
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) { return 0; }
  const ssize_t got = read(fd, text, sizeof text - 1);
  close(fd);
  if (got < 0 || (size_t)got == sizeof text - 1) { return 1; }
  text[got] = 0;
  return strstr(text, "\"hang\"") != NULL;
}

/* Connects to the lab's server. Through /proc, since a socket's path has no room for the path of a deep folder. */
static int connect_server(const char* folder) {
  const int place = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (place < 0) { return -1; }
  const int link = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  struct sockaddr_un name = {.sun_family = AF_UNIX};
  snprintf(name.sun_path, sizeof name.sun_path, "/proc/self/fd/%d/server", place);
  const int failed = link < 0 || connect(link, (struct sockaddr*)&name, sizeof name) != 0;
  close(place);
  if (failed && link >= 0) { close(link); }
  return failed ? -1 : link;
}

/* "COUNT UMASK", the path we were called by, our arguments, our environment: each ended by a NUL. 0 when there is no room. */
static size_t compose(char* message, const char* called, int argc, char** argv) {
  const mode_t mask = umask(0);
  umask(mask);
  size_t length = (size_t)snprintf(message, kMessageMost, "%d %u", argc - 1, (unsigned)mask) + 1;
  const char* first[] = {called};
  const char* const* lists[] = {first, (const char* const*)argv + 1, (const char* const*)environ};
  const size_t counts[] = {1, (size_t)argc - 1, SIZE_MAX};
  for (int list = 0; list < 3; list++) {
    for (size_t i = 0; i < counts[list] && lists[list][i]; i++) {
      const size_t size = strlen(lists[list][i]) + 1;
      if (length + size > kMessageMost) { return 0; }
      memcpy(message + length, lists[list][i], size);
      length += size;
    }
  }
  return length;
}

static int hand_over(int link, const char* message, size_t length) {
  const int folder = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) { return 0; }
  const int passed[kPassed] = {0, 1, 2, folder};
  for (int i = 0; i < kStreams; i++) {
    if (fcntl(i, F_GETFD) < 0) { return 0; }
  }
  union {
    char bytes[CMSG_SPACE(sizeof passed)];
    struct cmsghdr align;
  } control = {{0}};
  struct iovec data = {(void*)message, length};
  struct msghdr parts = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
  struct cmsghdr* head = CMSG_FIRSTHDR(&parts);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof passed);
  memcpy(CMSG_DATA(head), passed, sizeof passed);
  const int sent = sendmsg(link, &parts, MSG_NOSIGNAL) == (ssize_t)length;
  close(folder);
  return sent;
}

/* Ends as the call did. Without an answer the server was killed, and the call with it: trying again could do things twice. */
static _Noreturn void end_alike(int link) {
  int status = 0;
  ssize_t got;
  do { got = recv(link, &status, sizeof status, 0); } while (got < 0 && errno == EINTR);
  if (got == sizeof status && status >= 0) { _exit(status); }
  const int number = got == sizeof status ? -status : SIGKILL;
  const struct rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
  signal(number, SIG_DFL);
  raise(number);
  _exit(128 + number);
}

int main(int argc, char** argv) {
  static char message[kMessageMost];
  char called[PATH_MAX], folder[PATH_MAX];
  if (argc < 1 || !called_path(called, sizeof called)) { return 127; }
  if (lab_folder(called, folder, sizeof folder) &&
      !needs_own_process(strrchr(called, '/') + 1, argc, argv, strstr(called, "/vms/") != NULL) && !hang_is_set(folder)) {
    const int link = connect_server(folder);
    if (link >= 0) {
      const size_t length = compose(message, called, argc, argv);
      if (length && hand_over(link, message, length)) { end_alike(link); }
      close(link);
    }
  }
  char** words = calloc((size_t)argc + 4, sizeof *words);
  if (!words) { return 127; }
  char* head[] = {"/usr/bin/python3", "-IS", LAB_STANDIN, called};
  memcpy(words, head, sizeof head);
  if (argc > 1) { memcpy(words + 4, argv + 1, ((size_t)argc - 1) * sizeof *words); }
  execv(words[0], words);
  perror("standin: /usr/bin/python3");
  return 127;
}
