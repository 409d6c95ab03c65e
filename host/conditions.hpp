#pragma once

#include <memory>

#include "host/sys/process.hpp"

namespace lumelift {

/// Keeps this Mac from idle sleep for as long as the result lives: `caffeinate -i`, which also ends when this process does. Nothing
/// without that tool.
[[nodiscard]] std::unique_ptr<sys::Companion> stay_awake();

/// Cores of this Mac's own GPU by `ioreg`; 0 where it does not say. Blocks up to 10 s.
[[nodiscard]] int gpu_cores();

}  // namespace lumelift
