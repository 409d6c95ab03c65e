#pragma once

#include <functional>

#include "machrun/image.hpp"

namespace lab {

enum class Need { strong, weak, lazy };

/// Finds an imported symbol. `ordinal` counts an image's dependencies from 1; 0 is the image itself, -1 the program,
/// -2 every image. Returns null only for a weak import that is absent; for a lazy one that is absent, a function that ends the
/// program when it is called; throws LoadError otherwise.
using Binder = std::function<void*(int ordinal, const char* symbol, Need need)>;

/// Rebases and binds every pointer of a freshly mapped image: LC_DYLD_CHAINED_FIXUPS, or the older LC_DYLD_INFO with
/// lazy pointers bound at once. Weak definitions that several images could share are each image's own. Throws LoadError on formats of other
/// systems (arm64e, 32-bit, kernel).
void apply_fixups(const Image& image, const Binder& bind);

}  // namespace lab
