#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>

#include "host/sys/hash.hpp"
#include "remote/key_file.hpp"
#include "server.hpp"

using namespace lumelift;
using namespace lumelift::test;
using namespace std::chrono_literals;

namespace {
sys::Deadline soon() {
  return sys::Deadline::in(20s);
}
Credentials secret(std::string word = "secret") {
  return {.user = "lume", .password = sys::Secret(std::move(word))};
}
/// An agent with so many new keys, which the environment names while it is alive.
class Agent {
 public:
  explicit Agent(const std::vector<const char*>& names) {
    const auto socket = (folder_.path() / "agent").string();
    const auto text = host_run({"ssh-agent", "-a", socket});
    pid_ = std::stoi(text.substr(text.find("SSH_AGENT_PID=") + 14));
    ::setenv("SSH_AUTH_SOCK", socket.c_str(), 1);
    for (const auto* name : names) {
      const auto file = (folder_.path() / name).string();
      host_run({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", file});
      host_run({"ssh-add", "-q", file});
    }
  }
  ~Agent() {
    ::unsetenv("SSH_AUTH_SOCK");
    ::kill(pid_, SIGTERM);
  }
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

 private:
  TempFolder folder_;
  pid_t pid_ = 0;
};
}  // namespace

TEST_CASE("streams stay apart, status and signal are told apart") {
  const auto server = Server::openssh();
  auto session = server.connect();
  CHECK(session.login_method() == "publickey (" + server.key().string() + ")");
  const auto both = session.exec("printf out; printf err >&2; exit 7", soon());
  CHECK(both.out == "out");
  CHECK(both.err == "err");
  CHECK(both.status == 7);
  CHECK(both.ending() == "exit status 7");
  CHECK(session.exec("true", soon()).ok());
  const auto killed = session.exec("exec /bin/sh -c 'kill -TERM $$'", soon());
  CHECK_FALSE(killed.status);
  CHECK(killed.signal == "TERM");
  CHECK(killed.ending() == "signal TERM");
  const auto lost = session.exec("printf before; kill -9 $PPID; sleep 5", soon());
  CHECK_FALSE(lost.status);
  CHECK(lost.signal.empty());
  CHECK(lost.ending() == "connection lost before an exit status");
  CHECK(error_id([&] { (void)session.exec("true", soon()); }) == "guest-lost");
}

TEST_CASE("the host key is what ssh-keygen prints") {
  const auto server = Server::openssh();
  const auto session = server.connect();
  const auto line = host_run({"ssh-keygen", "-l", "-f", (server.home() / "host_key.pub").string()});
  CHECK(line.find(session.host_key() + " ") != std::string::npos);
}

TEST_CASE("input is binary safe, output is capped and drained") {
  const auto server = Server::openssh();
  auto session = server.connect();
  std::string bytes;
  for (int i = 0; i < 3'000'000; ++i) {
    bytes += static_cast<char>(i * 7 + i / 256);
  }
  const auto echo = session.exec("cat", soon(), {.input = bytes, .output_cap = 8u << 20});
  CHECK(echo.ok());
  CHECK(sys::sha256(echo.out) == sys::sha256(bytes));
  const auto capped = session.exec("head -c 5000000 /dev/zero; head -c 3000000 /dev/zero >&2", soon(), {.output_cap = 1000});
  CHECK(capped.ok());
  CHECK(capped.truncated);
  CHECK(capped.out.size() == 1000);
  CHECK(capped.err.size() == 1000);
  // The program ends without reading what it is fed.
  CHECK(session.exec("exit 3", soon(), {.input = bytes}).status == 3);
  CHECK(session.exec("exec <&-; sleep 0.2; exit 4", soon(), {.input = bytes}).status == 4);
}

TEST_CASE("output comes live") {
  const auto server = Server::openssh();
  auto session = server.connect();
  sys::Stopwatch watch;
  sys::Milliseconds first{0};
  std::string out, err;
  ExecOptions options;
  options.on_output = [&](std::string_view piece, bool is_err) {
    if (out.empty()) {
      first = watch.elapsed();
    }
    (is_err ? err : out) += piece;
  };
  const auto result = session.exec("echo a; sleep 1; echo b; echo c >&2", soon(), options);
  CHECK(result.ok());
  CHECK(result.out.empty());
  CHECK(out == "a\nb\n");
  CHECK(err == "c\n");
  CHECK(first < 800ms);
}

TEST_CASE("a deadline ends a command and the session goes on") {
  const auto server = Server::openssh();
  auto session = server.connect();
  sys::Stopwatch watch;
  CHECK(error_id([&] { (void)session.exec("sleep 30", sys::Deadline::in(300ms)); }) == "guest-timeout");
  CHECK(watch.elapsed() < 2s);
  CHECK(session.exec("echo on", soon()).out == "on\n");
  CHECK(error_id([&] { (void)session.exec(std::string(40'000, 'x'), soon()); }) == "command-too-long");
}

TEST_CASE("a stopped peer is noticed within 15 s and closing does not wait for it") {
  const auto server = Server::openssh();
  sys::Stopwatch watch;
  {
    auto session = server.connect();
    const auto worker = std::stoi(session.exec("echo $PPID", soon()).out);
    ::kill(worker, SIGSTOP);
    watch = {};
    CHECK(error_id([&] { (void)session.exec("true", sys::Deadline::in(60s)); }) == "guest-lost");
    CHECK(watch.elapsed() >= 14s);
    CHECK(watch.elapsed() < 16s);
    watch = {};
    ::kill(worker, SIGKILL);
  }
  CHECK(watch.elapsed() < 500ms);
}

TEST_CASE("a long silent command is not a dead peer") {
  const auto server = Server::openssh();
  auto session = server.connect();
  CHECK(session.exec("sleep 17; echo done", sys::Deadline::in(30s)).out == "done\n");
}

TEST_CASE("R98: fifty cancelled sessions leave no descriptor and do not block") {
  const auto server = Server::openssh();
  const auto count = [] { return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator{}); };
  { auto once = server.connect(); }
  const auto before = count();
  sys::Stopwatch watch;
  for (int i = 0; i < 50; ++i) {
    auto session = server.connect();
    CHECK(error_id([&] { (void)session.exec("cat /dev/zero", sys::Deadline::in(5ms), {.output_cap = 10}); }) == "guest-timeout");
  }
  CHECK(count() == before);
  CHECK(watch.elapsed() < 30s);
}

TEST_CASE("password") {
  const auto server = Server::odd({"password"});
  auto session = server.connect(secret());
  CHECK(session.login_method() == "password");
  CHECK(session.exec("echo hi", soon()).out == "hi\n");
  const auto text = error_text([&] { (void)server.connect(secret("hunter2-wrong")); });
  CHECK(text.starts_with("guest-auth-failed"));
  CHECK(text.find("tried password: refused") != std::string::npos);
  CHECK(text.find("the server offers: ") != std::string::npos);
  CHECK(text.find("hunter2") == std::string::npos);
}

TEST_CASE("a key and then a password, and what is missing is told") {
  const auto server = Server::odd({"two"});
  const TempFolder folder;
  host_run({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", (folder.path() / "key").string()});
  auto login = secret();
  login.key_file = folder.path() / "key";
  auto session = server.connect(login);
  CHECK(session.login_method() == "password");
  CHECK(session.exec("echo hi", soon()).out == "hi\n");
  login.password.reset();
  CHECK(error_text([&] { (void)server.connect(login); }).find("only the first of two methods: now the server asks for password") !=
        std::string::npos);
  login.password = sys::Secret("wrong");
  CHECK(error_text([&] { (void)server.connect(login); }).find("tried password: refused") != std::string::npos);
}

TEST_CASE("R76: keyboard-interactive only, in several rounds") {
  for (const auto* rounds : {"1", "3", "4"}) {
    const auto server = Server::odd({"interactive", rounds});
    auto session = server.connect(secret());
    CHECK(session.login_method() == "keyboard-interactive");
    CHECK(session.exec("echo hi", soon()).out == "hi\n");
    CHECK(error_text([&] { (void)server.connect(secret("wrong")); }).find("tried keyboard-interactive") != std::string::npos);
  }
}

TEST_CASE("tiny windows, exit by signal, and lines before the greeting") {
  const auto tiny = Server::odd({"tiny"});
  auto session = tiny.connect(secret());
  const std::string bytes(300'000, 'q');
  CHECK(session.exec("cat", soon(), {.input = bytes}).out == bytes);
  CHECK(Server::odd({"signal"}).connect(secret()).exec("true", soon()).signal == "TERM");
  CHECK(Server::odd({"banner"}).connect(secret()).exec("echo hi", soon()).out == "hi\n");
}

TEST_CASE("R79: servers that share no algorithm with us are told by name") {
  const auto only = [](const std::string& line) {
    const auto server = Server::openssh({line});
    return error_text([&] { (void)server.connect(); });
  };
  for (const auto* fine : {"KexAlgorithms curve25519-sha256", "HostKeyAlgorithms ssh-ed25519", "Ciphers aes256-ctr"}) {
    CHECK(only(fine) == "none");
  }
  const auto kex = only("KexAlgorithms sntrup761x25519-sha512@openssh.com");
  CHECK(kex.starts_with("guest-kex-mismatch"));
  CHECK(kex.find("theirs: sntrup761x25519-sha512@openssh.com") != std::string::npos);
  CHECK(kex.find("curve25519-sha256") != std::string::npos);
  const auto cipher = only("Ciphers chacha20-poly1305@openssh.com");
  CHECK(cipher.starts_with("guest-kex-mismatch"));
  CHECK(cipher.find("no cipher algorithm") != std::string::npos);
}

TEST_CASE("R81: a server that allows few tries") {
  const auto server = Server::openssh({"MaxAuthTries 1"});
  const TempFolder folder;
  host_run({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", (folder.path() / "k").string()});
  auto login = server.login();
  login.key_file = folder.path() / "k";
  const auto text = error_text([&] { (void)server.connect(login); });
  INFO(text);
  CHECK(text.starts_with("guest-auth-failed"));
  CHECK(text.find("ended the connection after so many tries") != std::string::npos);
}

TEST_CASE("R81: asking what else is offered is one try too many, and the refusal is told all the same") {
  const auto server = Server::openssh({"MaxAuthTries 2"});
  const TempFolder folder;
  host_run({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", (folder.path() / "k").string()});
  auto login = server.login();
  login.key_file = folder.path() / "k";
  const auto text = error_text([&] { (void)server.connect(login); });
  INFO(text);
  CHECK(text.starts_with("guest-auth-failed"));
  CHECK(text.find("k): refused") != std::string::npos);
}

TEST_CASE("R81: of an agent's keys at most two are offered") {
  const auto server = Server::openssh();
  const Agent agent({"a", "b", "c"});
  auto login = server.login();
  login.key_file.reset();
  login.use_agent = true;
  const auto text = error_text([&] { (void)server.connect(login); });
  CHECK(text.find("tried agent (a): refused") != std::string::npos);
  CHECK(text.find("tried agent (b): refused") != std::string::npos);
  CHECK(text.find("agent (c)") == std::string::npos);
  CHECK(text.find("more keys were not offered") != std::string::npos);
  host_run({"ssh-add", "-q", "-D"});
  host_run({"ssh-add", "-q", server.key().string()});
  CHECK(server.connect(login).login_method().starts_with("agent ("));
  ::unsetenv("SSH_AUTH_SOCK");
  CHECK(error_text([&] { (void)server.connect(login); }).find("none is running") != std::string::npos);
}

TEST_CASE("R81: what the agent's keys used up is got back by another connection, on which only the named key is tried") {
  const auto server = Server::openssh({"MaxAuthTries 2"});
  const Agent agent({"a", "b", "c", "d", "e"});
  const TempFolder folder;
  host_run({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", (folder.path() / "other").string()});
  auto login = server.login();
  login.use_agent = true;
  login.default_keys = {folder.path() / "other"};
  int more = 0;
  auto session = server.greet();
  session.authenticate(login, soon(), [&] {
    ++more;
    return server.greet();
  });
  CHECK(more == 1);
  CHECK(session.login_method() == "publickey (" + server.key().string() + ")");
  CHECK(session.exec("echo hi", soon()).out == "hi\n");
  // Without another connection the same login fails, and says what became of it.
  const auto text = error_text([&] { (void)server.connect(login); });
  CHECK(text.find("agent (b): the server ended the connection") != std::string::npos);
}

TEST_CASE("of an agent's keys the one that belongs to a named file comes first, though the file itself is locked") {
  const auto server = Server::openssh();
  const Agent agent({"a", "b", "c"});
  host_run({"ssh-add", "-q", server.key().string()});
  host_run({"ssh-keygen", "-q", "-p", "-P", "", "-N", "open sesame", "-f", server.key().string()});
  auto login = server.login();
  login.use_agent = true;
  CHECK(server.connect(login).login_method().starts_with("agent ("));
}

TEST_CASE("R78: of several host keys the pinned kind is asked for; a server without one that we know is told") {
  const TempFolder folder;
  const auto key = [&](const char* kind) {
    const auto file = (folder.path() / kind).string();
    host_run({"ssh-keygen", "-q", "-t", kind, "-N", "", "-f", file});
    return "HostKey " + file;
  };
  const auto rsa = key("rsa");
  const auto server = Server::openssh({key("ecdsa"), rsa});
  const auto first = server.greet();
  CHECK(server.greet("ssh-ed25519").host_key_kind() == "ssh-ed25519");
  CHECK(server.greet("ecdsa-sha2-nistp256").host_key_kind() == "ecdsa-sha2-nistp256");
  CHECK(server.greet("ssh-ed25519").host_key() != server.greet("ecdsa-sha2-nistp256").host_key());
  CHECK(server.greet("no-such-kind").host_key() == first.host_key());
  const auto text = error_text([&] { (void)Server::openssh({"HostKeyAlgorithms rsa-sha2-512", rsa}).greet(); });
  CHECK(text.find("no host key algorithm") != std::string::npos);
}

TEST_CASE("what was agreed on is told with both lists") {
  const auto server = Server::openssh({"Ciphers aes256-ctr", "MACs hmac-sha2-512"});
  const auto session = server.greet();
  const auto& all = session.algorithms();
  REQUIRE(all.size() == 4);
  CHECK(all[0].what == "key exchange");
  CHECK(all[0].theirs.find("curve25519-sha256") != std::string::npos);
  CHECK(all[1].chosen == "ssh-ed25519");
  CHECK(all[2].chosen == "aes256-ctr");
  CHECK(all[2].theirs == "aes256-ctr");
  CHECK(all[2].ours.find("aes128-ctr") != std::string::npos);
  CHECK(all[3].chosen == "hmac-sha2-512");
}

TEST_CASE("R79: a server that is limited to the algorithms of OpenSSH 10") {
  const auto server = Server::openssh(
      {"KexAlgorithms sntrup761x25519-sha512@openssh.com,curve25519-sha256,curve25519-sha256@libssh.org,"
       "ecdh-sha2-nistp256,ecdh-sha2-nistp384,ecdh-sha2-nistp521",
       "Ciphers chacha20-poly1305@openssh.com,aes128-gcm@openssh.com,aes256-gcm@openssh.com,aes128-ctr,aes192-ctr,aes256-ctr",
       "HostKeyAlgorithms ssh-ed25519,ecdsa-sha2-nistp256,rsa-sha2-512,rsa-sha2-256"});
  CHECK(server.connect().exec("echo hi", soon()).out == "hi\n");
}

TEST_CASE("a second server: old algorithms, and new keys in the middle of a long stream") {
  CHECK(Server::odd({"old"}).connect(secret()).exec("echo hi", soon()).out == "hi\n");
  const auto server = Server::odd({"rekey"});
  auto session = server.connect(secret());
  const std::string bytes(1'000'000, 'r');
  const auto result = session.exec("cat", sys::Deadline::in(60s), {.input = bytes});
  INFO(result.ending());
  CHECK(result.out == bytes);
}

TEST_CASE("R17: connections that are reset before or in the middle of the greeting are told as such") {
  const auto server = Server::odd({"resets", "3"});  // the first one met the test's own look at the port
  for (int i = 0; i < 2; ++i) {
    CHECK(error_id([&] { (void)server.greet(); }) == "guest-handshake");
  }
  // The real server takes the port a moment later.
  std::string out, id;
  for (int i = 0; i < 200 && out.empty(); ++i) {
    id = error_id([&] { out = server.connect(secret()).exec("echo hi", soon()).out; });
    CHECK((id == "none" || id == "guest-refused" || id == "guest-handshake"));
    sys::pause(50ms, soon());
  }
  CHECK(out == "hi\n");
}

TEST_CASE("R82: connection limits are told, and the session goes on") {
  const auto server = Server::openssh({"MaxSessions 1"});
  auto session = server.connect();
  {
    const auto channel = session.open_exec("cat", soon());
    const auto text = error_text([&] { (void)session.exec("true", soon()); });
    CHECK(text.starts_with("guest-protocol"));
    CHECK(text.find("MaxSessions") != std::string::npos);
    CHECK(channel->finish(soon()).ok());
  }
  CHECK(session.exec("echo on", soon()).out == "on\n");
  const auto narrow = Server::openssh({"MaxStartups 1:100:1"});
  std::optional<Session> waiting;  // takes the only place, once the look at the port has left it
  for (int i = 0; i < 100 && !waiting; ++i) {
    (void)error_id([&] { waiting = narrow.greet(); });
    sys::pause(50ms, soon());
  }
  REQUIRE(waiting);
  const auto text = error_text([&] { (void)narrow.greet(); });
  CHECK(text.starts_with("guest-handshake"));
  CHECK(text.find("MaxStartups") != std::string::npos);
}

TEST_CASE("R88: a network that swallows everything is noticed within 15 s, in the middle of a command") {
  const auto server = Server::openssh();
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0);
  std::atomic<bool> swallow = false;
  std::thread network([&, near_end = sys::Fd(ends[1]), far_end = connect_tcp("127.0.0.1", server.port(), soon())] {
    std::array<char, 65536> block;
    for (;;) {
      std::array<pollfd, 2> ready{pollfd{near_end.get(), POLLIN, 0}, pollfd{far_end.get(), POLLIN, 0}};
      ::poll(ready.data(), ready.size(), -1);
      for (std::size_t i = 0; i < 2; ++i) {
        if (ready[i].revents == 0) {
          continue;
        }
        const auto got = ::recv(ready[i].fd, block.data(), block.size(), 0);
        if (got <= 0) {
          return;
        }
        if (!swallow) {
          CHECK(::send(ready[1 - i].fd, block.data(), static_cast<std::size_t>(got), 0) == got);
        }
      }
    }
  });
  {
    Session session(sys::Fd{ends[0]}, soon());
    session.authenticate(server.login(), soon());
    CHECK(session.exec("echo hi", soon()).out == "hi\n");
    swallow = true;
    const sys::Stopwatch watch;
    CHECK(error_id([&] { (void)session.exec("sleep 60", sys::Deadline::in(60s)); }) == "guest-lost");
    CHECK(watch.elapsed() >= 14s);
    CHECK(watch.elapsed() < 16s);
  }
  network.join();
}

TEST_CASE("R80: key files that cannot be used are named with the reason") {
  const auto server = Server::openssh();
  const TempFolder folder;
  const auto with = [&](const fs::path& file, std::optional<std::string> passphrase = {}) {
    auto login = server.login();
    login.key_file = file;
    if (passphrase) {
      login.passphrase = sys::Secret(*passphrase);
    }
    return error_text([&] { (void)server.connect(login); });
  };
  const auto says = [](const std::string& text, const char* part) {
    return text.starts_with("guest-key-unusable") && text.find(part) != std::string::npos;
  };
  CHECK(says(with(folder.path() / "missing"), "missing"));
  CHECK(says(with(server.key().string() + ".pub"), "public half"));
  CHECK(says(with(folder.write("putty", "PuTTY-User-Key-File-3: ssh-ed25519\n")), "PuTTY"));
  CHECK(says(with(folder.write("nonsense", "hello")), "no private key"));
  INFO(with(folder.path() / "broken"));
  CHECK(says(with(folder.write("broken", "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n")),
             "unsupported or damaged"));
  fs::copy(server.key(), folder.path() / "locked");
  host_run({"ssh-keygen", "-q", "-p", "-P", "", "-N", "open sesame", "-f", (folder.path() / "locked").string()});
  CHECK(says(with(folder.path() / "locked"), "no passphrase was given"));
  CHECK(says(with(folder.path() / "locked", "wrong"), "wrong passphrase"));
  CHECK(with(folder.path() / "locked", "open sesame") == "none");
  std::string crlf;
  for (const char c : sys::read_file(server.key(), 1u << 16)) {
    crlf += c == '\n' ? "\r\n" : std::string(1, c);
  }
  CHECK(with(folder.write("crlf", crlf)) == "none");
  host_run({"ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-N", "", "-f", (folder.path() / "rsa").string()});
  CHECK(with(folder.path() / "rsa").find("ed25519") != std::string::npos);
}

TEST_CASE("a key whose secret is in a device is known by its text") {
  const auto word = [](std::string_view text) { return std::string("\0\0\0", 3) + static_cast<char>(text.size()) + std::string(text); };
  const auto pem = [&](std::string_view kind) {
    const auto body =
        std::string("openssh-key-v1\0", 15) + word("none") + word("none") + word("") + std::string("\0\0\0\1", 4) + word(word(kind));
    return "-----BEGIN OPENSSH PRIVATE KEY-----\n" + base64(body) + "\n-----END OPENSSH PRIVATE KEY-----\n";
  };
  CHECK(look_at_key(pem("sk-ssh-ed25519@openssh.com")).security_key);
  CHECK(look_at_key(pem("sk-ecdsa-sha2-nistp256@openssh.com")).security_key);
  CHECK_FALSE(look_at_key(pem("ssh-ed25519")).security_key);
  CHECK(look_at_key(pem("ssh-rsa")).rsa);
}

TEST_CASE("default keys are tried silently") {
  const auto server = Server::openssh();
  auto login = server.login();
  login.key_file.reset();
  login.default_keys = {"/nonexistent/id_rsa", server.key().string() + ".pub", server.key()};
  CHECK(server.connect(login).exec("echo hi", soon()).out == "hi\n");
  login.default_keys = {"/nonexistent/id_rsa"};
  const auto text = error_text([&] { (void)server.connect(login); });
  CHECK(text.starts_with("guest-auth-failed"));
  CHECK(text.find("there is nothing to try") != std::string::npos);
  CHECK(text.find("the server offers: publickey") != std::string::npos);
}

TEST_CASE("R86: rekeying in the middle of a stream") {
  const auto server = Server::openssh({"RekeyLimit 4M"});
  auto session = server.connect();
  std::string bytes(1u << 20, 'r');
  const auto channel = session.open_exec("sha256sum", soon());
  for (int i = 0; i < 60; ++i) {
    channel->write_all(std::as_bytes(std::span(bytes)));
  }
  const auto result = channel->finish(soon());
  CHECK(result.ok());
  CHECK(result.out.substr(0, 64) == sys::sha256(std::string(60u << 20, 'r')));
}

TEST_CASE("what is not an SSH server is named") {
  const auto against = [](std::string_view answer) {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    REQUIRE(::write(ends[1], answer.data(), answer.size()) == static_cast<ssize_t>(answer.size()));
    ::shutdown(ends[1], SHUT_WR);
    auto text = error_text([&] { Session(sys::Fd(ends[0]), sys::Deadline::in(5s)); });
    ::close(ends[1]);
    return text;
  };
  CHECK(against("HTTP/1.1 400 Bad Request\r\n\r\n").find("a web server answers") != std::string::npos);
  CHECK(against("220 ftp\r\n").find("not an SSH server; it said: 220 ftp") != std::string::npos);
  CHECK(against("").starts_with("guest-handshake"));
  CHECK(against("SSH-2.0-x\r\n").starts_with("guest-handshake"));
  CHECK(against("SSH-2.0-x\r\n\xff\xff\xff\xff garbage").starts_with("guest-handshake"));
}

TEST_CASE("connecting fails in named ways") {
  CHECK(error_id([] { (void)connect_tcp("127.0.0.1", 1, sys::Deadline::in(1s)); }) == "guest-refused");
  CHECK(error_id([] { (void)connect_tcp("no-such-host.invalid", 22, sys::Deadline::in(1s)); }) == "guest-unreachable");
}
