#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "host/sys/hash.hpp"
#include "remote/guest.hpp"
#include "remote/launch_agent.hpp"
#include "server.hpp"

using namespace lumelift;
using namespace lumelift::test;
using namespace std::chrono_literals;

namespace {

sys::Deadline soon() {
  return sys::Deadline::in(30s);
}

void put(const fs::path& file, std::string_view content, unsigned mode = 0644) {
  std::ofstream(file, std::ios::binary) << content;
  ::chmod(file.c_str(), mode);
}

/// Names that break careless quoting, listings and checksum lines.
const std::vector<std::string> odd_names{"a b",       "it's",        "$(touch x)",   "`id`", "-rf", "a\\b", "new\nline",
                                         "\\leading", "caf\xc3\xa9", "cafe\xcc\x81", "#x;y", "*",   "~",    std::string(255, 'n')};

std::string agent_text(const std::string& home, const std::string& label, std::vector<std::string> arguments) {
  AgentSpec spec;
  spec.label = label;
  spec.arguments = std::move(arguments);
  spec.environment = {{"LUMELIFT_RECEIPT", home + "/receipt"}};
  spec.working_directory = home;
  spec.stdout_path = home + "/out";
  spec.stderr_path = home + "/err";
  return render_agent(sys::read_file(LUMELIFT_SOURCE "/templates/agent.plist", 1u << 20), spec);
}

}  // namespace

TEST_CASE("R60: facts come from the guest, in spite of noisy start files") {
  const LabGuest lab(R"({"uid": 502, "sip": true, "zshenv": "echo noise; printf lumelift; alias printf=false; setopt noclobber"})");
  auto session = lab.connect();
  Guest guest(session);
  const auto facts = guest.facts(soon());
  CHECK(facts.user == "lume");
  CHECK(facts.uid == 502);
  CHECK(facts.home == lab.home());
  CHECK(facts.shell == "/bin/zsh");
  CHECK(facts.os == "26.5.2");
  CHECK(facts.build == "25F84");
  CHECK(facts.model == "VirtualMac2,1");
  CHECK(facts.identity.size() == 36);
  CHECK(facts.memory == 8589934592);
  CHECK(facts.disk_free > 1'000'000);
  CHECK(facts.up_seconds >= 0);
  CHECK(facts.up_seconds < 60);
  CHECK(facts.sip == true);
  CHECK(facts.gui_domain);
  CHECK(facts.domain() == "gui/502");
}

TEST_CASE("R44: without a login session the domain is the user's") {
  const LabGuest lab(R"({"gui": false})");
  auto session = lab.connect();
  const auto facts = Guest(session).facts(soon());
  CHECK_FALSE(facts.gui_domain);
  CHECK(facts.domain() == "user/501");
  CHECK(facts.sip == false);
}

TEST_CASE("R92, R94: looking at odd names") {
  const LabGuest lab;
  auto session = lab.connect();
  Guest guest(session);
  const auto folder = lab.home() + "/odd";
  fs::create_directory(folder);
  std::vector<std::string> paths;
  for (const auto& name : odd_names) {
    put(folder + "/" + name, "content of " + name, 0640);
    paths.push_back(folder + "/" + name);
  }
  ::symlink("/etc/passwd", (folder + "/link").c_str());
  ::mkfifo((folder + "/fifo").c_str(), 0600);
  for (const auto* more : {"/link", "/fifo", "", "/missing"}) {
    paths.push_back(folder + more);
  }
  const auto seen = guest.look(paths, soon());
  REQUIRE(seen.size() == paths.size());
  for (std::size_t i = 0; i < odd_names.size(); ++i) {
    INFO(odd_names[i]);
    const auto content = "content of " + odd_names[i];
    CHECK(seen[i].kind == PathKind::file);
    CHECK(seen[i].owner == 501);
    REQUIRE(seen[i].file);
    CHECK(*seen[i].file == FileState{sys::sha256(content), 0640, content.size()});
  }
  const auto at = odd_names.size();
  CHECK(seen[at].kind == PathKind::link);
  CHECK(seen[at + 1].kind == PathKind::other);
  CHECK(seen[at + 2].kind == PathKind::folder);
  CHECK(seen[at + 3] == PathSeen{});
  // More than one command line could hold.
  std::vector<std::string> many(1500, folder + "/" + std::string(200, 'm'));
  many.back() = folder + "/a b";
  const auto all = guest.look(many, soon());
  REQUIRE(all.size() == 1500);
  CHECK(all.back().file);
  CHECK(all.front() == PathSeen{});
  CHECK(error_id([&] { (void)guest.look({"relative"}, soon()); }) == "guest-path-unsafe");
  CHECK(error_id([&] { (void)guest.look({"/a/../b"}, soon()); }) == "guest-path-unsafe");
}

