#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
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
#include "host/sys/platform.hpp"
#include "host/sys/process.hpp"
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
    throw Error(ErrorKind::failed, "guest-unreachable", fmt::format("cannot connect to {}:{}: {}", host, port, ::gai_strerror(rc)));
  }
  return Addresses(list);
}

/// True when an interface of ours is on the address's network: nothing but a rule of this Mac lies in between.
bool on_our_network(const sockaddr& address) {
  if (address.sa_family != AF_INET) {
    return false;
  }
  const auto number = [](const sockaddr* one) { return reinterpret_cast<const sockaddr_in*>(one)->sin_addr.s_addr; };
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) {
    return false;
  }
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  for (const auto* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_netmask == nullptr || one->ifa_addr->sa_family != AF_INET) {
      continue;
    }
    if (((number(one->ifa_addr) ^ number(&address)) & number(one->ifa_netmask)) == 0) {
      return true;
    }
  }
  return false;
}

/// Only the system's own program is exempt, not one of that name from elsewhere.
std::string system_nc() {
  return sys::on_macos ? "/usr/bin/nc" : "nc";
}

/// Whether the system's nc gets through where we do not; nothing when there is none to ask.
std::optional<bool> nc_gets_through(const std::string& host, int port, const sys::Deadline& deadline) {
  try {
    return sys::run({.argv = {system_nc(), "-z", "-w", "3", host, std::to_string(port)}}, deadline.at_most(5s)).ok();
  } catch (const Error&) {
    return std::nullopt;
  }
}

Error blocked(const std::string& where, std::optional<bool> nc) {
  if (nc == false) {
    return Error(ErrorKind::failed, "guest-unreachable", where)
        .note("the system's nc cannot reach it either, so this is not Local Network privacy")
        .fix("see whether the VM runs and lume names its right address");
  }
  Error error(ErrorKind::blocked, "guest-blocked", where);
  error.note(nc ? "The system's nc reaches the guest from here: macOS keeps lumelift from it by Local Network privacy. What counts is the "
                  "program that started it (lumelift doctor names it)."
                : "On macOS 15 and later this is most likely Local Network privacy, which goes by the program that started lumelift.");
  return error.fix(
      "go round it with --via-nc; or allow that program under System Settings > Privacy & Security > Local Network; or start "
      "lumelift from Terminal or over SSH");
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
    if (count > 0 && ready[0].revents != 0) {
      break;
    }
    if (deadline.expired()) {
      return ETIMEDOUT;
    }
  }
  int error = 0;
  socklen_t length = sizeof error;
  ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

Error connect_error(const std::string& host, int port, int reason) {
  const auto where = fmt::format("cannot connect to {}:{}: {}", host, port, std::strerror(reason));
  if (reason == ECONNREFUSED) {
    return Error(ErrorKind::failed, "guest-refused", where)
        .fix("the guest is up but no SSH server listens: turn on Remote Login in the guest, or wait for it to boot");
  }
  if (reason == ETIMEDOUT) {
    return Error(ErrorKind::failed, "guest-silent", fmt::format("{}:{} does not answer", host, port))
        .fix("wait for the guest to boot; a VPN or network filter may also swallow the connection");
  }
  return Error(ErrorKind::failed, "guest-unreachable", where);
}

}  // namespace

sys::Fd connect_tcp(const std::string& host, int port, const sys::Deadline& deadline) {
  const auto addresses = resolve(host, port);
  const auto one_try = deadline.at_most(5s);
  int reason = EHOSTUNREACH;
  for (const auto* address = addresses.get(); address != nullptr; address = address->ai_next) {
    sys::Fd fd(::socket(address->ai_family, address->ai_socktype, address->ai_protocol));
    if (!fd) {
      reason = errno;
      continue;
    }
    prepare(fd.get());
    reason = ::connect(fd.get(), address->ai_addr, address->ai_addrlen) == 0 ? 0 : errno;
    if (reason == EINPROGRESS) {
      reason = await_connect(fd.get(), one_try);
    }
    if (reason == 0) {
      return fd;
    }
    if (reason == EHOSTUNREACH && on_our_network(*address->ai_addr)) {
      throw blocked(fmt::format("cannot connect to {}:{}: {}", host, port, std::strerror(reason)), nc_gets_through(host, port, deadline));
    }
  }
  throw connect_error(host, port, reason);
}

Route connect_nc(const std::string& host, int port) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) != 0) {
    throw Error(ErrorKind::failed, "host-no-descriptors", fmt::format("cannot make a socket: {}", std::strerror(errno)));
  }
  sys::Fd ours(ends[0]);
  const sys::Fd theirs(ends[1]);
  prepare(ours.get());
  ::fcntl(theirs.get(), F_SETFD, FD_CLOEXEC);
  // -v: without it the system's nc fails in silence. It gets no limit of its own: -w would cut a session that is idle.
  auto carrier = std::make_unique<sys::Companion>(std::vector<std::string>{system_nc(), "-v", host, std::to_string(port)}, theirs);
  return {std::move(ours), std::move(carrier)};
}

}  // namespace lumelift
