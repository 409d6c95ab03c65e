#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/sys/error.hpp"
#include "host/sys/fd.hpp"
#include "host/sys/process.hpp"
#include "remote/guest_parse.hpp"
#include "remote/kex.hpp"
#include "remote/key_file.hpp"
#include "remote/script.hpp"
#include "remote/transfer.hpp"

using namespace lumelift;

namespace {

std::string record(const std::string& key, const std::string& value) {
  return key + "\037" + value + "\036";
}

const std::string hash(64, 'a');

const std::string running = R"(gui/501/io.test = {
	active count = 1
	path = /Users/lume/Library/LaunchAgents/io.test.plist
	type = LaunchAgent
	state = running

	program = /bin/sleep
	arguments = {
		/bin/sleep
		pid = 1
	}

	inherited environment = {
		SSH_AUTH_SOCK => /private/tmp/x
	}

	environment = {
		XPC_SERVICE_NAME => io.test
		DYLD_INSERT_LIBRARIES => /Users/lume/a b => c.dylib
	}

	domain = gui/501 [100017]
	runs = 3
	pid = 612
	last exit code = 78: EX_CONFIG

	sockets = {
		nested = {
			state = fooled
		}
	}
}
)";

}  // namespace

TEST_CASE("a job is read from its own fields, not from nested blocks") {
  const auto job = parse_job(running);
  CHECK(job.seen.loaded);
  CHECK(job.state == "running");
  CHECK_FALSE(job.draining());
  CHECK(job.seen.path == "/Users/lume/Library/LaunchAgents/io.test.plist");
  CHECK(job.seen.pid == 612);
  CHECK(job.seen.runs == 3);
  CHECK_FALSE(job.seen.held_back);
  CHECK(job.seen.last_exit == 78);
  CHECK(job.seen.last_exit_text == "78: EX_CONFIG");
  REQUIRE(job.seen.environment.size() == 2);
  CHECK(job.seen.environment[1].first == "DYLD_INSERT_LIBRARIES");
  CHECK(job.seen.environment[1].second == "/Users/lume/a b => c.dylib");
}

TEST_CASE("other states of a job") {
  CHECK_FALSE(parse_job("x = {\n\tlast exit code = (never exited)\n}\n").seen.last_exit);
  CHECK(parse_job("x = {\n\tlast exit code = (never exited)\n}\n").seen.last_exit_text.empty());
  CHECK(parse_job("x = {\n\tlast exit code = 0\n}\n").seen.last_exit == 0);
  const auto killed = parse_job("x = {\n\tlast terminating signal = Killed: 9\n}\n");
  CHECK_FALSE(killed.seen.last_exit);
  CHECK(killed.seen.last_exit_text == "signal Killed: 9");
  CHECK(parse_job("x = {\n\tstate = SIGTERMed\n}\n").draining());
  CHECK(killed.seen.last_end() == "last ended by signal Killed: 9");
  CHECK(AgentSeen{}.last_end() == "never ended");
  const auto throttled = parse_job("x = {\n\tstate = spawn scheduled\n\truns = 7\n\tlast exit code = 78: EX_CONFIG\n}\n").seen;
  CHECK(throttled.held_back);
  CHECK(throttled.runs == 7);
  CHECK(throttled.last_end() == "last exit code 78: EX_CONFIG");
}

TEST_CASE("a job's text cut at every byte does no harm") {
  for (std::size_t length = 0; length <= running.size(); ++length) {
    const auto job = parse_job(std::string_view(running).substr(0, length));
    CHECK((!job.seen.pid || *job.seen.pid > 0));
  }
}

