#include <fcntl.h>
#include <unistd.h>

#include <initializer_list>

#include "cli/app.hpp"

namespace {

/// A standard stream that is closed would be what we open next: a pipe to a child, the journal. Nothing can be written to the
/// stand-in for standard output, so that a lost result is noticed.
void fill_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) < 0) {
      // The lowest free number is this one. Without close-on-exec: it is what it stands in for.
      (void)!::open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  fill_standard_streams();
  return lumelift::run_app(argc, argv);
}
