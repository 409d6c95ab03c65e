#include "cli/verification.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "cli/drift.hpp"
#include "cli/receipt.hpp"
#include "host/sys/fd.hpp"
#include "remote/inspect.hpp"
#include "remote/interactive.hpp"

namespace lumelift {
namespace {

using nlohmann::json;
using sys::Deadline;
using sys::Milliseconds;

constexpr Milliseconds answer{15'000};
constexpr std::size_t receipt_cap = 64u << 10;
constexpr std::int64_t clock_slack_s = 120;  // the guest sets its clock soon after its start
constexpr std::string_view library_name = "/liblumelift-metal.dylib";

Check check_receipt(const ProcessSeen& seen, const std::string& name, std::int64_t booted_at) {
  const auto failed = [&](std::string evidence) { return Check{"agent-receipt", false, fmt::format("{}: {}", name, evidence)}; };
  if (seen.receipt.empty()) {
    return failed("the library wrote no receipt");
  }
  const auto receipt = parse_receipt(seen.receipt);
  if (!receipt) {
    return failed("its receipt cannot be read");
  }
  if (receipt->pid != seen.pid) {
    return failed(
        fmt::format("the receipt is of pid {}, the process is pid {}", receipt->pid ? std::to_string(*receipt->pid) : "none", seen.pid));
  }
  // A pid comes again after a boot, and so may an old receipt.
  if (receipt->started && *receipt->started + clock_slack_s < booted_at) {
    return failed("the receipt is older than this boot of the guest");
  }
  const std::string& outcome = receipt->outcome;
  if (outcome == "active") {
    return {"agent-receipt", true, fmt::format("{}: pid {}, active", name, seen.pid)};
  }
  if (outcome == "armed") {
    return {"agent-receipt", true, fmt::format("{}: pid {}, armed (has asked for no device yet)", name, seen.pid)};
  }
  return failed(fmt::format("the library left it stock ({})", cleaned(receipt->reason, 80)));
}

Check check_library(const ProcessSeen& seen, const std::string& name, const std::string& library) {
  const bool found = std::any_of(seen.mapped.begin(), seen.mapped.end(), [&](const std::string& path) { return path.ends_with(library); });
  if (found) {
    return {"agent-library", true, fmt::format("{}: pid {} has {} mapped", name, seen.pid, library.substr(library.rfind('/') + 1))};
  }
  return {"agent-library", false,
          seen.mapped.empty()
              ? fmt::format("{}: neither lsof nor vmmap tells what pid {} has mapped", name, seen.pid)
              : fmt::format("{}: the library is not among the {} files that pid {} has mapped", name, seen.mapped.size(), seen.pid)};
}

void check_agent(Operation& operation, const Drift& drift, const Drift::Agent& agent, bool receipts, std::vector<Check>& out) {
  GuestLink& link = *operation.link;
  const std::string name = cleaned(agent.label, 200);
  const AgentSeen seen = link.guest().agent(agent.domain, agent.label);
  if (!seen.pid) {
    const std::string ended = seen.last_exit_text.empty() ? std::string() : ", " + cleaned(seen.last_end(), 80);
    const char* state = seen.held_back ? "ends soon after each start, and launchd holds the next one back"
                        : seen.loaded  ? "is loaded but does not run"
                                       : "is not loaded";
    out.push_back({"agent-running", false, fmt::format("{} {}{}", name, state, ended)});
    return;
  }
  // Whatever the new process shows, one that was started again while it was looked at does not last.
  if (agent.runs > 0 && seen.runs > agent.runs) {
    out.push_back({"agent-running", false,
                   fmt::format("{} does not last: {} starts so far, {} of them since the first look; {}", name, seen.runs,
                               seen.runs - agent.runs, cleaned(seen.last_end(), 80))});
    return;
  }
  out.push_back({"agent-running", true, fmt::format("{} runs in {}, pid {}", name, agent.domain, *seen.pid)});
  const auto variable =
      std::find_if(seen.environment.begin(), seen.environment.end(), [](const auto& v) { return v.first == "LUMELIFT_RECEIPT"; });
  const std::string root = guest_root(drift.facts.home);
  ProcessSeen process{*seen.pid, {}, {}};
  if (variable != seen.environment.end() && variable->second.starts_with(root + "/")) {
    process.receipt = link.transfer().read(variable->second, receipt_cap).value_or("");
  }
  process.mapped = mapped_files(link.session(), process.pid);
  auto checks = check_process(process, name, root + std::string(library_name), drift.facts.booted_at);
  if (!receipts) {
    std::erase_if(checks, [](const Check& check) { return check.id == "agent-receipt"; });
  }
  out.insert(out.end(), checks.begin(), checks.end());
}

void check_preference(Operation& operation, const Drift& drift, const std::vector<Claim>& claims, std::vector<Check>& out) {
  const auto mine = std::find_if(claims.begin(), claims.end(), [&](const Claim& claim) { return claim.vm == operation.found.name; });
  if (mine == claims.end()) {
    out.push_back({"preference", true, "not part of this unlock"});
    return;
  }
  const PrefValue now = operation.host.preference(feature_level_key());
  out.push_back({"preference", now == PrefValue(true), fmt::format("the host preference is {}", shown(now))});
  out.push_back({"boot", !drift.stale,
                 drift.stale ? std::string("the guest was booted before the preference got its value")
                             : fmt::format("booted {} s ago, after the preference was set", drift.facts.up_seconds)});
}

void check_guest(const Proven& proven, const GuestFacts& facts, std::vector<Check>& out) {
  out.push_back({"guest-build", facts.build == proven.build,
                 facts.build == proven.build
                     ? fmt::format("macOS {} ({})", facts.os, facts.build)
                     : fmt::format("macOS {} ({}); proven was {} ({})", facts.os, facts.build, proven.os, proven.build)});
}

void check_files(const Drift& drift, std::vector<Check>& out) {
  const std::size_t before = out.size();
  for (const auto& difference : drift.differences) {
    const bool agent =
        std::any_of(drift.agents.begin(), drift.agents.end(), [&](const auto& a) { return difference.starts_with(a.label + " "); });
    if (!agent) {
      out.push_back({"file", false, cleaned(difference)});
    }
  }
  if (out.size() == before) {
    out.push_back({"file", true, fmt::format("{} files are as installed", drift.files)});
  }
}

void check_answers(Operation& operation, const Profile& profile, const GuestFacts& facts, std::vector<Check>& out) {
  GuestGoal goal;
  const std::string root = guest_root(facts.home);
  goal.library = root + std::string(library_name);
  goal.probe = root + "/lumelift-probe";
  goal.probe_receipt = root + "/run/probe.json";
  try {
    const auto missing = shortfalls(run_probes(operation.link->guest(), goal, profile), profile);
    for (const auto& line : missing) {
      out.push_back({"answers", false, cleaned(line)});
    }
    if (missing.empty()) {
      out.push_back({"answers", true, fmt::format("as profile '{}' promises", profile.name)});
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::unproven) {
      throw;
    }
    out.push_back({"answers", false, error.message()});
  }
}

}  // namespace

std::vector<Check> check_process(const ProcessSeen& seen, const std::string& name, const std::string& library, std::int64_t booted_at) {
  return {check_receipt(seen, name, booted_at), check_library(seen, name, library)};
}

Proven proven_by(const std::vector<RunRecord>& runs) {
  Proven out;
  for (const auto& run : runs) {
    if (run.state != RunState::committed || run.summary.empty()) {
      continue;
    }
    try {
      const json report = json::parse(run.summary);
      // A start or stop of one agent proves nothing about the guest.
      if (report.contains("label")) {
        continue;
      }
      if (report.contains("guest")) {
        out.os = report.at("guest").at("os").get<std::string>();
        out.build = report.at("guest").at("build").get<std::string>();
      }
      if (const auto library = report.find("library"); library != report.end() && library->is_object()) {
        out.receipts = library->value("origin", "") == "own";
      }
      const json& profile = report.at("profile");
      out.profile = Profile{profile.at("name").get<std::string>(), profile.at("apple_family_max").get<int>(),
                            profile.at("threadgroup_memory").get<std::uint64_t>(), profile.at("working_set").get<std::uint64_t>()};
    } catch (const std::exception& fault) {
      throw Error(ErrorKind::failed, "journal-unreadable", fmt::format("the report of run {} cannot be read", run.id)).note(fault.what());
    }
  }
  return out;
}

std::vector<Check> verify_vm(Operation& operation) {
  const std::string& vm = operation.found.name;
  const auto runs = operation.journal->live_runs(vm);
  const bool committed = std::any_of(runs.begin(), runs.end(), [](const RunRecord& run) { return run.state == RunState::committed; });
  if (!committed) {
    return {{"unlocked", false, "there is no finished unlock of this VM"}};
  }
  std::vector<Check> out{{"unlocked", true, "a finished unlock is on record"}};
  for (const auto& run : runs) {
    if (run.state != RunState::committed) {
      out.push_back({"unfinished", false, fmt::format("a {} is {}", run.command, shown(run.state))});
    }
  }
  if (operation.found.power() != Power::running) {
    out.push_back({"vm-running", false, fmt::format("the VM is {}", cleaned(operation.found.status, 80))});
    return out;
  }
  const auto claims = operation.journal->claims(resource_of(feature_level_key()));
  const Drift drift = look_for_drift(*operation.link, *operation.journal, claims);
  const Proven proven = proven_by(runs);
  check_preference(operation, drift, claims, out);
  check_guest(proven, drift.facts, out);
  check_files(drift, out);
  if (proven.profile) {
    check_answers(operation, *proven.profile, drift.facts, out);
  }
  for (const auto& agent : drift.agents) {
    if (agent.expected) {
      check_agent(operation, drift, agent, proven.receipts, out);
    } else {
      out.push_back(
          {"agent-stopped", true, fmt::format("{} was stopped by lumelift agents stop, and is not asked for", cleaned(agent.label, 200))});
    }
  }
  return out;
}

std::vector<Check> self_test(Operation& operation) {
  GuestLink& link = *operation.link;
  const GuestFacts facts = link.guest().facts(Deadline::in(answer));
  const std::string root = guest_root(facts.home);
  // A real process that lives as long as its input is open and has no library in it, beside a real receipt that is not its.
  sys::Pipe input = sys::make_pipe();
  std::string said;
  std::vector<Check> out;
  Interaction with;
  with.input = input.read.get();
  with.every = Milliseconds{20};
  with.on_output = [&](std::string_view piece, bool is_err) { said += is_err ? std::string_view() : piece; };
  with.on_wake = [&]() -> std::optional<sys::WindowSize> {
    constexpr std::string_view mark = "lumelift-stock ";
    const auto at = said.find(mark);
    if (!out.empty() || at == said.npos || said.find('\n', at) == said.npos) {
      return std::nullopt;
    }
    ProcessSeen stock;
    std::from_chars(said.data() + at + mark.size(), said.data() + said.size(), stock.pid);
    stock.receipt = link.transfer().read(root + "/run/probe.json", receipt_cap).value_or("");
    stock.mapped = mapped_files(link.session(), stock.pid);
    for (const auto& check : check_process(stock, "a stock process", root + std::string(library_name), facts.booted_at)) {
      // Refused because nothing could be seen shows nothing.
      const bool blind = check.id == "agent-library" && stock.mapped.empty();
      const char* told = check.passed ? "taken for unlocked: " : blind ? "could not be tried: " : "refused: ";
      out.push_back({check.id == "agent-library" ? "self-test-agent-library" : "self-test-agent-receipt", !check.passed && !blind,
                     told + check.evidence});
    }
    input.write = sys::Fd();
    return std::nullopt;
  };
  static_cast<void>(link.session().interact("'/bin/sh' '-c' 'echo \"lumelift-stock $$\"; exec /bin/cat'", with, Deadline::in(answer)));
  if (out.empty()) {
    out.push_back({"self-test-process", false, "the guest started no process to try the check on"});
  }
  return out;
}

}  // namespace lumelift
