#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "cli/engine.hpp"

namespace lumelift {
namespace {

using sys::Deadline;
using sys::Milliseconds;

// A start that was asked for just before a crash shows up in lume's list within this time.
constexpr Milliseconds late_start{5'000};
// For that long after a stop or start lume can miss a VM.
constexpr Milliseconds missing_patience{3'000};

bool pending(const StepRecord& record) {
  return record.state == StepState::intended || record.state == StepState::done;
}
bool is_file_step(const Step& step) {
  return std::holds_alternative<MakeFolder>(step) || std::holds_alternative<PutFile>(step);
}

/// An error with the way out of it, where it knows one: what cannot be undone may need a person.
std::string told(const Error& error) {
  return error.fix().empty() ? error.message() : fmt::format("{} ({})", error.message(), error.fix());
}

constexpr std::string_view guest_path = "guest ";  // before a path of the guest

/// What of the world a step changes, by a name that steps on the same thing share.
std::string thing(const Step& step) {
  return std::visit(
      []<class T>(const T& s) -> std::string {
        if constexpr (std::is_same_v<T, SetPower>) {
          return "power";
        } else if constexpr (std::is_same_v<T, SetPreference>) {
          return "preference " + resource_of(s.key);
        } else if constexpr (std::is_same_v<T, SetAgent>) {
          return "agent " + s.label;
        } else if constexpr (std::is_same_v<T, StageShare>) {
          return "share " + s.folder;
        } else {
          return std::string(guest_path) + s.path;
        }
      },
      step);
}

}  // namespace

/// The step stays pending, and so does every older one on the same thing: looking would take the newer value for somebody else's,
/// or the state between the two for the first one. What is in a folder holds the folder.
void Engine::leave(const Step& step, const std::string& why, UndoReport& report) {
  report.failed.push_back(fmt::format("{}: {}", described(step), why));
  std::string name = thing(step);
  held_.insert(name);
  if (!name.starts_with(guest_path)) {
    return;
  }
  for (auto slash = name.rfind('/'); slash != std::string::npos && slash > guest_path.size(); slash = name.rfind('/')) {
    name.resize(slash);
    held_.insert(name);
  }
}

/// True for a step that has to wait for a newer one that could not be undone. An agent is loaded from its
/// plist only, and a VM that still runs may run with the folder that is shared.
bool Engine::held(const Step& step) const {
  const auto* agent = std::get_if<SetAgent>(&step);
  return held_.contains(thing(step)) || (agent != nullptr && held_.contains(std::string(guest_path) + agent->plist)) ||
         (std::holds_alternative<StageShare>(step) && held_.contains("power"));
}

void UndoReport::add(const UndoReport& more) {
  files_removed += more.files_removed;
  files_restored += more.files_restored;
  agents_stopped += more.agents_stopped;
  agents_restored += more.agents_restored;
  if (more.preference) {
    preference = more.preference;
  }
  restarted = restarted || more.restarted;
  stopped = stopped || more.stopped;
  kept.insert(kept.end(), more.kept.begin(), more.kept.end());
  failed.insert(failed.end(), more.failed.begin(), more.failed.end());
  if (more.unrecorded) {
    unrecorded = more.unrecorded;
  }
}

void Engine::note(const StepRecord& record, StepState state, UndoReport& report) {
  if (report.unrecorded) {
    return;
  }
  try {
    journal_.mark(record.run, record.position, state);
  } catch (const Error& error) {
    report.unrecorded = error.message();
  }
}

void Engine::undo_power(const StepRecord& record, const SetPower& step, UndoReport& report) {
  Look look = observe(step);
  if (look.seen == Seen::other) {
    leave(Step(step), "the VM is " + look.actual, report);
    return;
  }
  if (record.state == StepState::intended && step.after == Power::stopped && look.seen == Seen::before) {
    // The guest may have been asked to shut down already and be on its way: let it finish, then start it again.
    try {
      set(step, Side::after);
      look.seen = Seen::after;
    } catch (const Error& error) {
      if (observe(step).seen != Seen::before) {
        throw;
      }
      warnings_.push_back("the VM runs on: " + error.message());
    }
  }
  const Deadline deadline = Deadline::in(late_start);
  while (record.state == StepState::intended && step.after == Power::running && look.seen == Seen::before && !deadline.expired()) {
    sys::pause(Milliseconds{200}, deadline);
    look = observe(step);
  }
  if (look.seen == Seen::after) {
    if (step.before == Power::stopped) {
      stop_vm(step.start.storage);
      report.stopped = true;
    } else {
      start_vm(step.start);
      report.restarted = true;
      try {
        await_guest();
      } catch (const Error& error) {
        // With our own key taken out again, a refused login is the guest's sign of life.
        if (error.id() != "guest-auth-failed") {
          warnings_.push_back("the VM was started again, but " + error.message());
        }
      }
    }
  }
  note(record, StepState::undone, report);
}

void Engine::undo_preference(const StepRecord& record, const SetPreference& step, UndoReport& report) {
  const std::string resource = resource_of(step.key);
  const auto lock = journal_.lock_preference("rollback " + link_.vm(), Deadline::in(patience_.lock));
  std::vector<std::string> others;
  for (const auto& claim : journal_.claims(resource)) {
    if (claim.vm != link_.vm()) {
      others.push_back(claim.vm);
    }
  }
  StepState outcome = StepState::undone;
  if (!others.empty()) {
    report.preference = fmt::format("kept: {} still {} it", fmt::join(others, ", "), others.size() == 1 ? "claims" : "claim");
  } else {
    const Look look = observe(step);
    if (look.seen == Seen::other) {
      report.kept.push_back(fmt::format("host preference {}: it is {} now, which is neither ours ({}) nor the former ({})", step.key.key,
                                        look.actual, shown(step.after), shown(step.before)));
      outcome = StepState::kept;
    } else {
      if (look.seen == Seen::after && step.before != step.after) {
        set(step, Side::before);
      }
      report.preference = fmt::format("{} {}", step.before == step.after ? "stays" : "restored to", shown(step.before));
    }
  }
  try {
    journal_.release(resource, link_.vm());
  } catch (const Error& error) {
    report.unrecorded = error.message();
  }
  note(record, outcome, report);
}

void Engine::undo_one(const StepRecord& record, const Step& step, const Look& look, UndoReport& report) {
  if (look.seen == Seen::other) {
    report.kept.push_back(fmt::format("{}: found {}, changed by somebody else", described(step), look.actual));
    note(record, StepState::kept, report);
    return;
  }
  if (look.seen == Seen::after) {
    try {
      set(step, Side::before);
    } catch (const Error& error) {
      if (error.id() != "guest-folder-not-empty") {
        throw;
      }
      report.kept.push_back(error.message());
      note(record, StepState::kept, report);
      return;
    }
    if (const auto* file = std::get_if<PutFile>(&step)) {
      ++(file->before ? report.files_restored : report.files_removed);
    }
    if (const auto* agent = std::get_if<SetAgent>(&step);
        agent && agent->before != AgentState::disabled && agent->after != AgentState::unloaded) {
      ++report.agents_stopped;
      console_.step("agent", agent->label + " stopped");
    } else if (agent && agent->before == AgentState::loaded) {
      ++report.agents_restored;
      console_.step("agent", agent->label + " loaded again as it was");
    }
  }
  if (const auto* file = std::get_if<PutFile>(&step)) {
    link_.transfer().tidy(file->path);
  }
  // A copy that was half made goes with it.
  if (const auto* line = std::get_if<AddLine>(&step); line != nullptr && look.seen == Seen::before) {
    link_.guest().remove_line(line->path, line->line, Guest::EmptyFile::keep);
  }
  note(record, StepState::undone, report);
}

void Engine::undo_group(const std::vector<StepRecord>& records, const std::vector<Step>& steps, UndoReport& report) {
  const auto leave_rest = [&](std::size_t from, std::string_view why) {
    for (std::size_t i = from; i < steps.size(); ++i) {
      leave(steps[i], std::string(why), report);
    }
  };
  constexpr std::string_view waits = "waits for what came after it and could not be undone";
  const bool guest = in_guest(steps.front());
  if (vm_missing_ && (guest || std::holds_alternative<SetPower>(steps.front()))) {
    for (const auto& record : records) {
      note(record, StepState::kept, report);
    }
    for (const auto& step : steps) {
      report.kept.push_back(fmt::format("{}: lume no longer knows '{}'", described(step), link_.vm()));
    }
    return;
  }
  if (guest && guest_gone_) {
    return leave_rest(0, "the guest cannot be reached");
  }
  if (std::all_of(steps.begin(), steps.end(), [this](const Step& step) { return held(step); })) {
    return leave_rest(0, waits);
  }
  try {
    if (const auto* power = std::get_if<SetPower>(&steps.front())) {
      return undo_power(records.front(), *power, report);
    }
    if (const auto* preference = std::get_if<SetPreference>(&steps.front())) {
      return undo_preference(records.front(), *preference, report);
    }
    // A put that a killed process left running in the guest is fenced off before anybody looks.
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const auto* file = std::get_if<PutFile>(&steps[i]);
      if (file && records[i].state == StepState::intended) {
        link_.transfer().tidy(file->path);
      }
    }
    const auto looks = observe_group(steps);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (held(steps[i])) {
        leave(steps[i], std::string(waits), report);
        continue;
      }
      try {
        undo_one(records[i], steps[i], looks[i], report);
      } catch (const Error& error) {
        leave(steps[i], told(error), report);
        if (lost(error)) {
          return leave_rest(i + 1, "the connection was lost");
        }
      }
    }
  } catch (const Error& error) {
    leave_rest(0, told(error));
    if (lost(error)) {
      return;
    }
    if (guest && !link_.connected()) {
      guest_gone_ = true;
    }
  }
}

bool Engine::lost(const Error& error) {
  if (error.id() != "guest-lost") {
    return false;
  }
  link_.drop();
  return connection_lost_ = true;
}

void Engine::undo_run(const RunRecord& run, const Belongs& belongs, UndoReport& report) {
  std::vector<StepRecord> records;
  std::vector<Step> steps;
  for (const auto& record : journal_.steps(run.id)) {
    if (!pending(record)) {
      continue;
    }
    Step step = step_from_json(record.body);
    if (belongs && !belongs(step)) {
      continue;
    }
    records.insert(records.begin(), record);
    steps.insert(steps.begin(), std::move(step));
  }
  // Undoing goes by looking, so a journal that takes no more words is no reason to leave the world changed.
  const auto note_run = [&](RunState state) {
    if (report.unrecorded) {
      return;
    }
    try {
      journal_.set_run(run.id, state);
    } catch (const Error& error) {
      report.unrecorded = error.message();
    }
  };
  if (!belongs) {
    note_run(RunState::undoing);
  }
  for (std::size_t at = 0; at < steps.size();) {
    std::size_t end = at + 1;
    while (is_file_step(steps[at]) && end < steps.size() && is_file_step(steps[end])) {
      ++end;
    }
    const auto from = static_cast<std::ptrdiff_t>(at), to = static_cast<std::ptrdiff_t>(end);
    undo_group({records.begin() + from, records.begin() + to}, {steps.begin() + from, steps.begin() + to}, report);
    at = end;
  }
  if (belongs) {
    return;
  }
  const auto after = journal_.steps(run.id);
  const bool left = std::any_of(after.begin(), after.end(), pending);
  note_run(left ? RunState::partial : RunState::undone);
}

void Engine::settle_power(const std::vector<RunRecord>& runs, Restart restart) {
  const auto vm = lume_.find(link_.vm(), Deadline::in(missing_patience));
  vm_missing_ = !vm;
  const bool running = vm && vm->power() == Power::running;
  const auto claims = journal_.claims(resource_of(feature_level_key()));
  const bool others = std::any_of(claims.begin(), claims.end(), [&](const Claim& c) { return c.vm != link_.vm(); });
  for (const auto& run : runs) {
    // Only a run that was proved and committed: after a crash, power is part of what has to be put right.
    if (run.state != RunState::committed) {
      continue;
    }
    const auto records = journal_.steps(run.id);
    bool cycle = false, changes = false, shares = false;
    for (const auto& record : records) {
      const Step step = step_from_json(record.body);
      shares = shares || std::holds_alternative<StageShare>(step);
      if (const auto* power = std::get_if<SetPower>(&step)) {
        cycle = cycle || power->before == Power::running;
      }
      if (const auto* preference = std::get_if<SetPreference>(&step)) {
        changes = changes || preference->before != preference->after;
      }
    }
    const bool pointless = cycle && !shares && (others || !changes) && restart != Restart::always;
    if (vm_missing_ || (running && restart != Restart::never && !pointless)) {
      continue;
    }
    for (const auto& record : records) {
      if (pending(record) && std::holds_alternative<SetPower>(step_from_json(record.body))) {
        journal_.mark(record.run, record.position, StepState::undone);
      }
    }
  }
}

/// An agent that was unloaded for a while and is to be gone in the end is not loaded once more on the way.
void Engine::settle_agents(const std::vector<RunRecord>& newest_first, const Belongs& belongs) {
  std::vector<std::pair<StepRecord, SetAgent>> unloadings;
  for (const auto& run : newest_first) {
    auto records = journal_.steps(run.id);
    std::reverse(records.begin(), records.end());
    for (const auto& record : records) {
      const Step step = step_from_json(record.body);
      const auto* agent = std::get_if<SetAgent>(&step);
      if (agent == nullptr || !pending(record) || (belongs && !belongs(step))) {
        continue;
      }
      if (agent->before == AgentState::loaded) {
        unloadings.emplace_back(record, *agent);
        continue;
      }
      std::erase_if(unloadings, [&](const auto& later) {
        if (later.second.label != agent->label || agent->after != AgentState::loaded) {
          return false;
        }
        journal_.mark(later.first.run, later.first.position, StepState::undone);
        return true;
      });
    }
  }
}

UndoReport Engine::undo(std::vector<RunRecord> runs, Restart restart) {
  UndoReport report;
  guest_gone_ = connection_lost_ = false;
  held_.clear();
  // The failure that led here may have been the connection's. And a key that was just taken out opens no other one.
  if (!link_proven_) {
    link_.drop();
  }
  link_proven_ = true;
  std::sort(runs.begin(), runs.end(), [](const RunRecord& a, const RunRecord& b) { return a.id > b.id; });
  try {
    settle_power(runs, restart);
  } catch (const Error& error) {
    report.failed.push_back("the VM's power: " + error.message());
  }
  try {
    settle_agents(runs, {});
  } catch (const Error& error) {
    report.failed.push_back("the record of it: " + error.message());
  }
  const std::size_t before_steps = report.failed.size();
  for (const auto& run : runs) {
    undo_run(run, {}, report);
  }
  // A guest whose VM was off, and which the undo of its power brought back, can be put right now.
  const bool came_back = guest_gone_ && report.restarted && link_.connected();
  if (connection_lost_ || came_back) {
    report.failed.resize(before_steps);
    guest_gone_ = false;
    held_.clear();
    for (const auto& run : runs) {
      undo_run(run, {}, report);
    }
  }
  return report;
}

UndoReport Engine::undo_steps(std::vector<RunRecord> runs, const Belongs& belongs) {
  UndoReport report;
  guest_gone_ = false;
  held_.clear();
  std::sort(runs.begin(), runs.end(), [](const RunRecord& a, const RunRecord& b) { return a.id > b.id; });
  settle_agents(runs, belongs);
  for (const auto& run : runs) {
    undo_run(run, belongs, report);
  }
  return report;
}

}  // namespace lumelift
