#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "remote/guest.hpp"

namespace lumelift {

// Readers of what the guest's tools print. Pure; the text is foreign and may be anything.

/// "key<US>value<RS>" records, in order. Text behind the last record separator is dropped.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> parse_records(std::string_view text);

/// Of the mode that stat's %p prints.
[[nodiscard]] PathKind kind_of(unsigned mode);

/// Facts out of the records of Guest::facts(). Throws Error "guest-unreadable" when the account is not in them.
[[nodiscard]] GuestFacts parse_facts(std::string_view body);

/// What Guest::look() was told of `count` paths; nothing when an answer is missing or malformed.
[[nodiscard]] std::optional<std::vector<PathSeen>> parse_look(std::string_view body, std::size_t count);

/// The job that `launchctl print DOMAIN/LABEL` describes. Only the job's own fields count, not those of nested blocks.
struct JobText {
  AgentSeen seen;
  std::string state;  ///< "running", "spawn scheduled", "SIGTERMed", …
  /// launchd has told the job to go and it has not gone yet.
  [[nodiscard]] bool draining() const { return state.starts_with("SIG"); }
};
[[nodiscard]] JobText parse_job(std::string_view text);

}  // namespace lumelift
