#pragma once

#include <functional>

#include "machrun/image.hpp"

namespace lab {

/// Finds an imported symbol. `ordinal` counts an image's dependencies from 1; 0 is the image itself, -1 the program,
/// -2 every image. Returns null only for a weak import that is absent; throws LoadError otherwise.
using Binder = std::function<void*(int ordinal, const char* symbol, bool weak)>;

/// Rebases and binds every pointer of a freshly mapped image: LC_DYLD_CHAINED_FIXUPS, or the older LC_DYLD_INFO with
/// lazy pointers bound at once. Throws LoadError on formats of other systems (arm64e, 32-bit, kernel).
void apply_fixups(const Image& image, const Binder& bind);

}  // namespace lab
