#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/link.hpp"
#include "cli/plan.hpp"

namespace lumelift {

/// How long each log was (bytes) before its program was started: what stands in front of that tells nothing.
using LogMarks = std::map<std::string, std::uint64_t>;
/// Looks only at logs that an agent's readiness depends on.
[[nodiscard]] LogMarks mark_logs(Session& session, const std::vector<GuestGoal::Agent>& agents);

/// Waits until the agent's process `pid` has started up; says what showed it, nothing where its workload does not ask. Blocks
/// for at most `ready.within_s` and one look. Throws Error "workload-not-ready" (unproven) at the deadline, or when the
/// process is gone, and what Session throws.
[[nodiscard]] std::optional<std::string> await_ready(GuestLink& link, const GuestGoal::Agent& agent, int pid, const LogMarks& marks);

/// One JSON object, "null" where nothing is asked; and back, for the record of an unlock. Unreadable text asks nothing.
[[nodiscard]] std::string to_json(const Readiness& ready);
[[nodiscard]] Readiness readiness_from_json(const std::string& text);

}  // namespace lumelift
