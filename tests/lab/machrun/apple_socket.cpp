// Internet sockets: an address has a length byte in front on macOS, and options have other numbers.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "machrun/symbol_tables.hpp"

namespace lab {
namespace {

struct AppleAddress {
  uint8_t length, family;
  char data[126];
};

bool from_apple(const AppleAddress* apple, socklen_t size, sockaddr_storage& own) {
  if (size < 2 || size > sizeof(AppleAddress) || (apple->family != AF_INET && apple->family != 1)) {
    errno = EAFNOSUPPORT;
    return false;
  }
  std::memcpy(&own, apple, size);
  own.ss_family = apple->family;
  return true;
}

void to_apple(const sockaddr_storage& own, socklen_t own_size, AppleAddress* apple, socklen_t* size) {
  if (!apple || !size) return;
  sockaddr_storage copy = own;
  const socklen_t length = own_size < *size ? own_size : *size;
  std::memcpy(apple, &copy, length);
  apple->length = static_cast<uint8_t>(own_size);
  apple->family = static_cast<uint8_t>(own.ss_family);
  *size = own_size;
}

int apple_bind(int fd, const AppleAddress* address, socklen_t size) {
  sockaddr_storage own{};
  return from_apple(address, size, own) ? ::bind(fd, reinterpret_cast<sockaddr*>(&own), size) : -1;
}
int apple_connect(int fd, const AppleAddress* address, socklen_t size) {
  sockaddr_storage own{};
  return from_apple(address, size, own) ? ::connect(fd, reinterpret_cast<sockaddr*>(&own), size) : -1;
}
int apple_accept(int fd, AppleAddress* address, socklen_t* size) {
  sockaddr_storage own{};
  socklen_t own_size = sizeof own;
  const int result = ::accept(fd, reinterpret_cast<sockaddr*>(&own), &own_size);
  if (result >= 0) to_apple(own, own_size, address, size);
  return result;
}
int apple_getsockname(int fd, AppleAddress* address, socklen_t* size) {
  sockaddr_storage own{};
  socklen_t own_size = sizeof own;
  const int result = ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_size);
  if (result == 0) to_apple(own, own_size, address, size);
  return result;
}

int apple_socket(int family, int type, int protocol) {
  return ::socket(family, type, protocol);
}

int apple_setsockopt(int fd, int level, int option, const void* value, socklen_t size) {
  if (level == 0xffff) {
    switch (option) {
      case 0x4:
        return ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, value, size);
      case 0x8:
        return ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, value, size);
      case 0x1005:
        return ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, value, size);
      case 0x1006:
        return ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, value, size);
      case 0x1022:
        return 0;  // SO_NOSIGPIPE: no such option here
      default:
        break;
    }
  } else if (level == IPPROTO_TCP && option == 1) {
    return ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, value, size);
  }
  errno = ENOPROTOOPT;
  return -1;
}

}  // namespace

SymbolTable socket_symbols() {
  static const SystemSymbol table[] = {
      {"_socket", as_address(apple_socket)},
      {"_bind", as_address(apple_bind)},
      {"_connect", as_address(apple_connect)},
      {"_accept", as_address(apple_accept)},
      {"_getsockname", as_address(apple_getsockname)},
      {"_setsockopt", as_address(apple_setsockopt)},
      {"_listen", as_address(::listen)},
      {"_send", as_address(::send)},
      {"_recv", as_address(::recv)},
      {"_shutdown", as_address(::shutdown)},
      {"_inet_pton", as_address(::inet_pton)},
  };
  return table;
}

}  // namespace lab
