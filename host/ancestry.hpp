#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lumelift {

/// The programs above process `pid`, nearest first, without the first process of the system; from the output of
/// `ps -axo pid=,ppid=,comm=`. Pure; trusts no number.
[[nodiscard]] std::vector<std::string> ancestors(std::string_view ps_output, int pid);

/// The programs above our own process; empty when `ps` does not answer. Blocks on it for at most 5 s.
[[nodiscard]] std::vector<std::string> own_ancestors();

/// What Local Network privacy makes of a program that was started by these (nearest first), in one sentence: Terminal and SSH
/// are exempt, an app answers for what it starts, launchd's agents are asked for by nobody. Source: Apple's TN3179 and reports.
[[nodiscard]] std::string local_network_advice(const std::vector<std::string>& ancestors);

}  // namespace lumelift
