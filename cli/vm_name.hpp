#pragma once

#include <string>
#include <vector>

#include "host/lume.hpp"
#include "host/sys/error.hpp"

namespace lumelift {

/// The VM of that name. Throws Error "vm-name-invalid", or "vm-unknown" with the name that was probably meant; usage.
[[nodiscard]] Vm find_vm(const Lume& lume, const std::string& name);

/// "vm-unknown", with the name that was probably meant. Asks lume for its list.
[[nodiscard]] Error unknown_vm(const Lume& lume, const std::string& name);

/// Throws Error "vm-address-shared" (busy) when lume lists another running VM at the address that `name` is to be reached at: which of
/// them answers there, nobody knows.
void require_own_address(const std::vector<Vm>& listed, const std::string& name, const std::string& address);

/// Other running VMs than `name` that have no address either; a full lease table leaves all late comers without one.
[[nodiscard]] std::vector<std::string> others_without_address(const std::vector<Vm>& listed, const std::string& name);

}  // namespace lumelift
