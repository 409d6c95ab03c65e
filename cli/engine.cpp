#include "cli/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "cli/large.hpp"
#include "host/sys/boot.hpp"
#include "host/sys/clone.hpp"
#include "host/sys/file.hpp"

namespace lumelift {
namespace {

using sys::Deadline;
using sys::Milliseconds;
using sys::Stopwatch;

constexpr Milliseconds tool{10'000};       // one launchctl action and its settling
constexpr Milliseconds hard_stop{30'000};  // lume's own limit is 12 s
constexpr Milliseconds reach{20'000};
constexpr std::size_t most_together = 64;           // steps in one command
constexpr std::uint64_t bytes_together = 2u << 20;  // of files sent in one command, held in memory

std::string seconds(Milliseconds span) {
  return fmt::format("{:.1f} s", static_cast<double>(span.count()) / 1000);
}

std::string name_of(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

AgentState state_of(const AgentSeen& seen) {
  return seen.loaded ? AgentState::loaded : seen.disabled ? AgentState::disabled : AgentState::unloaded;
}

bool is_large(const PutFile& step) {
  return !step.source.empty() && step.after.size >= large_file;
}

/// A run of steps that one look at the guest's files can answer.
bool is_file_step(const Step& step) {
  return std::holds_alternative<MakeFolder>(step) || std::holds_alternative<PutFile>(step);
}

}  // namespace

std::string resource_of(const PrefKey& key) {
  return key.domain + " " + key.key;
}

Engine::Engine(Journal& journal, const Host& host, const Lume& lume, GuestLink& link, Console& console, Patience patience)
    : journal_(journal), host_(host), lume_(lume), link_(link), console_(console), patience_(patience) {}

std::optional<Milliseconds> Engine::started_ago() const {
  return started_ ? std::optional(started_->elapsed()) : std::nullopt;
}

// ---------------------------------------------------------------- looking

Engine::Look Engine::observe(const SetPower& step) {
  const auto vm = lume_.find(link_.vm());
  if (!vm) {
    return {Seen::other, "unknown to lume"};
  }
  const auto power = vm->power();
  if (!power) {
    return {Seen::other, vm->status};
  }
  return {*power == step.after ? Seen::after : Seen::before, vm->status};
}

Engine::Look Engine::observe(const SetPreference& step) {
  const PrefValue now = host_.preference(step.key);
  return {now == step.after ? Seen::after : now == step.before ? Seen::before : Seen::other, shown(now)};
}

Engine::Look Engine::observe(const AddLine& step) {
  const bool there = link_.guest().line_in(step.path, step.line) == LineSeen::present;
  return {there ? Seen::after : Seen::before, there ? "there" : "not there"};
}

Engine::Look Engine::observe(const SetAgent& step) {
  const AgentState now = state_of(link_.guest().agent(step.domain, step.label));
  return {now == step.after    ? Seen::after
          : now == step.before ? Seen::before
                               : Seen::other,
          now == AgentState::loaded     ? "loaded"
          : now == AgentState::disabled ? "disabled"
                                        : "not loaded"};
}

Engine::Look Engine::observe(const StageShare& step) {
  std::error_code fault;
  const bool there = std::filesystem::exists(std::filesystem::path(step.folder).parent_path(), fault);
  return {there ? Seen::after : Seen::before, there ? "there" : "not there"};
}

std::vector<Engine::Look> Engine::observe_files(const std::vector<Step>& steps) {
  std::vector<std::string> paths;
  std::vector<bool> large;
  for (const auto& step : steps) {
    const auto* folder = std::get_if<MakeFolder>(&step);
    paths.push_back(folder ? folder->path : std::get<PutFile>(step).path);
    large.push_back(!folder && is_large(std::get<PutFile>(step)));
  }
  const auto seen = look(link_.guest(), paths, large, plug_pulled_ ? Trust::nothing : Trust::manifest, Deadline::in(patience_.start));
  std::vector<Look> looks;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const PathSeen& now = seen.at(i);
    if (std::holds_alternative<MakeFolder>(steps[i])) {
      looks.push_back({now.kind == PathKind::absent   ? Seen::before
                       : now.kind == PathKind::folder ? Seen::after
                                                      : Seen::other,
                       "not a folder"});
      continue;
    }
    const auto& file = std::get<PutFile>(steps[i]);
    const bool absent = now.kind == PathKind::absent;
    const bool is_before = file.before ? now.file == file.before : absent;
    looks.push_back({now.file == file.after ? Seen::after
                     : is_before            ? Seen::before
                                            : Seen::other,
                     absent     ? "absent"
                     : now.file ? "sha256 " + now.file->sha256.substr(0, 12)
                                : "not a file"});
  }
  return looks;
}

std::vector<Engine::Look> Engine::observe_group(const std::vector<Step>& steps) {
  if (is_file_step(steps.front())) {
    return observe_files(steps);
  }
  return std::visit(
      [this]<class T>(const T& step) -> std::vector<Look> {
        if constexpr (std::is_same_v<T, MakeFolder> || std::is_same_v<T, PutFile>) {
          return {};
        } else {
          return {observe(step)};
        }
      },
      steps.front());
}

// ---------------------------------------------------------------- setting: each returns when the world shows the value

void Engine::stop_vm(const std::string& storage) {
  const Stopwatch watch;
  std::string why = "the guest never answered";
  std::optional<std::string> asked;
  bool went_off = false;  // since we looked, as a killed run may have asked it to
  if (!silent_since_start_) {
    try {
      link_.connect(Deadline::in(reach), GuestLink::Wait::up);
      asked = link_.guest().shut_down(link_.login().password, why);
    } catch (const Error& error) {
      went_off = error.id() == "vm-stopped";
      // A guest that lets nobody in may be well: whoever meant another key has not asked for its plug to be pulled.
      if (!went_off && !is_silence(error)) {
        throw;
      }
      why = error.message();
    }
  }
  link_.drop();
  started_.reset();
  if ((asked || went_off) && lume_.wait_stopped(link_.vm(), Deadline::in(patience_.clean_stop))) {
    plug_pulled_ |= went_off;  // nobody saw how
    console_.step("stop", went_off ? "went off by itself" : fmt::format("shut down in {}", seconds(watch.elapsed())));
  } else {
    if (asked) {
      why = fmt::format("it did not go down within {}", seconds(patience_.clean_stop));
    }
    plug_pulled_ = true;
    lume_.stop(link_.vm(), storage, Deadline::in(hard_stop));
    console_.step("stop", fmt::format("plug pulled after {} by lume stop: no clean shutdown, {}", seconds(watch.elapsed()), why));
    warnings_.push_back(fmt::format("'{}' was stopped hard by lume stop: {}", link_.vm(), why));
  }
  vm_time_ += watch.elapsed();
}

void Engine::start_vm(const StartOptions& options) {
  const Stopwatch watch;
  link_.drop();
  started_.emplace();
  silent_since_start_ = true;
  lume_.start(link_.vm(), options, Deadline::in(patience_.start));
  vm_time_ += watch.elapsed();
}

void Engine::await_guest() {
  const Stopwatch watch;
  const Milliseconds used = started_ ? started_->elapsed() : Milliseconds{0};
  try {
    link_.connect(Deadline::in(std::max(patience_.start - used, Milliseconds{1'000})), GuestLink::Wait::booting);
  } catch (const Error& error) {
    silent_since_start_ = is_silence(error);  // a refusal is an answer: such a guest may be well
    throw;
  }
  silent_since_start_ = false;
  vm_time_ += watch.elapsed();
  console_.step("start",
                fmt::format("guest answers after {}  {}", seconds(started_ ? started_->elapsed() : watch.elapsed()), link_.address()));
}

void Engine::set(const SetPower& step, Side side) {
  const Power want = side == Side::after ? step.after : step.before;
  if (want == Power::stopped) {
    stop_vm(step.start.storage);
  } else {
    start_vm(step.start);
    await_guest();
  }
}

void Engine::set(const SetPreference& step, Side side) {
  host_.set_preference(step.key, side == Side::after ? step.after : step.before);
}

void Engine::set(const MakeFolder& step, Side side) {
  if (side == Side::after) {
    link_.guest().make_folder(step.path, step.mode);
  } else {
    link_.guest().remove_folder(step.path, step.with_content ? Guest::Remove::with_content : Guest::Remove::empty_only);
  }
}

void Engine::set(const PutFile& step, Side side) {
  Transfer& transfer = link_.transfer();
  if (side == Side::before) {
    transfer.take_back(step.path, step.before);
    return;
  }
  if (step.source.empty()) {
    transfer.put_bytes(step.content, step.path, step.after);
    return;
  }
  const Stopwatch watch;
  transfer.put_file(step.source, step.path, step.after,
                    [&](std::uint64_t sent, std::uint64_t total) { console_.progress(name_of(step.path), sent, total); });
  console_.end_progress();
  console_.step("copy",
                fmt::format("{}  {}  {}", name_of(step.path), shown_bytes(step.after.size), shown_rate(step.after.size, watch.elapsed())));
}

void Engine::send(RunId run, int first, const std::vector<Step>& steps) {
  std::vector<LargeJob> jobs;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const auto& step = std::get<PutFile>(steps[i]);
    const auto record = [this, run, position = first + static_cast<int>(i), step = PutFile(step)](const FileState& state) mutable {
      const bool planned = step.after.sha256.empty() || step.after.sha256 == state.sha256;
      if (!planned || state.size != step.after.size) {
        throw Error(ErrorKind::failed, "source-changed", fmt::format("{} is not what was planned for any more", step.source.string()))
            .fix("leave the file alone and try again");
      }
      step.after = state;
      // After a crash the file is recognised by its hash, and without one on record it was never renamed.
      journal_.amend(run, position, to_json(Step(step)));
    };
    LargeJob job{{step.source, step.path, step.after.mode, step.before, Former::keep}, record};
    // What is no longer on the share was copied from it for another destination.
    if (const auto share = shares_.find(step.source.string()); share != shares_.end() && std::filesystem::exists(share->second.staged)) {
      std::tie(job.copy.shared, job.copy.staged, job.copy.shared_only) =
          std::tie(share->second.guest, share->second.staged, share->second.only);
    }
    jobs.push_back(std::move(job));
  }
  const auto sent = send_larges(link_, console_, jobs);
  std::vector<std::pair<std::string, Manifest::Entry>> entries;
  for (std::size_t i = 0; i < sent.size(); ++i) {
    const auto& [state, stamp, source_stamp, found, spent] = sent[i];
    const std::string& path = jobs[i].copy.path;
    hashes_[path] = state.sha256;
    console_.step("copy", fmt::format("{}  {}  {}", name_of(path), shown_bytes(state.size), shown_rate(state.size - found, spent)));
    entries.emplace_back(path, entry_of(state, stamp, source_stamp));
  }
  lumelift::note(link_.guest(), console_, entries, CacheFolder::existing);
}

void Engine::set(const AddLine& step, Side side) {
  Guest& guest = link_.guest();
  if (side == Side::after) {
    guest.add_line(step.path, step.line);
    console_.step("key", "of lumelift added to " + step.path);
  } else {
    guest.remove_line(step.path, step.line, step.new_file ? Guest::EmptyFile::remove : Guest::EmptyFile::keep);
    console_.step("key", "of lumelift removed from " + step.path);
  }
}

void Engine::set(const SetAgent& step, Side side) {
  Guest& guest = link_.guest();
  const AgentState want = side == Side::after ? step.after : step.before;
  const AgentState other = side == Side::after ? step.before : step.after;
  if (want == AgentState::loaded) {
    loaded_agents_[step.label] = guest.bootstrap(step.domain, step.label, step.plist, Deadline::in(tool));
  } else if (want == AgentState::disabled) {
    guest.disable(step.domain, step.label);
  } else if (other == AgentState::disabled) {
    guest.enable(step.domain, step.label);
  } else {
    guest.bootout(step.domain, step.label, Deadline::in(tool));
  }
}

void Engine::set(const StageShare& step, Side side) {
  // The folder above it is of this one share alone.
  const std::filesystem::path folder(step.folder), own = folder.parent_path();
  if (side == Side::before) {
    std::error_code fault;
    std::filesystem::remove_all(own, fault);
    std::filesystem::remove(own.parent_path(), fault);
    if (std::filesystem::exists(own, fault)) {
      throw Error(ErrorKind::incomplete, "file-unwritable", fmt::format("{} cannot be removed", own.string())).fix("remove it by hand");
    }
    return;
  }
  sys::ensure_private_folder(folder);
  for (const auto& item : step.items) {
    const auto target = folder / item.name;
    sys::ensure_private_folder(target.parent_path());
    if (item.source.empty()) {
      sys::write_file(target, "", 0600);
    } else {
      sys::clone_or_link(item.source, target);
    }
  }
  console_.step("share", fmt::format("{} at the start of the VM, read-only", folder.filename().string()));
}

void Engine::set(const Step& step, Side side) {
  std::visit([&](const auto& s) { set(s, side); }, step);
}

// ---------------------------------------------------------------- applying

void Engine::apply_preference(RunId run, SetPreference step) {
  const std::string resource = resource_of(step.key);
  const auto lock = journal_.lock_preference("unlock " + link_.vm(), Deadline::in(patience_.lock));
  // Claims are read again under the lock: another VM may have come first since the plan was made.
  const auto claims = journal_.claims(resource);
  const auto other = std::find_if(claims.begin(), claims.end(), [&](const Claim& c) { return c.vm != link_.vm(); });
  Claim claim{resource, link_.vm(), {}, sys::wall_seconds(), sys::boot_session(), sys::up_seconds()};
  if (other != claims.end()) {
    step.before = pref_from_json(other->before);
  }
  const Look look = observe(step);
  // Under another VM's claim the value must be ours: whoever changed it meanwhile changed it under that VM too.
  if (look.seen == Seen::other && other == claims.end()) {
    throw Error(
        ErrorKind::failed, "world-moved",
        fmt::format("the host preference {} is {}, neither {} nor {}", step.key.key, look.actual, shown(step.before), shown(step.after)))
        .fix("somebody else is changing it; try again");
  }
  if (look.seen == Seen::after) {
    // It stood there before: since when, only another claim can tell.
    const Claim known = other != claims.end() ? *other : Claim{};
    std::tie(claim.since, claim.boot, claim.up) = std::tie(known.since, known.boot, known.up);
  }
  claim.before = to_json(step.before);
  const int position = journal_.intend(run, to_json(Step(step)), claim);
  if (look.seen != Seen::after) {
    set(step, Side::after);
  }
  journal_.mark(run, position, StepState::done);
  console_.step("host",
                fmt::format("{}  {}   (claimed by {})", step.key.key,
                            look.seen == Seen::after ? "is true already" : fmt::format("{} → {}", shown(step.before), shown(step.after)),
                            link_.vm()));
}

/// Where the steps end that can be done together with the one at `at`: folders, small new files, or large files.
std::size_t Engine::together(const std::vector<Step>& steps, const std::vector<Look>& looks, std::size_t at) const {
  std::uint64_t bytes = 0;
  std::size_t end = at;
  for (; end < steps.size() && end - at < most_together; ++end) {
    if (steps[end].index() != steps[at].index() || looks[end].seen != Seen::before) {
      break;
    }
    if (const auto* file = std::get_if<PutFile>(&steps[end])) {
      if (is_large(*file) != is_large(std::get<PutFile>(steps[at]))) {
        break;
      }
      bytes += file->after.size;
      if (!is_large(*file) && (file->before || bytes > bytes_together)) {
        break;
      }
    }
  }
  return std::max(end, at + 1);
}

void Engine::set_new(const std::vector<Step>& steps) {
  std::vector<Guest::NewFolder> folders;
  std::vector<NewFile> files;
  for (const auto& step : steps) {
    if (const auto* folder = std::get_if<MakeFolder>(&step)) {
      folders.push_back({folder->path, folder->mode});
    } else {
      const auto& file = std::get<PutFile>(step);
      files.push_back({file.path, file.source.empty() ? file.content : sys::read_file(file.source, bytes_together), file.after});
    }
  }
  if (!folders.empty()) {
    link_.guest().make_folders(folders);
  }
  if (files.empty()) {
    return;
  }
  link_.transfer().put_new(files);
  for (const auto& step : steps) {
    const auto& file = std::get<PutFile>(step);
    if (!file.source.empty()) {
      console_.step("copy", fmt::format("{}  {}", name_of(file.path), shown_bytes(file.after.size)));
    }
  }
}

void Engine::apply(RunId run, const Plan& plan) {
  link_proven_ = false;
  for (std::size_t at = 0; at < plan.steps.size();) {
    sys::check_interrupt();
    if (const auto* preference = std::get_if<SetPreference>(&plan.steps[at])) {
      apply_preference(run, *preference);
      ++at;
      continue;
    }
    std::size_t end = at + 1;
    while (is_file_step(plan.steps[at]) && end < plan.steps.size() && is_file_step(plan.steps[end])) {
      ++end;
    }
    const std::vector<Step> group(plan.steps.begin() + static_cast<std::ptrdiff_t>(at),
                                  plan.steps.begin() + static_cast<std::ptrdiff_t>(end));
    apply_group(run, group, observe_group(group));
    at = end;
  }
}

void Engine::apply_group(RunId run, const std::vector<Step>& group, const std::vector<Look>& looks) {
  for (std::size_t at = 0; at < group.size();) {
    sys::check_interrupt();
    if (looks[at].seen == Seen::other) {
      throw Error(ErrorKind::failed, "world-moved",
                  fmt::format("before this step, the world was neither as planned nor as wanted: {}", described(group[at])))
          .note("found: " + looks[at].actual)
          .fix("somebody else is changing it; try again");
    }
    const std::size_t end = is_file_step(group[at]) ? together(group, looks, at) : at + 1;
    const std::vector<Step> steps(group.begin() + static_cast<std::ptrdiff_t>(at), group.begin() + static_cast<std::ptrdiff_t>(end));
    std::vector<std::string> bodies;
    for (const auto& step : steps) {
      bodies.push_back(to_json(step));
    }
    // All of them are intended before the first has an effect: after a crash, looking tells which of them happened.
    const int first = journal_.intend(run, bodies);
    const auto* file = std::get_if<PutFile>(&steps.front());
    if (looks[at].seen == Seen::before && file != nullptr && is_large(*file)) {
      send(run, first, steps);
    } else if (steps.size() > 1) {
      set_new(steps);
    } else if (looks[at].seen == Seen::before) {
      set(steps.front(), Side::after);
    }
    journal_.mark(run, first, static_cast<int>(steps.size()), StepState::done);
    at = end;
  }
}

}  // namespace lumelift
