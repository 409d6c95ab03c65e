#include "remote/http.hpp"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "server.hpp"

using namespace lumelift;
using namespace lumelift::test;
using namespace std::chrono_literals;

namespace {

sys::Deadline soon() {
  return sys::Deadline::in(20s);
}

/// Listens on a loopback port, takes one request up to `request_end`, sends `pieces` with a pause between, and closes.
class OneReply {
 public:
  OneReply(std::string request_end, std::vector<std::string> pieces) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    REQUIRE(::bind(fd_, reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(::listen(fd_, 1) == 0);
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    port = ntohs(address.sin_port);
    thread_ = std::thread([this, request_end, pieces] {
      const int client = ::accept(fd_, nullptr, nullptr);
      char buffer[4096];
      while (!request.ends_with(request_end)) {
        const auto got = ::read(client, buffer, sizeof buffer);
        if (got <= 0) {
          break;
        }
        request.append(buffer, static_cast<std::size_t>(got));
      }
      for (const auto& piece : pieces) {
        if (::write(client, piece.data(), piece.size()) < 0) {
          break;
        }
        std::this_thread::sleep_for(20ms);
      }
      ::close(client);
    });
  }
  ~OneReply() {
    join();
    ::close(fd_);
  }
  void join() {
    if (thread_.joinable()) {
      thread_.join();
    }
  }

  int port = 0;
  std::string request;

 private:
  int fd_;
  std::thread thread_;
};

}  // namespace

TEST_CASE("a server of the guest is asked through the connection, beside a running command") {
  const auto server = Server::openssh();
  auto session = server.connect();
  OneReply web("{\"a\":1}", {"HTTP/1.0 200 OK\r\ncontent-LENGTH: 6\r\n\r\n", "abc", "def", "more than promised"});
  const auto reply = http(session, web.port, "/completion", "{\"a\":1}", soon());
  web.join();
  REQUIRE(reply);
  CHECK(reply->status == 200);
  CHECK(reply->body == "abcdef");
  CHECK(web.request.starts_with("POST /completion HTTP/1.0\r\nHost: 127.0.0.1:"));
  CHECK(web.request.find("\r\nContent-Length: 7\r\n") != std::string::npos);
  // The session goes on, and further requests work.
  CHECK(session.exec("printf on", soon()).out == "on");
  OneReply other("\r\n\r\n", {"HTTP/1.1 503 Busy\r\nX: y\r\n\r\n", "until the end"});
  const auto busy = http(session, other.port, "/health", "", soon());
  other.join();
  CHECK(busy->status == 503);
  CHECK(busy->body == "until the end");
  CHECK(other.request.starts_with("GET /health "));
}

TEST_CASE("a port where nobody listens is an answer, a connection that closes at once is an error") {
  const auto server = Server::openssh();
  auto session = server.connect();
  int port = 0;
  {
    OneReply web("", {});
    port = web.port;
    CHECK(error_id([&] { (void)http(session, port, "/", "", soon()); }) == "guest-http");
  }
  CHECK_FALSE(http(session, port, "/", "", soon()));
}

TEST_CASE("what is no HTTP reply is refused, what is not whole yet is waited for") {
  const auto refused = [](std::string_view text) { return error_id([&] { (void)http_reply(text, true); }) == "guest-http"; };
  CHECK(refused(""));
  CHECK(refused("HTTP/1.0 200 OK\r\nContent-Le"));
  CHECK(refused("SSH-2.0-x\r\n\r\n"));
  CHECK(refused("HTTP/1.1\r\n\r\n"));
  CHECK(refused("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc"));
  CHECK(refused("HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\nabc"));
  CHECK(refused("HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\nabc"));
  for (const std::string_view part :
       {"", "HTTP/1.0 200", "HTTP/1.0 200 OK\r\n\r", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\na", "HTTP/1.0 200 OK\r\n\r\nabc"}) {
    CHECK_FALSE(http_reply(part, false));
  }
  CHECK(http_reply("HTTP/1.0 200 OK\r\n\r\nabc", true)->body == "abc");
  CHECK(http_reply("HTTP/1.0 204 OK\r\nContent-Length: 0\r\n\r\n", false)->body.empty());
}

TEST_CASE("a sshd that forwards nothing is named") {
  const auto server = Server::openssh({"AllowTcpForwarding no"});
  auto session = server.connect();
  CHECK(error_id([&] { (void)http(session, 80, "/", "", soon()); }) == "guest-forwarding-refused");
  CHECK(session.exec("printf on", soon()).out == "on");
}

TEST_CASE("a reply that does not come in time is an error, and the session stays usable") {
  const auto server = Server::openssh();
  auto session = server.connect();
  OneReply web("never", {});
  CHECK(error_id([&] { (void)http(session, web.port, "/", "", sys::Deadline::in(300ms)); }) == "guest-timeout");
  CHECK(session.exec("printf on", soon()).out == "on");
}
