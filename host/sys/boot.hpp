#pragma once

#include <cstdint>
#include <string>

namespace lumelift::sys {

/// Seconds since this machine was started, its sleep included: what no setting of the clock moves.
[[nodiscard]] std::int64_t up_seconds();
/// Names this start of the machine; empty where the system does not tell.
[[nodiscard]] std::string boot_session();

}  // namespace lumelift::sys