TEST_CASE("folders and files are made and removed with care") {
  const LabGuest lab(R"({"umask": "077"})");
  auto session = lab.connect();
  Guest guest(session);
  const auto own = lab.home() + "/.local/share/lumelift";
  fs::create_directories(lab.home() + "/.local/share");
  guest.make_folder(own, 0755);
  guest.make_folder(own, 0755);
  CHECK((fs::status(own).permissions() & fs::perms::mask) == fs::perms(0755));
  CHECK(error_id([&] { guest.make_folder(own, 0700); }) == "guest-path-unsafe");
  CHECK(error_id([&] { guest.make_folder(own + "/a/b", 0700); }) == "guest-tool-failed");
  put(own + "/file", "x");
  CHECK(error_id([&] { guest.remove_folder(own, Guest::Remove::empty_only); }) == "guest-folder-not-empty");
  CHECK(error_id([&] { guest.make_folder(own + "/file", 0700); }) == "guest-path-unsafe");
  CHECK(error_id([&] { guest.remove_folder(own + "/file", Guest::Remove::with_content); }) == "guest-path-unsafe");
  CHECK(error_id([&] { guest.remove_file(own); }) == "guest-path-unsafe");
  guest.remove_file(own + "/file");
  guest.remove_file(own + "/file");
  CHECK_FALSE(fs::exists(own + "/file"));
  const auto elsewhere = lab.home() + "/elsewhere";
  fs::create_directory(elsewhere);
  put(elsewhere + "/precious", "x");
  ::symlink(elsewhere.c_str(), (own + "/trap").c_str());
  CHECK(error_id([&] { guest.remove_folder(own + "/trap", Guest::Remove::with_content); }) == "guest-path-unsafe");
  CHECK(error_id([&] { guest.make_folder(own + "/trap/in", 0755); }) == "guest-path-unsafe");
  CHECK(error_id([&] { guest.remove_folder("/Users/x", Guest::Remove::with_content); }) == "guest-path-unsafe");
  guest.remove_file(own + "/trap");
  CHECK(fs::exists(elsewhere + "/precious"));
  put(own + "/x", "x");
  guest.remove_folder(own, Guest::Remove::with_content);
  guest.remove_folder(own, Guest::Remove::empty_only);
  CHECK_FALSE(fs::exists(own));
}

TEST_CASE("R71: a quarantine mark is seen") {
  const LabGuest lab;
  auto session = lab.connect();
  Guest guest(session);
  put(lab.home() + "/lib", "x");
  CHECK_FALSE(guest.quarantined(lab.home() + "/lib"));
  CHECK(session.exec("/usr/bin/xattr -w com.apple.quarantine 0081 " + quote(lab.home() + "/lib"), soon()).ok());
  CHECK(guest.quarantined(lab.home() + "/lib"));
  CHECK(error_id([&] { (void)guest.quarantined(lab.home() + "/none"); }) == "guest-tool-failed");
}

TEST_CASE("R61, R68: a program gets exactly its variables") {
  const LabGuest lab(R"({"zshenv": "export DYLD_INSERT_LIBRARIES=/old LUMELIFT_TRACE=/old KEPT=yes"})");
  auto session = lab.connect();
  Guest guest(session);
  const auto result = guest.run_program({"/usr/bin/env"}, {{"LUMELIFT_ONLY", "a 'b' $c\nd"}, {"EMPTY", ""}}, soon());
  CHECK(result.ok());
  CHECK(result.out.find("LUMELIFT_ONLY=a 'b' $c\nd\n") != std::string::npos);
  CHECK(result.out.find("EMPTY=\n") != std::string::npos);
  CHECK(result.out.find("KEPT=yes\n") != std::string::npos);
  CHECK(result.out.find("/old") == std::string::npos);
  const auto words = guest.run_program({"/usr/bin/printf", "[%s]", "", "a b", "-x", "=y", "*", "~", "'"}, {}, soon());
  CHECK(words.out == "[][a b][-x][=y][*][~][']");
  CHECK(guest.run_program({"/bin/sh", "-c", "exit 9"}, {}, soon()).status == 9);
  CHECK(error_id([&] { (void)guest.run_program({"/a=b"}, {}, soon()); }) == "program-unusable");
  CHECK(error_id([&] { (void)guest.run_program({"/a"}, {{"-u", "x"}}, soon()); }) == "program-unusable");
}

TEST_CASE("an agent is loaded, seen and removed") {
  const LabGuest lab;
  auto session = lab.connect();
  Guest guest(session);
  const auto plist = lab.home() + "/io.test.plist";
  const auto text = agent_text(lab.home(), "io.test", {"/bin/sleep", "100"});
  CHECK_FALSE(guest.lint_and_agent(text, "gui/501", "io.lumelift.none").loaded);
  CHECK(error_id([&] { (void)guest.lint_and_agent("<plist><dict>&</dict></plist>", "gui/501", "io.lumelift.none"); }) ==
        "agent-plist-refused");
  put(plist, text);
  CHECK_FALSE(guest.agent("gui/501", "io.test").loaded);
  guest.bootout("gui/501", "io.test", soon());
  guest.bootstrap("gui/501", "io.test", plist, soon());
  const auto seen = guest.agent("gui/501", "io.test");
  CHECK(seen.loaded);
  CHECK(seen.pid);
  CHECK(seen.path == plist);
  CHECK(seen.runs == 1);
  CHECK_FALSE(seen.disabled);
  CHECK(std::find(seen.environment.begin(), seen.environment.end(),
                  std::pair<std::string, std::string>("LUMELIFT_RECEIPT", lab.home() + "/receipt")) != seen.environment.end());
  guest.bootstrap("gui/501", "io.test", plist, soon());  // loaded already, from this very file
  put(lab.home() + "/other.plist", text);
  CHECK(error_id([&] { guest.bootstrap("gui/501", "io.test", lab.home() + "/other.plist", soon()); }) == "agent-still-loaded");
  guest.bootout("gui/501", "io.test", soon());
  CHECK_FALSE(guest.agent("gui/501", "io.test").loaded);
}

