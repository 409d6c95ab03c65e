#pragma once

#include <string>

#include "host/sys/error.hpp"

namespace lumelift {

/// The exit status of a command that a signal ended.
constexpr int interrupted_status = 130;

/// What a program learns of a failure, everywhere the same: one JSON object with id, status, message,
/// details and fix.
[[nodiscard]] std::string error_object(const Error& error, int status);

/// A command, or one VM of several, that a signal ended.
[[nodiscard]] std::string interrupted_object(const std::string& next_step);

}  // namespace lumelift
