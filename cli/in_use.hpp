#pragma once

#include <string>
#include <vector>

#include "cli/operation.hpp"

namespace lumelift {

/// What would be cut off if the VM were stopped now. `workloads`: those that lumelift runs there count as well.
enum class Counted { sessions, sessions_and_workloads };

/// Throws Error "vm-in-use" (busy) that names other SSH sessions and running workloads of the VM, unless there are none; for a
/// guest that does not answer, what GuestLink throws. Connects when needed; changes nothing.
void refuse_in_use(Operation& operation, Counted counted);

}  // namespace lumelift