TEST_CASE("facts") {
  const auto body = record("uid", "502") + record("user", "lume") + record("home", "/Users/lume") + record("shell", "/bin/zsh") +
                    record("system",
                           "kern.osproductversion: 26.5.2\nkern.osversion: 25F84\nhw.model: VirtualMac2,1\n"
                           "machdep.cpu.brand_string: Apple M1 Ultra (Virtual)\nkern.uuid: U\nhw.memsize: 8589934592\n"
                           "kern.boottime: { sec = 1785000000, usec = 5 } Mon Jul 25 2026") +
                    record("disk",
                           "Filesystem 1024-blocks Used Available Capacity iused ifree %iused Mounted on\n"
                           "map auto home 100 40 60 40% 1 2 1% /System/Volumes/Data") +
                    record("now", "1785000100") + record("sip", "System Integrity Protection status: disabled.") + record("gui", "125") +
                    record("background", "0");
  auto facts = parse_facts(body);
  CHECK(facts.uid == 502);
  CHECK(facts.user == "lume");
  CHECK(facts.os == "26.5.2");
  CHECK(facts.chip == "Apple M1 Ultra (Virtual)");
  CHECK(facts.identity == "U");
  CHECK(facts.memory == 8589934592);
  CHECK(facts.disk_free == 60 * 1024);
  CHECK(facts.up_seconds == 100);
  CHECK(facts.sip == false);
  CHECK(facts.domain() == "user/502");
  CHECK(parse_facts(body + record("platform", "P")).identity == "P");
  const auto unknown = parse_facts(record("uid", "1") + record("home", "/h") + record("sip", "unknown (Custom)"));
  CHECK_FALSE(unknown.sip);
  CHECK_FALSE(unknown.disk_free);
  for (const auto* text :
       {"df: no such volume", "Filesystem\nabc", "Filesystem\n/dev/disk x x x 1%", "Filesystem\n/dev/disk 1 1 18446744073709551615 1%"}) {
    CHECK_FALSE(parse_facts(record("uid", "1") + record("home", "/h") + record("disk", text)).disk_free);
  }
  CHECK(parse_facts(record("uid", "1") + record("home", "/h") + record("disk", "Filesystem\035/dev/disk 9 2 7 1%")).disk_free == 7 * 1024);
  CHECK_THROWS_AS((void)parse_facts(""), Error);
  CHECK_THROWS_AS((void)parse_facts(record("uid", "x") + record("home", "/h")), Error);
  for (std::size_t length = 0; length < body.size(); ++length) {
    try {
      (void)parse_facts(std::string_view(body).substr(0, length));
    } catch (const Error& error) {
      CHECK(error.id() == "guest-unreadable");
    }
  }
}

TEST_CASE("a record of several lines is one write in every shell, so that two cannot mix") {
  for (const char* shell : {"bash", "dash", "zsh"}) {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0);
    const sys::Fd ours(ends[0]);
    {
      const sys::Fd theirs(ends[1]);
      REQUIRE(theirs.get() < 10);  // dash knows no more than one digit
      const auto script = fmt::format("exec >&{}; {}tell key 'one *\n\n  two\nthree'\ntell other $?", ends[1], tell_function);
      REQUIRE(sys::run({.argv = {shell, "-c", script}}, sys::Deadline::in(std::chrono::seconds(30))).ok());
    }
    std::vector<std::string> messages;
    char bytes[4096];
    for (ssize_t got = 0; (got = ::recv(ours.get(), bytes, sizeof bytes, MSG_DONTWAIT)) > 0;) {
      messages.emplace_back(bytes, static_cast<std::size_t>(got));
    }
    INFO(shell);
    REQUIRE(messages.size() == 2);
    CHECK(unflattened(parse_records(messages[0]).at(0).second) ==
          (shell == std::string("zsh") ? "one *\n\n  two\nthree" : "one *\n  two\nthree"));
    CHECK(parse_records(messages[1]).at(0) == std::pair<std::string, std::string>("other", "0"));
  }
}

TEST_CASE("what was seen at paths") {
  const auto good = "sum 2 " + hash + "\nhere 0\nabsent 1\nhere 2\nhere 3\nstat 40755 501 64\nstat 100644 501 12\nstat 120755 0 3\n";
  const auto seen = parse_look(good, 4);
  REQUIRE(seen);
  CHECK((*seen)[0].kind == PathKind::folder);
  CHECK((*seen)[1].kind == PathKind::absent);
  CHECK((*seen)[2].kind == PathKind::file);
  CHECK((*seen)[2].file == FileState{hash, 0644, 12});
  CHECK((*seen)[3].kind == PathKind::link);
  CHECK((*seen)[3].owner == 0);
  // A checksum in another form is none.
  for (const auto& sum : {"\\" + hash, std::string(64, 'A'), std::string(63, 'a'), std::string()}) {
    const auto unsure = parse_look("here 0\nsum 0 " + sum + "\nstat 100644 501 12\n", 1);
    REQUIRE(unsure);
    CHECK((*unsure)[0].kind == PathKind::file);
    CHECK_FALSE((*unsure)[0].file);
  }
  for (const auto* bad : {"", "here 0\n", "stat 100644 501 12\n", "here 0\nstat 100644 501\n", "here 0\nstat x 501 1\n",
                          "here 9\nstat 100644 501 1\n", "absent\n", "here 0\nstat 100644 501 1\nstat 100644 501 1\n"}) {
    CHECK_FALSE(parse_look(bad, 1));
  }
}

