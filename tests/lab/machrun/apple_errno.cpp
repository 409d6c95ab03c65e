#include "machrun/apple_errno.hpp"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "machrun/symbol_tables.hpp"

namespace lab {
namespace {

struct Pair {
  int linux_number, apple_number;
};

constexpr Pair kErrors[] = {
    {EAGAIN, 35},          {EINPROGRESS, 36},  {EALREADY, 37},     {ENOTSOCK, 38},
    {EDESTADDRREQ, 39},    {EMSGSIZE, 40},     {EPROTOTYPE, 41},   {ENOPROTOOPT, 42},
    {EPROTONOSUPPORT, 43}, {EOPNOTSUPP, 102},  {EAFNOSUPPORT, 47}, {EADDRINUSE, 48},
    {EADDRNOTAVAIL, 49},   {ENETDOWN, 50},     {ENETUNREACH, 51},  {ENETRESET, 52},
    {ECONNABORTED, 53},    {ECONNRESET, 54},   {ENOBUFS, 55},      {EISCONN, 56},
    {ENOTCONN, 57},        {ESHUTDOWN, 58},    {ETIMEDOUT, 60},    {ECONNREFUSED, 61},
    {ELOOP, 62},           {ENAMETOOLONG, 63}, {EHOSTDOWN, 64},    {EHOSTUNREACH, 65},
    {ENOTEMPTY, 66},       {EUSERS, 68},       {EDQUOT, 69},       {ESTALE, 70},
    {ENOLCK, 77},          {ENOSYS, 78},       {EOVERFLOW, 84},    {ECANCELED, 89},
    {EIDRM, 90},           {ENOMSG, 91},       {EILSEQ, 92},       {EBADMSG, 94},
    {EPROTO, 100},         {EDEADLK, 11},      {86, 86},
};

constexpr Pair kSignals[] = {
    {SIGBUS, 10},  {SIGSYS, 12},  {SIGURG, 16},    {SIGSTOP, 17}, {SIGTSTP, 18},  {SIGCONT, 19}, {SIGCHLD, 20}, {SIGIO, 23},
    {SIGXCPU, 24}, {SIGXFSZ, 25}, {SIGVTALRM, 26}, {SIGPROF, 27}, {SIGWINCH, 28}, {SIGUSR1, 30}, {SIGUSR2, 31},
};

// What the loaded code sees as errno. A non-zero glibc errno is news that it has not been told yet.
thread_local int seen_errno;

int* apple_errno() {
  if (errno) {
    seen_errno = apple_error(errno);
    errno = 0;
  }
  return &seen_errno;
}

char* apple_strerror(int number) {
  return ::strerror(linux_error(number));
}

int apple_strerror_r(int number, char* buffer, size_t size) {
  ::snprintf(buffer, size, "%s", ::strerror(linux_error(number)));
  return 0;
}

void apple_perror(const char* what) {
  const char* text = ::strerror(linux_error(*apple_errno()));
  if (what && *what)
    ::fprintf(stderr, "%s: %s\n", what, text);
  else
    ::fprintf(stderr, "%s\n", text);
}

}  // namespace

int apple_error(int number) {
  for (const Pair& pair : kErrors)
    if (pair.linux_number == number) return pair.apple_number;
  return number;
}

int linux_error(int number) {
  for (const Pair& pair : kErrors)
    if (pair.apple_number == number) return pair.linux_number;
  return number;
}

int apple_signal(int number) {
  for (const Pair& pair : kSignals)
    if (pair.linux_number == number) return pair.apple_number;
  return number;
}

int linux_signal(int number) {
  for (const Pair& pair : kSignals)
    if (pair.apple_number == number) return pair.linux_number;
  return number;
}

SymbolTable error_symbols() {
  static const SystemSymbol table[] = {
      {"___error", as_address(apple_errno)},
      {"_strerror", as_address(apple_strerror)},
      {"_strerror_r", as_address(apple_strerror_r)},
      {"_perror", as_address(apple_perror)},
  };
  return table;
}

}  // namespace lab
