#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "host/sys/time.hpp"

namespace lumelift {

/// Stops a VM that lives inside a `lume serve` of this user, through that server's HTTP API: `lume stop` would end the process
/// that holds the VM, and with it every other VM of the server. False when there is no server, or none of them has the VM.
/// Blocks until the server has answered. Throws Error "vm-stop-failed" for an answer that is neither yes nor "not running".
[[nodiscard]] bool stop_in_server(const std::string& name, const sys::Deadline& deadline);

/// The ports of the servers among command lines as `ps -o args=` prints them. Pure.
[[nodiscard]] std::vector<int> server_ports_in(std::string_view command_lines);

}  // namespace lumelift
