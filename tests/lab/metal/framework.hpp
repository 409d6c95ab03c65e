#pragma once

// SIMULATION. Nothing in this folder is Apple's Metal or says anything about it. It is a set of Objective-C classes,
// made on GNU's runtime, that give the answers which guests and real GPUs are known to give, so that code that asks can
// be rehearsed. How a real device acts is shown by a Mac only.

#include <string>
#include <string_view>

namespace lab::metal {

/// Sets what the simulated machine is: comma-separated words, listed in scenario.hpp. Unknown words end the process.
void read_scenario(const std::string& words);

/// Brings the framework's classes into being, once. The paravirtual device's own class appears with the first device,
/// as its plug-in does on a Mac.
void load_framework();
void note_core_graphics();

/// The address of a C function or constant of the framework, once it is loaded; or null.
[[nodiscard]] void* framework_symbol(std::string_view name);

}  // namespace lab::metal
