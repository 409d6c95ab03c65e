#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/plan.hpp"
#include "cli/profile.hpp"
#include "host/sys/error.hpp"
#include "remote/guest.hpp"

namespace lumelift {

/// What one run of the probe said. `raw` is its JSON, from the guest and therefore untrusted.
struct ProbeAnswers {
  std::string device, verdict, slice, residency;
  std::map<int, bool> families;                           ///< MTLGPUFamily value to answer
  int highest_apple = 0;                                  ///< 1009; 0 without any
  std::uint64_t threadgroup_memory = 0, working_set = 0;  ///< bytes
  std::vector<std::string> problems;                      ///< the probe's own
  std::string stock_reason;                               ///< from the library's receipt, when it stayed stock
  std::string raw;

  [[nodiscard]] bool family(int value) const;
};

struct ProbePair {
  ProbeAnswers stock, unlocked;
};

/// Parses the probe's output. Throws Error "probe-unreadable" (unproven).
[[nodiscard]] ProbeAnswers parse_probe(const std::string& json);

/// Runs the probe scrubbed and injected. A missing device is tried again for 10 s: right after a boot it can be late.
/// Throws Error "probe-failed", "probe-no-device", "probe-unreadable" (all unproven).
[[nodiscard]] ProbePair run_probes(Guest& guest, const GuestGoal& goal, const Profile& profile);

/// Every way in which the unlocked answers miss the profile's promise or exceed it; empty when they are as promised. Pure.
[[nodiscard]] std::vector<std::string> shortfalls(const ProbePair& pair, const Profile& profile);

/// How a running workload was proven.
struct AgentProof {
  int pid = 0;
  enum class Library {
    active,  ///< its answers are in force
    armed,   ///< it waits for the first device
    mapped,  ///< it is in the process and writes no receipts
  };
  Library library = Library::armed;
  std::string receipt;  ///< its JSON; empty under `mapped`
};
/// "active", "armed", "mapped".
[[nodiscard]] std::string_view name_of(AgentProof::Library library);

/// The time since `before` counts as time the process lived. Waits until launchd's process of this label has written a receipt of its own
/// and still runs. Throws Error, unproven: "workload-not-injected" (no receipt), "workload-stock" (receipt says stock, with the reason),
/// "agent-exits" (ends by itself; with its last words), "agent-throttled" (the same again and again: launchd starts it anew).
[[nodiscard]] AgentProof prove_agent(Session& session, Guest& guest, const GuestGoal::Agent& agent, const AgentGlimpse& before,
                                     const sys::Deadline& deadline);

/// The same for a library that writes no receipts: launchd's process has it mapped and lives for a moment. Throws Error,
/// unproven: "workload-not-injected", "agent-exits", "agent-throttled".
[[nodiscard]] AgentProof prove_agent_by_mapping(Session& session, const GuestGoal::Agent& agent, const std::string& library,
                                                const sys::Deadline& deadline);

/// Notes the end of what the agent printed to its standard error, in whole lines. Throws what read_log() throws.
void add_last_words(Error& error, Session& session, const GuestGoal::Agent& agent);

}  // namespace lumelift
