#pragma once

namespace lab {

/// A function that ends the program with dyld's message. Stands where a lazily bound symbol is not to be found: dyld
/// looks for those at launch too, but lets a program run that never calls them.
[[nodiscard]] void* missing_function(const char* symbol);

}  // namespace lab
