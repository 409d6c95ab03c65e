#include "cli/share.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "host/sys/boot.hpp"
#include "host/sys/clone.hpp"
#include "host/sys/hash.hpp"

namespace lumelift {
namespace {

namespace fs = std::filesystem;
using sys::Deadline;

// Below this SSH is done before a share is looked for.
constexpr std::uint64_t share_from = 64u << 20;
constexpr std::chrono::seconds mount_patience{15};
constexpr std::string_view send_mark = ".send-", own_mark = ".lumelift-", guest_place = "/Volumes/My Shared Files";

bool is_large_copy(const Source& source) {
  return source.delivery == Delivery::copy && source.state.size >= large_file;
}
bool is_copied(const StageShare::Item& item) {
  return item.name.starts_with(send_mark);
}
bool stays(const StageShare::Item& item) {
  return !item.source.empty() && !is_copied(item);
}

/// As a name in the staging folder: where it would stand in the guest, without the place that it is relative to.
std::string name_on_share(std::string to) {
  for (const std::string_view head : {"~/", "/"}) {
    if (to.starts_with(head)) {
      to.erase(0, head.size());
    }
  }
  return to;
}

fs::path nearest_existing(fs::path path) {
  std::error_code fault;
  while (!fs::exists(path, fault) && path.has_parent_path() && path != path.parent_path()) {
    path = path.parent_path();
  }
  return path;
}

Error agent_refused(const std::string& label, const std::string& what) {
  return Error(ErrorKind::usage, "share-refused-to-agents",
               fmt::format("macOS refuses LaunchAgents access to shared folders, and {} is one: {}", label, what))
      .fix("copy the file (leave out mode: share), or run the program with lumelift run");
}

/// The programs of a workload are agents, so nothing that they are told to read may be on a share.
void refuse_for_agent(const WorkloadAgent& agent, const std::vector<Source>& sources) {
  std::vector<std::pair<std::string, std::string>> told{{"its program", agent.executable},
                                                        {"its working directory", agent.working_directory}};
  for (const auto& word : agent.arguments) {
    told.emplace_back("an argument", word);
  }
  for (const auto& [name, value] : agent.environment) {
    told.emplace_back("the variable " + name, value);
  }
  for (const auto& [what, word] : told) {
    if (word.find(guest_place) != std::string::npos) {
      throw agent_refused(agent.label, fmt::format("{} is '{}'", what, word));
    }
    for (const auto& source : sources) {
      if (source.delivery == Delivery::share && (word == source.to || word.ends_with("=" + source.to))) {
        throw agent_refused(agent.label, fmt::format("{} names '{}', which stays on the share", what, source.to));
      }
    }
  }
}

bool same_file(const fs::path& one, const fs::path& other) {
  std::error_code fault;
  if (fs::equivalent(one, other, fault)) {
    return true;
  }
  return fs::exists(one, fault) && fs::file_size(one, fault) == fs::file_size(other, fault) &&
         fs::last_write_time(one, fault) == fs::last_write_time(other, fault) && !fault;
}

/// The name of the marker in a staging folder; empty when it is none.
std::string marker_in(const fs::path& folder) {
  std::error_code fault;
  for (const auto& entry : fs::directory_iterator(folder, fault)) {
    if (entry.path().filename().string().starts_with(own_mark)) {
      return entry.path().filename().string();
    }
  }
  return {};
}

/// Nothing on it but the marker and what was to be copied.
bool used_up(const fs::path& folder) {
  std::error_code fault;
  for (const auto& entry : fs::directory_iterator(folder, fault)) {
    const auto name = entry.path().filename().string();
    if (!name.starts_with(own_mark) && !name.starts_with(send_mark)) {
      return false;
    }
  }
  return true;
}

}  // namespace

UnlockShare::UnlockShare(const UnlockInput& input, const fs::path& state_dir) : root_(state_dir / "shares") {
  if (!input.workload) {
    return;
  }
  const Workload& workload = *input.workload;
  way_ = workload.transfer;
  label_ = workload.agents.front().label;
  for (const auto& agent : workload.agents) {
    refuse_for_agent(agent, input.sources);
  }
  std::uint64_t bytes = 0;
  for (const auto& source : input.sources) {
    bytes += is_large_copy(source) ? source.state.size : 0;
  }
  const bool copies = bytes > 0 && (way_ == TransferWay::share || (way_ == TransferWay::automatic && bytes >= share_from));
  const fs::path near = nearest_existing(root_);
  for (const auto& source : input.sources) {
    const bool asked = source.delivery == Delivery::share || way_ == TransferWay::share;
    if (source.delivery == Delivery::copy && !(copies && is_large_copy(source))) {
      continue;
    }
    if (!sys::one_file_system(source.file, near)) {
      if (!asked) {
        continue;
      }
      throw Error(ErrorKind::usage, "share-other-volume",
                  fmt::format("'{}' cannot be put on a share: it is on another volume than {}, so that no link to it is possible",
                              source.file.string(), near.string()))
          .fix("use transfer: ssh, or move the file to that volume");
    }
    const bool twice = source.delivery == Delivery::copy &&
                       std::any_of(stage_.items.begin(), stage_.items.end(),
                                   [&](const StageShare::Item& item) { return is_copied(item) && item.source == source.file; });
    if (twice) {
      continue;
    }
    stays_ = stays_ || source.delivery == Delivery::share;
    stage_.items.push_back(
        {source.file, source.delivery == Delivery::share ? name_on_share(source.to) : fmt::format("{}{}", send_mark, stage_.items.size())});
  }
  if (stage_.items.empty()) {
    return;
  }
  // A folder of its own for each run, under the workload's name, which is what the guest shows.
  const std::string token = sys::sha256(fmt::format("{} {} {}", ::getpid(), sys::wall_seconds(), sys::up_seconds())).substr(0, 12);
  stage_.folder = (root_ / token / workload.name).string();
  stage_.items.push_back({{}, fmt::format("{}{}", own_mark, token)});
}

bool UnlockShare::is_ours(const SharedDir& dir) const {
  return dir.host_path.starts_with(root_.string() + "/");
}

void UnlockShare::forget_used(Vm& vm) const {
  std::erase_if(vm.shared_dirs, [this](const SharedDir& dir) {
    std::error_code fault;
    return is_ours(dir) && !fs::is_directory(dir.host_path, fault);
  });
}

void UnlockShare::add_to(Plan& plan) {
  bool starts = false;
  for (auto& step : plan.steps) {
    auto* power = std::get_if<SetPower>(&step);
    if (power == nullptr || power->after != Power::running) {
      continue;
    }
    auto& dirs = power->start.shared_dirs;
    const auto own_name = fs::path(stage_.folder).filename();
    std::erase_if(dirs, [&](const SharedDir& dir) {
      return is_ours(dir) && (used_up(dir.host_path) || fs::path(dir.host_path).filename() == own_name);
    });
    if (!stage_.items.empty()) {
      dirs.push_back({stage_.folder, "", true});
    }
    starts = true;
  }
  if (!starts || stage_.items.empty()) {
    return;
  }
  plan.steps.insert(plan.steps.begin(), stage_);
  started_ = true;
}

/// A share of an earlier unlock that the VM runs with and that still holds what is to stay on it.
std::optional<fs::path> UnlockShare::standing(const Vm& vm) const {
  for (const auto& dir : vm.shared_dirs) {
    if (!is_ours(dir)) {
      continue;
    }
    const bool whole = std::all_of(stage_.items.begin(), stage_.items.end(), [&](const StageShare::Item& item) {
      return !stays(item) || same_file(fs::path(dir.host_path) / item.name, item.source);
    });
    if (whole) {
      return dir.host_path;
    }
  }
  return std::nullopt;
}

void UnlockShare::find(Guest& guest, const Vm& vm, Console& console) {
  if (stage_.items.empty()) {
    return;
  }
  if (started_) {
    place_ = guest.share_with(stage_.items.back().name, Deadline::in(mount_patience));
  } else if (const auto folder = stays_ ? standing(vm) : std::nullopt) {
    place_ = guest.share_with(marker_in(*folder), Deadline::in(std::chrono::seconds{0}));
  }
  if (place_) {
    return;
  }
  if (stays_) {
    throw unavailable();
  }
  if (started_ && way_ == TransferWay::automatic) {
    console.say("  the guest does not show the shared folder: large files go over SSH");
  }
}

Error UnlockShare::unavailable() const {
  if (!started_) {
    return Error(ErrorKind::failed, "share-needs-restart", "the VM runs without the share, and a share is added only when a VM is started")
        .fix("let it be restarted: --restart always; or use transfer: ssh");
  }
  return Error(ErrorKind::failed, "share-not-mounted",
               fmt::format("the VM was started with the share, but the guest does not show it under {}", guest_place))
      .fix("macOS 13 or later mounts shares in a guest; use transfer: ssh otherwise");
}

void UnlockShare::require_for(const Plan& guest_plan) const {
  if (way_ != TransferWay::share || (place_ && started_)) {
    return;
  }
  for (const auto& step : guest_plan.steps) {
    const auto* file = std::get_if<PutFile>(&step);
    const bool staged = file != nullptr && std::any_of(stage_.items.begin(), stage_.items.end(), [&](const StageShare::Item& item) {
                          return is_copied(item) && item.source == file->source;
                        });
    if (staged) {
      throw unavailable().note(fmt::format("to be copied: {}", file->path));
    }
  }
}

SharedSources UnlockShare::sources() const {
  SharedSources out;
  if (!place_ || !started_) {
    return out;
  }
  for (const auto& item : stage_.items) {
    if (is_copied(item)) {
      out[item.source.string()] = {*place_ + "/" + item.name, fs::path(stage_.folder) / item.name, way_ == TransferWay::share};
    }
  }
  return out;
}

std::vector<std::string> UnlockShare::remarks() const {
  std::vector<std::string> out;
  for (const auto& item : stage_.items) {
    if (place_ && stays(item)) {
      out.push_back(fmt::format("{} stays on this Mac; in the guest it is '{}/{}', which macOS refuses to LaunchAgents such as {}",
                                item.source.filename().string(), *place_, item.name, label_));
    }
  }
  return out;
}

void UnlockShare::settle() const {
  std::error_code fault;
  for (const auto& item : stage_.items) {
    if (started_ && is_copied(item)) {
      fs::remove(fs::path(stage_.folder) / item.name, fault);
    }
  }
}

}  // namespace lumelift
