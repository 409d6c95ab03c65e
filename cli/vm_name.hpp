#pragma once

#include <string>

#include "host/lume.hpp"
#include "host/sys/error.hpp"

namespace lumelift {

/// The VM of that name. Throws Error "vm-name-invalid", or "vm-unknown" with the name that was probably meant; usage.
[[nodiscard]] Vm find_vm(const Lume& lume, const std::string& name);

/// "vm-unknown", with the name that was probably meant. Asks lume for its list.
[[nodiscard]] Error unknown_vm(const Lume& lume, const std::string& name);

}  // namespace lumelift
