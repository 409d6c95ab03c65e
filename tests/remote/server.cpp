#include "server.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <pwd.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <stdexcept>

#include "host/sys/error.hpp"
#include "host/sys/process.hpp"

namespace lumelift::test {
namespace {

using namespace std::chrono_literals;

int free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  ::bind(fd, reinterpret_cast<sockaddr*>(&address), length);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  ::close(fd);
  return ntohs(address.sin_port);
}

}  // namespace

TempFolder::TempFolder() {
  std::string name = "/tmp/lumelift-remote-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) {
    throw std::runtime_error("mkdtemp");
  }
  path_ = name;
}

TempFolder::~TempFolder() {
  // A server that is just ending may take a file of its own away meanwhile, which ends one round early.
  std::error_code none;
  for (int i = 0; i < 3 && fs::exists(path_, none); ++i) {
    fs::remove_all(path_, none);
  }
}

fs::path TempFolder::write(const std::string& name, std::string_view content, unsigned mode) const {
  const auto file = path_ / name;
  std::ofstream(file, std::ios::binary) << content;
  ::chmod(file.c_str(), mode);
  return file;
}

std::string host_run(const std::vector<std::string>& argv, const std::string& input) {
  const auto outcome = sys::run({.argv = argv, .input = input}, sys::Deadline::in(60s));
  if (!outcome.ok()) {
    throw std::runtime_error(fmt::format("{}: {}\n{}", sys::shown(argv), outcome.ending(), outcome.err));
  }
  return outcome.out;
}

std::string joined(const Error& error) {
  auto text = error.id() + "\n" + error.message();
  for (const auto& detail : error.details()) {
    text += "\n" + detail;
  }
  return text + "\n" + error.fix();
}

Server Server::openssh(const std::vector<std::string>& lines) {
  Server server;
  server.folder_ = std::make_unique<TempFolder>();
  server.port_ = free_port();
  const auto home = server.home().string();
  for (const auto* name : {"host_key", "user_key"}) {
    host_run({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", home + "/" + name});
  }
  host_run({"cp", home + "/user_key.pub", home + "/authorized_keys"});
  fs::create_directory(home + "/home");
  std::string config;
  for (const auto& line : lines) {
    config += line + "\n";
  }
  config += fmt::format(
      "Port {}\nListenAddress 127.0.0.1\nHostKey {}/host_key\nAuthorizedKeysFile {}/authorized_keys\nStrictModes no\n"
      "UsePAM no\nPidFile none\nPrintMotd no\nPrintLastLog no\nPermitRootLogin yes\nUseDNS no\nPasswordAuthentication no\n"
      "KbdInteractiveAuthentication no\nSetEnv HOME={}/home ZDOTDIR={}/home\n",
      server.port_, home, home, home, home);
  server.folder_->write("sshd_config", config);
  if (::geteuid() == 0) {
    fs::create_directories("/run/sshd");
  }
  server.start({"/usr/sbin/sshd", "-D", "-E", home + "/log", "-f", home + "/sshd_config"});
  return server;
}

Server Server::odd(const std::vector<std::string>& arguments) {
  Server server;
  server.folder_ = std::make_unique<TempFolder>();
  server.port_ = free_port();
  host_run({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", server.key().string()});
  std::vector<std::string> argv{"/usr/bin/python3", "-I", LUMELIFT_ODD_SERVER, std::to_string(server.port_)};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  server.start(argv);
  return server;
}

void Server::start(const std::vector<std::string>& argv) {
  const auto log = (home() / "output").string();
  pid_ = ::fork();
  if (pid_ == 0) {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    const int fd = ::open(log.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
    ::dup2(fd, 1);
    ::dup2(fd, 2);
    std::vector<char*> raw;
    for (const auto& word : argv) {
      raw.push_back(const_cast<char*>(word.c_str()));
    }
    raw.push_back(nullptr);
    ::execv(raw[0], raw.data());
    ::_exit(127);
  }
  for (int i = 0; i < 500; ++i) {
    try {
      const auto probe = connect_tcp("127.0.0.1", port_, sys::Deadline::in(1s));
      return;
    } catch (const Error&) {
      sys::pause(10ms, sys::Deadline::in(1s));
    }
  }
  throw std::runtime_error("server did not start");
}

Server::Server(Server&& other) noexcept : folder_(std::move(other.folder_)), pid_(std::exchange(other.pid_, -1)), port_(other.port_) {}

Server::~Server() {
  if (pid_ <= 0) {
    return;
  }
  ::kill(-pid_, SIGCONT);
  ::kill(-pid_, SIGTERM);
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

std::string Server::user() const {
  return ::getpwuid(::getuid())->pw_name;
}

Credentials Server::login() const {
  return {.user = user(), .key_file = key()};
}

Session Server::connect() const {
  return connect(login());
}

Session Server::connect(const Credentials& credentials) const {
  Session session = greet();
  session.authenticate(credentials, sys::Deadline::in(20s));
  return session;
}

Session Server::greet(std::string_view host_key) const {
  const auto deadline = sys::Deadline::in(20s);
  return Session(connect_tcp("127.0.0.1", port_, deadline), deadline, host_key);
}

LabGuest::LabGuest(const std::string& options) {
  const auto where = (folder_.path() / "lab").string();
  const auto line = host_run({"/usr/bin/python3", LUMELIFT_SOURCE "/tests/remote/lab_guest.py", where, LUMELIFT_BUILD, options});
  std::vector<std::string*> fields{&address_, &port_, &key_, &home_, &root_};
  std::size_t from = 0;
  for (auto* field : fields) {
    from = line.find('"', from) + 1;
    const auto to = line.find('"', from);
    *field = line.substr(from, to - from);
    from = to + 1;
  }
}

LabGuest::~LabGuest() {
  (void)sys::run({.argv = {"/usr/bin/python3", LUMELIFT_SOURCE "/tests/lab/lab", "down", (folder_.path() / "lab").string()}},
                 sys::Deadline::in(30s));
}

sys::Fd LabGuest::dial() const {
  return connect_tcp(address_, std::stoi(port_), sys::Deadline::in(20s));
}

Session LabGuest::connect() const {
  return connect(dial());
}

Session LabGuest::connect(Route route) const {
  const auto deadline = sys::Deadline::in(20s);
  Session session(std::move(route), deadline);
  session.authenticate({.user = "lume", .key_file = key_}, deadline);
  return session;
}

void LabGuest::fault(const std::vector<std::string>& words) const {
  std::vector<std::string> argv{"/usr/bin/python3", LUMELIFT_SOURCE "/tests/lab/lab", "fault", (folder_.path() / "lab").string()};
  argv.insert(argv.end(), words.begin(), words.end());
  host_run(argv);
}

}  // namespace lumelift::test
