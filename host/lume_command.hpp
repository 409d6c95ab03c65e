#pragma once

#include <string>
#include <vector>

#include "host/lume.hpp"
#include "host/sys/process.hpp"

namespace lumelift {

/// Runs one lume command with its log kept low. Throws Error "lume-missing", Interrupted.
[[nodiscard]] sys::Outcome lume_command(const std::vector<std::string>& argv, const sys::Deadline& deadline);

/// Throws "lume-no-answer" or "lume-failed" for a command that did not end well.
[[noreturn]] void lume_failed(const std::vector<std::string>& argv, const sys::Outcome& outcome);

/// Lume::list() for who cannot wait as long.
[[nodiscard]] std::vector<Vm> list_vms(const sys::Deadline& deadline);

}  // namespace lumelift
