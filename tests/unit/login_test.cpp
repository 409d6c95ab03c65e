#include "cli/login.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>

#include "host/sys/error.hpp"
#include "host/sys/fd.hpp"
#include "tests/unit/plans.hpp"
#include "tests/unit/scratch.hpp"

using namespace lumelift;
using namespace lumelift::test;

namespace {

/// A descriptor that gives `content`.
sys::Fd giving(const Scratch& scratch, const std::string& content) {
  return sys::Fd(::open(scratch.write("fd", content).c_str(), O_RDONLY | O_CLOEXEC));
}

std::string password_of(const LoginSources& sources, const Scratch& scratch) {
  const auto login = resolve_login(sources, scratch.path());
  return login.password ? "=" + login.password->reveal() : "none";
}

}  // namespace

TEST_CASE("a password comes from descriptor, file, environment, in this order") {
  const Scratch scratch;
  LoginSources sources;
  CHECK(password_of(sources, scratch) == "none");
  sources.password_env = "from env";
  CHECK(password_of(sources, scratch) == "=from env");
  sources.password_file = scratch.write("p", "from file\n", 0600);
  CHECK(password_of(sources, scratch) == "=from file");
  const sys::Fd fd = giving(scratch, "from fd");
  sources.password_fd = fd.get();
  CHECK(password_of(sources, scratch) == "=from fd");
}

TEST_CASE("one newline at the end is not part of a password, everything else is") {
  const Scratch scratch;
  const std::vector<std::pair<std::string, std::string>> cases = {{"lume\n", "=lume"},       {"lume\r\n", "=lume"},
                                                                  {"lume\n\n", "=lume\n"},   {" lu me ", "= lu me "},
                                                                  {"pä$'\"\\", "=pä$'\"\\"}, {"12345678", "=12345678"}};
  for (const auto& [content, wanted] : cases) {
    LoginSources sources;
    sources.password_file = scratch.write("p", content, 0400);
    CHECK(password_of(sources, scratch) == wanted);
    const sys::Fd fd = giving(scratch, content);
    sources.password_fd = fd.get();
    CHECK(password_of(sources, scratch) == wanted);
  }
}

TEST_CASE("an empty password, a NUL byte and a file without end are refused without showing them") {
  const Scratch scratch;
  for (const std::string& content : {std::string(), std::string("\n"), std::string("se\0cret", 7), std::string(5000, 's')}) {
    LoginSources sources;
    sources.password_file = scratch.write("p", content, 0600);
    const Error from_file = thrown([&] { (void)resolve_login(sources, scratch.path()); });
    CHECK(from_file.kind() == ErrorKind::usage);
    CHECK((from_file.id() == "password-unreadable" || from_file.id() == "file-unreadable"));
    CHECK(from_file.message().find("cret") == std::string::npos);
    const sys::Fd fd = giving(scratch, content);
    sources.password_fd = fd.get();
    CHECK(thrown([&] { (void)resolve_login(sources, scratch.path()); }).id() == "password-unreadable");
  }
  LoginSources sources;
  sources.password_env = "";
  CHECK(thrown([&] { (void)resolve_login(sources, scratch.path()); }).id() == "password-unreadable");
}

TEST_CASE("a password file that others may read is refused with the command that repairs it") {
  const Scratch scratch;
  for (const unsigned mode : {0644u, 0640u, 0604u, 0620u, 0666u}) {
    LoginSources sources;
    sources.password_file = scratch.write("p", "lume", mode);
    const Error error = thrown([&] { (void)resolve_login(sources, scratch.path()); });
    CHECK(error.id() == "password-file-open");
    CHECK(error.fix() == "chmod 600 " + sources.password_file->string());
  }
}

TEST_CASE("what cannot be read as a password is said to be so") {
  const Scratch scratch;
  LoginSources sources;
  sources.password_file = scratch.path() / "absent";
  CHECK(thrown([&] { (void)resolve_login(sources, scratch.path()); }).id() == "file-unreadable");
  sources.password_file = scratch.path();
  CHECK(thrown([&] { (void)resolve_login(sources, scratch.path()); }).id() == "file-unreadable");
  sources.password_fd = 987;
  const Error error = thrown([&] { (void)resolve_login(sources, scratch.path()); });
  CHECK(error.id() == "password-unreadable");
  CHECK(error.message().find("987") != std::string::npos);
}

TEST_CASE("keys that are there are offered; user, port and key are passed on") {
  const Scratch scratch;
  CHECK(resolve_login({}, scratch.path()).default_keys.empty());
  scratch.write(".ssh/id_ed25519", "k", 0600);
  scratch.write(".ssh/id_rsa", "k", 0600);
  LoginSources sources;
  sources.user = "admin";
  sources.port = 2222;
  sources.key_file = "/k";
  sources.use_agent = true;
  sources.passphrase_env = "";
  const auto login = resolve_login(sources, scratch.path());
  CHECK(login.default_keys == std::vector<fs::path>{scratch.path() / ".ssh/id_ed25519"});
  CHECK(login.user == "admin");
  CHECK(login.port == 2222);
  const auto own = scratch.write("state/id_ed25519", "k", 0600);
  CHECK(resolve_login(sources, scratch.path(), own).default_keys == std::vector<fs::path>{own, scratch.path() / ".ssh/id_ed25519"});
  CHECK(login.key_file == fs::path("/k"));
  CHECK(login.use_agent);
  CHECK(login.passphrase->reveal().empty());
}
