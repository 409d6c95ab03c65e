#include "cli/drift.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "cli/operation.hpp"

namespace lumelift {
namespace {

using sys::Deadline;
using sys::Milliseconds;
constexpr Milliseconds reach{10'000}, look_limit{60'000};
constexpr std::int64_t clock_slack_s = 2;

/// What the last step on each resource says is to stand there.
struct Expected {
  std::map<std::string, FileState> files;
  std::map<std::string, SetAgent> agents;
  std::vector<AddLine> lines;
};

Expected expected(const Journal& journal, const std::string& vm) {
  Expected out;
  for (const auto& run : journal.live_runs(vm)) {
    for (const auto& record : journal.steps(run.id)) {
      if (record.state != StepState::done) {
        continue;
      }
      const Step step = step_from_json(record.body);
      if (const auto* file = std::get_if<PutFile>(&step)) {
        out.files[file->path] = file->after;
      }
      if (const auto* line = std::get_if<AddLine>(&step)) {
        out.lines.push_back(*line);
      }
      if (const auto* agent = std::get_if<SetAgent>(&step)) {
        out.agents[agent->label] = *agent;
      }
    }
  }
  return out;
}

}  // namespace

Drift look_for_drift(GuestLink& link, const Journal& journal, const std::vector<Claim>& preference_claims) {
  Drift drift;
  link.connect(Deadline::in(reach), GuestLink::Wait::up);
  Guest& guest = link.guest();
  drift.facts = guest.facts(Deadline::in(reach));
  for (const auto& claim : preference_claims) {
    const auto set = claimed_up(claim);
    drift.stale = drift.stale || (claim.vm == link.vm() && set && *set > booted_up(drift.facts) + clock_slack_s);
  }
  const Expected want = expected(journal, link.vm());
  std::vector<std::string> paths;
  for (const auto& [path, state] : want.files) {
    paths.push_back(path);
  }
  drift.files = paths.size();
  const auto seen = paths.empty() ? std::vector<PathSeen>{} : guest.look(paths, Deadline::in(look_limit));
  for (std::size_t i = 0; i < paths.size(); ++i) {
    if (seen[i].file == want.files.at(paths[i])) {
      continue;
    }
    drift.differences.push_back(fmt::format("{} {}", paths[i], seen[i].kind == PathKind::absent ? "is gone" : "was changed"));
  }
  for (const auto& line : want.lines) {
    if (guest.line_in(line.path, line.line) != LineSeen::present) {
      drift.differences.push_back(line.path + " no longer holds lumelift's key");
    }
  }
  for (const auto& [label, step] : want.agents) {
    const AgentSeen now = guest.agent(step.domain, label);
    drift.agents.push_back({label, step.domain, step.after == AgentState::loaded, now.pid.has_value(), now.pid, now.runs});
    if (step.after == AgentState::loaded && !now.pid) {
      drift.differences.push_back(fmt::format("{} {}", label, now.loaded ? "is loaded but does not run" : "is not loaded"));
    }
  }
  return drift;
}

}  // namespace lumelift
