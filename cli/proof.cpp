#include "cli/proof.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "cli/console.hpp"
#include "cli/json_text.hpp"
#include "cli/receipt.hpp"
#include "host/sys/error.hpp"
#include "remote/inspect.hpp"
#include "remote/log.hpp"

namespace lumelift {
namespace {

using nlohmann::json;
using sys::Deadline;
using sys::Milliseconds;

constexpr Milliseconds probe_limit{20'000};
constexpr Milliseconds device_late{10'000};
constexpr Milliseconds armed_enough{3'000};  // a program that has asked for no device by then may never do so
constexpr Milliseconds steady{250};          // a process that lives this long after its receipt did not die of the library
constexpr int no_device_status = 1;          // of lumelift-probe
constexpr int metal3 = 5001, first_apple = 1001, last_apple = 1010;

std::string text_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::uint64_t number_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
}

Error unproven(std::string id, std::string message) {
  return Error(ErrorKind::unproven, std::move(id), std::move(message));
}

ProbeAnswers run_probe(Guest& guest, const std::vector<std::string>& argv,
                       const std::vector<std::pair<std::string, std::string>>& environment, const char* which) {
  const Deadline deadline = Deadline::in(device_late);
  for (;;) {
    const ExecResult result = guest.run_program(argv, environment, Deadline::in(probe_limit));
    if (result.status == no_device_status && !deadline.expired()) {
      sys::pause(Milliseconds{500}, deadline);
      continue;
    }
    if (result.status == no_device_status) {
      throw unproven("probe-no-device", "the guest has no Metal device")
          .note(cleaned(result.err, 300))
          .fix("check that the VM has a display and that its macOS is 13 or later");
    }
    if (!result.status || result.out.empty()) {
      throw unproven("probe-failed", fmt::format("the {} probe ended with {}", which, result.ending())).note(cleaned(result.err, 600));
    }
    return parse_probe(result.out);
  }
}

/// It ended, and launchd will not start it again, or not yet.
bool has_ended(const AgentSeen& seen) {
  return !seen.pid && !seen.last_exit_text.empty() && seen.runs > 0;
}

/// The Error for an agent that does not stay, with its last words. One that launchd starts again and again is told apart from one that
/// ended for good.
Error exits(Session& session, const GuestGoal::Agent& agent, const AgentSeen& seen) {
  const bool again = seen.held_back || seen.pid;
  auto error = again ? unproven("agent-throttled",
                                fmt::format("{} ends soon after each start: launchd has started it {} time{} so far, and throttles it; {}",
                                            agent.label, seen.runs, seen.runs == 1 ? "" : "s", seen.last_end()))
                     : unproven("agent-exits", fmt::format("{} does not keep running: {}", agent.label,
                                                           has_ended(seen) ? seen.last_end() : "launchd started no process"));
  add_last_words(error, session, agent);
  return error;
}

}  // namespace

void add_last_words(Error& error, Session& session, const GuestGoal::Agent& agent) {
  constexpr std::size_t told = 500;
  const auto piece = read_log(session, agent.stderr_log, std::nullopt, told).value_or(LogPiece{});
  std::string_view tail(piece.text);
  // Whole lines, unless the last of them is longer than all that is told.
  if (piece.from > 0) {
    tail.remove_prefix(tail.find('\n') < tail.size() - 1 ? tail.find('\n') + 1 : 0);
  }
  while (!tail.empty()) {
    const auto line = tail.substr(0, tail.find('\n'));
    if (!line.empty()) {
      error.note("it said: " + cleaned(line, told));
    }
    tail.remove_prefix(std::min(tail.size(), line.size() + 1));
  }
}

std::string_view name_of(AgentProof::Library library) {
  static constexpr std::string_view names[] = {"active", "armed", "mapped"};
  return names[static_cast<std::size_t>(library)];
}

bool ProbeAnswers::family(int value) const {
  const auto found = families.find(value);
  return found != families.end() && found->second;
}

ProbeAnswers parse_probe(const std::string& text) {
  try {
    const json object = json::parse(json_text(text));
    const json& device = object.at("device");
    ProbeAnswers answers;
    answers.raw = object.dump(-1, ' ', false, json::error_handler_t::replace);
    answers.verdict = text_of(object, "verdict");
    answers.slice = text_of(object, "slice");
    for (const auto& problem : object.value("problems", json::array())) {
      answers.problems.push_back(problem.get<std::string>());
    }
    answers.device = text_of(device, "name");
    answers.residency = text_of(device, "residency_set");
    for (const auto& [family, yes] : device.at("families").items()) {
      answers.families[std::stoi(family)] = yes.get<bool>();
    }
    for (const auto& [family, yes] : answers.families) {
      if (yes && family >= first_apple && family <= last_apple) {
        answers.highest_apple = family;
      }
    }
    answers.threadgroup_memory = number_of(device, "max_threadgroup_memory");
    answers.working_set = number_of(device, "recommended_working_set");
    const auto receipt = object.find("receipt");
    if (receipt != object.end() && receipt->is_object() && text_of(*receipt, "outcome") == "stock") {
      answers.stock_reason = text_of(*receipt, "reason");
    }
    return answers;
  } catch (const std::exception& e) {
    throw unproven("probe-unreadable", "the probe's answer cannot be read").note(e.what()).note(cleaned(text, 300));
  }
}

ProbePair run_probes(Guest& guest, const GuestGoal& goal, const Profile& profile) {
  auto environment = profile_environment(profile);
  environment.insert(environment.begin(), {"DYLD_INSERT_LIBRARIES", goal.library});
  environment.emplace_back("LUMELIFT_RECEIPT", goal.probe_receipt);
  // The library takes the receipt's name out of the environment, so that no child can write over it: the probe is told.
  const std::vector<std::string> unlocked = {goal.probe, "--ceiling", std::to_string(profile.apple_family_max), "--receipt",
                                             goal.probe_receipt};
  return {run_probe(guest, {goal.probe}, {}, "stock"), run_probe(guest, unlocked, environment, "unlocked")};
}

std::vector<std::string> shortfalls(const ProbePair& pair, const Profile& profile) {
  std::vector<std::string> out;
  const ProbeAnswers& now = pair.unlocked;
  // Also those that only one of the two answers knows.
  std::map<int, bool> before = now.families;
  for (auto& [family, yes] : before) {
    yes = false;
  }
  for (const auto& [family, yes] : pair.stock.families) {
    before[family] = yes;
  }
  for (const auto& [family, stock] : before) {
    const bool promised = stock || (family >= first_apple && family <= profile.apple_family_max);
    if (now.family(family) == promised) {
      continue;
    }
    out.push_back(promised ? fmt::format("family {} is still refused", family)
                           : fmt::format("family {} is claimed, which the profile does not promise{}", family,
                                         family >= metal3 ? ": programs would ask for objects that the guest cannot make" : ""));
  }
  const std::uint64_t memory = std::max(pair.stock.threadgroup_memory, profile.threadgroup_memory);
  if (now.threadgroup_memory != memory) {
    out.push_back(fmt::format("threadgroup memory is {} bytes, not {}", now.threadgroup_memory, memory));
  }
  if (const auto set = std::max(pair.stock.working_set, profile.working_set); profile.working_set != 0 && now.working_set != set) {
    out.push_back(fmt::format("working set is {} bytes, not {}", now.working_set, set));
  }
  for (const auto& problem : now.problems) {
    out.push_back("the probe says: " + problem);
  }
  if (!out.empty() && !now.stock_reason.empty()) {
    out.push_back("the library stayed stock: " + now.stock_reason);
  }
  return out;
}

AgentProof prove_agent(Session& session, Guest& guest, const GuestGoal::Agent& agent, const AgentGlimpse& before,
                       const Deadline& deadline) {
  const sys::Stopwatch watch;
  std::optional<sys::Stopwatch> alive;
  AgentProof proof;
  AgentSeen seen;
  int runs = before.seen.runs;
  if (before.seen.pid) {
    proof.pid = *before.seen.pid;
    alive = before.since;
  }
  std::string outcome, reason;
  for (Milliseconds pause{30};; pause = std::min(pause * 3 / 2, Milliseconds{500})) {
    std::optional<std::string> written;
    std::tie(seen, written) = guest.agent_and_file(agent.domain, agent.label, agent.receipt);
    if (runs == 0) {
      runs = seen.runs;
    }
    // A new process under our eyes: the one before it did not last, however well the new one looks.
    if (seen.runs > runs) {
      throw exits(session, agent, seen);
    }
    if (seen.pid && *seen.pid != proof.pid) {
      proof.pid = *seen.pid;
      alive.emplace();
      outcome.clear();
    }
    if (seen.pid && outcome != "active") {
      const auto receipt = parse_receipt(written.value_or(""));
      if (receipt && receipt->pid == proof.pid) {
        outcome = receipt->outcome;
        reason = receipt->reason;
        proof.receipt = receipt->json;
      }
    }
    const bool settled = seen.pid && alive && alive->elapsed() >= steady;
    if (settled && (outcome == "active" || (outcome == "armed" && alive->elapsed() >= armed_enough))) {
      proof.library = outcome == "active" ? AgentProof::Library::active : AgentProof::Library::armed;
      return proof;
    }
    if (settled && outcome == "stock") {
      throw unproven("workload-stock", fmt::format("{} runs, but the library left it stock: {}", agent.label, reason))
          .note(cleaned(proof.receipt, 600));
    }
    if (deadline.expired() || (has_ended(seen) && watch.elapsed() > Milliseconds{1'000})) {
      break;
    }
    sys::pause(pause, deadline);
  }
  if (!seen.pid) {
    throw exits(session, agent, seen);
  }
  throw unproven("workload-not-injected",
                 fmt::format("{} runs as pid {}, but no receipt of the library came from it", agent.label, proof.pid))
      .fix("see whether its file can be injected: lumelift inspect FILE");
}

AgentProof prove_agent_by_mapping(Session& session, const GuestGoal::Agent& agent, const std::string& library, const Deadline& deadline) {
  Guest guest(session);
  const sys::Stopwatch watch;
  std::optional<int> pid;
  int runs = 0;
  for (Milliseconds pause{100};; pause = std::min(pause * 3 / 2, Milliseconds{1'000})) {
    const AgentSeen seen = guest.agent(agent.domain, agent.label);
    if (runs == 0) {
      runs = seen.runs;
    }
    if (seen.runs > runs) {
      throw exits(session, agent, seen);
    }
    const bool same = seen.pid && seen.pid == pid;
    pid = seen.pid;
    if (same) {
      const auto files = mapped_files(session, *pid);
      if (std::find(files.begin(), files.end(), library) != files.end()) {
        return {*pid, AgentProof::Library::mapped, {}};
      }
    }
    const bool gone = has_ended(seen) && watch.elapsed() > Milliseconds{1'000};
    if (gone || (deadline.expired() && !seen.pid)) {
      throw exits(session, agent, seen);
    }
    if (deadline.expired()) {
      break;
    }
    sys::pause(pause, deadline);
  }
  throw unproven("workload-not-injected", fmt::format("{} runs as pid {} and does not have the library mapped", agent.label, *pid))
      .fix("see whether its file can be injected: lumelift inspect FILE");
}

}  // namespace lumelift