TEST_CASE("frames are cut out of whatever start files print around them") {
  const auto answer = unframe("hello\nlumelift-begin\nbody\n\nlumelift-end 3\nbye");
  REQUIRE(answer);
  CHECK(answer->body == "body\n");
  CHECK(answer->status == 3);
  CHECK(unframe("\nlumelift-begin\n\nlumelift-end 0\n")->body.empty());
  CHECK(unframe("lumelift\nlumelift-begin\n\nlumelift-end 9\n\nlumelift-end 0\n")->body == "\nlumelift-end 9\n");
  for (const auto* bad : {"", "\nlumelift-begin\n", "\nlumelift-end 0\n", "\nlumelift-end 0\n\nlumelift-begin\n",
                          "\nlumelift-begin\nx\nlumelift-end \n", "\nlumelift-begin\nx\nlumelift-end 1x\n"}) {
    CHECK_FALSE(unframe(bad));
  }
}

TEST_CASE("paths in the guest") {
  for (const auto* good : {"/a", "/a/b", "/a b/\xc3\xa9", "/.x", "/...", "/a/-b"}) {
    CHECK_NOTHROW(require_plain_path(good));
  }
  for (const auto* bad : {"", "/", "a", "~/a", "/a/", "//a", "/a//b", "/.", "/a/..", "/../a", "/a/./b"}) {
    CHECK_THROWS_AS(require_plain_path(bad), Error);
  }
  CHECK_THROWS_AS(require_plain_path(std::string("/a\0b", 4)), Error);
  CHECK(own_folders_above("/Users/l/.local/share/lumelift/a/b") ==
        std::vector<std::string>{"/Users/l/.local/share/lumelift", "/Users/l/.local/share/lumelift/a"});
  CHECK(own_folders_above("/Users/l/Library/LaunchAgents/x.plist").empty());
  CHECK(Transfer::part_name("/d/x") == "/d/.x.lumelift-part");
  const std::string content = "0123456789abcdef";
  CHECK(Transfer::before_name("/d/x", content) == "/d/.x.lumelift-before-0123456789ab");
  const auto longest = Transfer::before_name("/d/" + std::string(253, 'n') + "\xc3\xa9", content);
  CHECK(longest.size() - 3 <= 255);
  CHECK(longest != Transfer::before_name("/d/" + std::string(253, 'n') + "\xc3\xa8", content));
}

TEST_CASE("key files are recognised by their text") {
  CHECK(look_at_key("ssh-ed25519 AAAA me").kind == KeyText::Kind::public_key);
  CHECK(look_at_key("PuTTY-User-Key-File-2: ssh-rsa").kind == KeyText::Kind::putty);
  CHECK(look_at_key("").kind == KeyText::Kind::unknown);
  const auto pem = look_at_key("-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n");
  CHECK(pem.kind == KeyText::Kind::private_key);
  CHECK(pem.encrypted);
  CHECK(pem.rsa);
  CHECK_FALSE(look_at_key("-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmU\n").encrypted);
  CHECK(look_at_key("-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAACmFlczI1Ni1jdHI=\n").encrypted);
}

TEST_CASE("a server's offer is read from its first bytes, cut anywhere") {
  std::string packet("\x05\x14", 2);
  packet += std::string(16, 'c');
  for (const std::string list : {"curve25519-sha256,x", "ssh-ed25519", "aes256-ctr", "aes128-ctr", "hmac-sha2-256", "hmac-sha1"}) {
    packet += std::string("\0\0\0", 3) + static_cast<char>(list.size()) + list;
  }
  const auto stream = "notice\r\nSSH-2.0-test\r\n" + std::string("\0\0\1\0", 4) + packet;
  const auto offer = read_offer(stream);
  REQUIRE(offer);
  CHECK(offer->kex == "curve25519-sha256,x");
  CHECK(offer->host_key == "ssh-ed25519");
  CHECK(offer->mac_out == "hmac-sha1");
  for (std::size_t length = 0; length < stream.size(); ++length) {
    CHECK_FALSE(read_offer(std::string_view(stream).substr(0, length)));
  }
  CHECK_FALSE(read_offer("SSH-2.0-x\r\n" + std::string("\0\0\1\0\5\x14", 6) + std::string(16, 'c') + "\xff\xff\xff\xff"));
  CHECK(share_a_name("a,b", "c,b"));
  CHECK_FALSE(share_a_name("a,b", "ab,c"));
  CHECK_FALSE(share_a_name("", ""));
}
