#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "host/sys/error.hpp"
#include "remote/session.hpp"

namespace lumelift {
namespace {

using namespace std::chrono_literals;

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Addresses resolve(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  if (const int rc = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list); rc != 0) {
    throw Error(ErrorKind::failed, "guest-unreachable",
                fmt::format("cannot connect to {}:{}: {}", host, port, ::gai_strerror(rc)));
  }
  return Addresses(list);
}

/// 10/8, 172.16/12, 192.168/16, 169.254/16: where local guests live.
bool is_private(const sockaddr& address) {
  if (address.sa_family != AF_INET) { return false; }
  const auto ip = ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr);
  return (ip >> 24) == 10 || (ip >> 20) == 0xac1 || (ip >> 16) == 0xc0a8 || (ip >> 16) == 0xa9fe;
}

void prepare(int fd) {
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
#ifdef SO_NOSIGPIPE
  ::setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
#endif
}

/// Waits for a connect in progress. 0, an errno, or ETIMEDOUT at the deadline.
int await_connect(int fd, const sys::Deadline& deadline) {
  for (;;) {
    sys::check_interrupt();
    std::array<pollfd, 2> ready{pollfd{fd, POLLOUT, 0}, pollfd{sys::interrupt_fd(), POLLIN, 0}};
    const int count = ::poll(ready.data(), ready.size(), static_cast<int>(deadline.left().count()));
    if (count > 0 && ready[0].revents != 0) { break; }
    if (deadline.expired()) { return ETIMEDOUT; }
  }
  int error = 0;
  socklen_t length = sizeof error;
  ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

Error connect_error(const std::string& host, int port, int reason, bool local) {
  const auto where = fmt::format("cannot connect to {}:{}: {}", host, port, std::strerror(reason));
  if (reason == ECONNREFUSED) {
    return Error(ErrorKind::failed, "guest-refused", where)
        .fix("the guest is up but no SSH server listens: turn on Remote Login in the guest, or wait for it to boot");
  }
  if (reason == ETIMEDOUT) {
    return Error(ErrorKind::failed, "guest-silent", fmt::format("{}:{} does not answer", host, port))
        .fix("wait for the guest to boot; a VPN or network filter may also swallow the connection");
  }
  if (reason == EHOSTUNREACH && local) {
    return Error(ErrorKind::failed, "guest-blocked", where)
        .note("On macOS 15 and later this is most likely Local Network privacy, which blocks the program that started "
              "lumelift.")
        .fix("allow it under System Settings > Privacy & Security > Local Network, or start lumelift from Terminal or "
             "over SSH");
  }
  return Error(ErrorKind::failed, "guest-unreachable", where);
}

}  // namespace

sys::Fd connect_tcp(const std::string& host, int port, const sys::Deadline& deadline) {
  const auto addresses = resolve(host, port);
  const auto one_try = deadline.at_most(5s);
  int reason = EHOSTUNREACH;
  bool local = false;
  for (const auto* address = addresses.get(); address != nullptr; address = address->ai_next) {
    sys::Fd fd(::socket(address->ai_family, address->ai_socktype, address->ai_protocol));
    if (!fd) {
      reason = errno;
      continue;
    }
    prepare(fd.get());
    reason = ::connect(fd.get(), address->ai_addr, address->ai_addrlen) == 0 ? 0 : errno;
    if (reason == EINPROGRESS) { reason = await_connect(fd.get(), one_try); }
    if (reason == 0) { return fd; }
    local = is_private(*address->ai_addr);
  }
  throw connect_error(host, port, reason, local);
}

}  // namespace lumelift
