#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/profile.hpp"
#include "cli/runtimes.hpp"

namespace lumelift {

/// "Apple 7", "Metal 3", "Mac 2", "Common 3" for an MTLGPUFamily value; "family 77" for one of no known group.
[[nodiscard]] std::string family_name(std::int64_t family);

/// One distinct question that a program asked its device.
struct Question {
  enum class About { family, threadgroup_memory, working_set };
  About about = About::family;
  std::int64_t family = 0;
  std::uint64_t stock = 0;  ///< the device's own answer: 0 or 1 for a family, else bytes
  std::uint64_t count = 0;
  bool operator==(const Question&) const = default;
};

/// What the library's trace file says. `complete`: the program ended by itself, so that all counts are final.
struct Trace {
  std::vector<Question> questions;  ///< in the order in which they were first asked
  std::uint64_t lost = 0;           ///< asked, but beyond what a trace holds
  bool complete = false;
  std::string executable;
};
/// Throws Error "trace-unreadable" (usage) for text that is no trace, with what is wrong.
[[nodiscard]] Trace parse_trace(const std::string& text);

/// The answer that the library would give under this profile.
[[nodiscard]] std::uint64_t with_profile(const Question& question, const Profile& profile);

/// Stable names for scripts: "large-gain", "no-gain", "breaks-with-metal3", "unknown".
enum class Outlook { large_gain, no_gain, breaks_with_metal3, unknown };
[[nodiscard]] std::string_view name_of(Outlook outlook);

/// What an unlock under a profile would bring. Pure.
struct Explanation {
  std::vector<Outlook> outlooks;      ///< the first is the answer; breaks_with_metal3 may follow
  std::string reason;                 ///< plain words
  std::vector<std::int64_t> granted;  ///< refused families that the profile would grant, lowest first
};
/// `runtime` may be null: what asks is not known.
[[nodiscard]] Explanation explain(const Trace& trace, const Profile& profile, const Runtime* runtime);

}  // namespace lumelift
