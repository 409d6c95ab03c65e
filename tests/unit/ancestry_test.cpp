#include "host/ancestry.hpp"

#include <doctest/doctest.h>

#include "tests/unit/scratch.hpp"

using namespace lumelift;
using test::holds;
using Names = std::vector<std::string>;

TEST_CASE("R101: the programs above a process, nearest first") {
  const std::string table =
      "    1     0 /sbin/launchd\n"
      "  501     1 /System/Applications/Utilities/Terminal.app/Contents/MacOS/Terminal\n"
      "  600   501 login\n"
      "  601   600 -zsh\n"
      "  700   601 ./build/lumelift\n"
      " 9999     1 /usr/sbin/other\n";
  CHECK(ancestors(table, 700) == Names{"-zsh", "login", "/System/Applications/Utilities/Terminal.app/Contents/MacOS/Terminal"});
  CHECK(ancestors(table, 9999).empty());
  CHECK(ancestors(table, 4).empty());
  CHECK(ancestors("", 1).empty());
}

TEST_CASE("a table that is no table, and one with a ring, come to an end") {
  CHECK(ancestors("nonsense\n\n 12\n12 x y\n99999999999999999999 1 a\n", 12).empty());
  CHECK(ancestors("5 6 a\n6 5 b\n", 5).size() == 32);
}

TEST_CASE("R101, R102: who is held responsible decides the advice") {
  CHECK(holds(local_network_advice({"-zsh", "/opt/homebrew/bin/tmux"}), "inside tmux"));
  CHECK(holds(local_network_advice({"zsh", "tmux", "/System/Applications/Utilities/Terminal.app/Contents/MacOS/Terminal"}), "inside tmux"));
  CHECK(holds(local_network_advice({"-zsh", "sshd: admin@ttys001", "/usr/sbin/sshd"}), "over SSH"));
  CHECK(holds(local_network_advice({"-zsh", "/usr/libexec/sshd-session"}), "over SSH"));
  CHECK(holds(local_network_advice({"-zsh", "login", "/System/Applications/Utilities/Terminal.app/Contents/MacOS/Terminal"}),
              "from Terminal"));
  CHECK(holds(local_network_advice({"zsh", "/Applications/Visual Studio Code.app/Contents/Frameworks/Helper",
                                    "/Applications/Visual Studio Code.app/Contents/MacOS/Electron"}),
              "allow that app"));
  CHECK(holds(local_network_advice({}), "by launchd"));
  CHECK(holds(local_network_advice({"/opt/runner/bin/agent"}), "/opt/runner/bin/agent"));
}
