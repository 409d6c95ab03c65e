#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "host/sys/error.hpp"
#include "host/sys/time.hpp"
#include "remote/script.hpp"

namespace lumelift {

[[nodiscard]] std::string_view first_word(std::string_view line);
/// What follows the first word, up to the end of the line.
[[nodiscard]] std::string second_word(std::string_view line);

/// The Error for what a script of Transfer said instead of "done". `size` is what was to be written, in bytes.
[[nodiscard]] Error refusal(const std::string& path, const ScriptAnswer& answer, std::uint64_t size);

/// A minute, and as much again as the guest's checksum tool may take.
[[nodiscard]] sys::Deadline time_for(std::uint64_t size);

}  // namespace lumelift
