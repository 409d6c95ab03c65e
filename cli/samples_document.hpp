#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cli/samples.hpp"

namespace lumelift {

/// Reads results that are one JSON object: those of an MLX-LM harness, and what `bench --target` keeps of a server's replies.
/// Nothing for any other object; damage becomes a refusal, as in parse_arm().
[[nodiscard]] std::optional<Arm> document_arm(std::string_view text, std::string source);

}  // namespace lumelift