TEST_CASE("R44, R45, R52, R54, R55, R57: launchd's refusals are told apart by looking") {
  const LabGuest lab(R"({"gui": false, "gui_error": 5, "perm_error": 5})");
  auto session = lab.connect();
  Guest guest(session);
  const auto plist = lab.home() + "/io.test.plist";
  put(plist, agent_text(lab.home(), "io.test", {"/bin/sleep", "100"}));
  CHECK(error_id([&] { guest.bootstrap("gui/501", "io.test", plist, soon()); }) == "agent-domain-missing");
  CHECK_FALSE(guest.agent("gui/501", "io.test").loaded);
  guest.disable("user/501", "io.test");
  CHECK(guest.agent("user/501", "io.test").disabled);
  CHECK(error_id([&] { guest.bootstrap("user/501", "io.test", plist, soon()); }) == "agent-disabled");
  guest.enable("user/501", "io.test");
  guest.bootstrap("user/501", "io.test", plist, soon());
  guest.bootout("user/501", "io.test", soon());
  put(plist, "<plist><dict><key>Label</key><string>a & b</string></dict></plist>");
  CHECK(error_id([&] { guest.bootstrap("user/501", "io.test", plist, soon()); }) == "agent-plist-refused");
  put(plist, agent_text(lab.home() + "/no-such-folder", "io.test", {"/bin/sleep", "100"}));
  const auto text = error_text([&] { guest.bootstrap("user/501", "io.test", plist, soon()); });
  CHECK(text.starts_with("agent-path-unopenable"));
  CHECK(text.find("78") != std::string::npos);
  CHECK(error_id([&] { guest.enable("gui/501", "io.test"); }) == "agent-domain-missing");
}

TEST_CASE("R47, R53: status 0 with nothing loaded, 37 with a job that comes") {
  const LabGuest liar(R"({"bootstrap_lies": 1})");
  auto session = liar.connect();
  const auto plist = liar.home() + "/io.test.plist";
  put(plist, agent_text(liar.home(), "io.test", {"/bin/sleep", "100"}));
  CHECK(error_id([&] { Guest(session).bootstrap("gui/501", "io.test", plist, sys::Deadline::in(2s)); }) == "agent-not-loaded");
  const LabGuest busy(R"({"bootstrap_error": 37})");
  auto other = busy.connect();
  const auto list = busy.home() + "/io.test.plist";
  put(list, agent_text(busy.home(), "io.test", {"/bin/sleep", "100"}));
  const auto outcome = error_id([&] { Guest(other).bootstrap("gui/501", "io.test", list, sys::Deadline::in(3s)); });
  CHECK((outcome == "none" || outcome == "agent-not-loaded"));
}

TEST_CASE("an agent that ends at once is loaded; one that will not go is said so") {
  const LabGuest lab(R"({"drain": 3, "exit_timeout": 20})");
  auto session = lab.connect();
  Guest guest(session);
  const auto plist = lab.home() + "/io.test.plist";
  put(plist, agent_text(lab.home(), "io.test", {"/bin/sh", "-c", "exit 3"}));
  guest.bootstrap("gui/501", "io.test", plist, soon());
  const auto seen = guest.agent("gui/501", "io.test");
  CHECK(seen.loaded);
  CHECK_FALSE(seen.pid);
  CHECK(seen.last_exit == 3);
  CHECK(error_id([&] { guest.bootout("gui/501", "io.test", sys::Deadline::in(1s)); }) == "agent-still-loaded");
  guest.bootout("gui/501", "io.test", soon());
  CHECK_FALSE(guest.agent("gui/501", "io.test").loaded);
}

TEST_CASE("a guest shuts down by whichever way is open") {
  std::string why;
  {
    const LabGuest lab;
    auto session = lab.connect();
    CHECK(Guest(session).shut_down({}, why) == "sudo shutdown");
    CHECK(why.empty());
  }
  {
    const LabGuest lab(R"({"sudo": "password"})");
    auto session = lab.connect();
    CHECK(Guest(session).shut_down(sys::Secret("lume"), why) == "sudo shutdown with the password");
    CHECK(why.find("password is required") != std::string::npos);
  }
  why.clear();
  const LabGuest lab(R"({"sudo": "none"})");
  auto session = lab.connect();
  CHECK_FALSE(Guest(session).shut_down(sys::Secret("lume"), why));
  CHECK(why.find("sudoers") != std::string::npos);
  CHECK(why.find("Not authorized") != std::string::npos);
}
