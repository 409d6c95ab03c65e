#pragma once

#include <string_view>

namespace lab {

/// Whether `name` is a library that every Mac has and the lab stands in for (libSystem, libobjc, Metal, …).
/// Loading Metal brings its classes into being.
[[nodiscard]] bool load_system_library(std::string_view name);

/// The address that stands for a symbol of those libraries ("_open"), or null. Only functions whose meaning is the
/// same on both systems, or that are translated here, are known: anything else fails as on a Mac that lacks it.
[[nodiscard]] void* system_symbol(std::string_view name);

struct SystemSymbol {
  const char* name;
  const void* address;
};

}  // namespace lab
