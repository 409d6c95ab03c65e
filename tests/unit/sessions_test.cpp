#include "remote/ssh_sessions.hpp"

#include <doctest/doctest.h>

using namespace lumelift;

namespace {

using Strings = std::vector<std::string>;

const std::string mac = R"(self 903
    1     0 /sbin/launchd
  512     1 sshd: lume [priv]
  514   512 sshd: lume@ttys000
  515   514 -zsh
  600     1 sshd-session: ci [priv]
  601   600 sshd-session: ci@notty
  900     1 sshd: lume [priv]
  901   900 sshd: lume@notty
  902   901 -zsh
  903   902 /bin/sh -c ps
  950     1 /usr/sbin/sshd -i
  951     1 vim sshd: notes@home
  952     1 sshd: /usr/sbin/sshd -D [listener] 0 of 10-100 startups
)";

}  // namespace

TEST_CASE("SSH sessions: those of others, by the name the server gives their processes, and not our own") {
  CHECK(parse_sessions(mac) == Strings{"lume (ttys000), pid 514", "ci (notty), pid 601"});
  CHECK(parse_sessions("self 5\n 5 1 sh\n") == Strings{});
}

TEST_CASE("SSH sessions: text that is no listing") {
  CHECK_FALSE(parse_sessions(""));
  CHECK_FALSE(parse_sessions("ps: illegal option\n"));
  CHECK(parse_sessions("self 5\n\n x\n5\n7 8\n9 9 sshd:\n10 10 sshd: @x\n11 11 sshd: a@\n") == Strings{"a (), pid 11"});
}

TEST_CASE("SSH sessions: a listing that goes round in circles ends") {
  CHECK(parse_sessions("self 5\n5 6 sh\n6 5 sshd: a@notty\n7 7 sshd: b@notty\n") == Strings{"b (notty), pid 7"});
}
