#pragma once

// SIMULATION; see framework.hpp.

#include "metal/object.hpp"

namespace lab::metal {

/// `_MTLDevice` (under whatever name the scenario gives it) and the classes of libraries, buffers and queues.
void define_device_classes();
void define_compute_classes();

/// Makes a device of the concrete class, defining that class at the first call. Safe from any thread.
id make_paravirtual_device();
id make_sibling_device();
id make_gpu_device();

// Methods of a device that lead to objects of compute.cpp.
[[nodiscard]] const std::vector<MethodSpec>& compute_methods();

}  // namespace lab::metal
