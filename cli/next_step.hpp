#pragma once

#include <string>

#include "host/sys/error.hpp"

namespace lumelift {

/// What the reader is to do next: the error's own words, else those that fit every error of its id, else where it is explained.
/// Never empty.
[[nodiscard]] std::string next_step(const Error& error);

}  // namespace lumelift
