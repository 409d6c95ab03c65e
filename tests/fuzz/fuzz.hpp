#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "host/sys/error.hpp"

namespace lumelift::fuzz {

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// An Error is an answer; whatever else comes out of a reader is a finding.
template <class Function>
void tolerate(Function function) {
  try {
    function();
  } catch (const Error&) {
  }
}

/// What must hold for every input.
inline void require(bool held, const char* what) {
  if (held) {
    return;
  }
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

}  // namespace lumelift::fuzz
