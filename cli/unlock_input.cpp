#include "cli/unlock_input.hpp"

#include <fmt/format.h>

#include "host/sys/file.hpp"
#include "host/sys/hash.hpp"

namespace lumelift {
namespace {

constexpr std::size_t skeleton_cap = 64u << 10;

/// Any guest will do, as long as it is always the same one.
GuestFacts some_guest() {
  GuestFacts facts;
  facts.user = "lume";
  facts.home = "/Users/lume";
  facts.uid = 501;
  facts.gui_domain = true;
  return facts;
}

/// What tells one large file from another without reading it: a file written anew is looked at again, were it the same.
std::string written(const std::filesystem::path& file) {
  std::error_code fault;
  const auto time = std::filesystem::last_write_time(file, fault);
  return fault ? "gone" : fmt::format("{} {}", file.string(), time.time_since_epoch().count());
}

std::string digest_of(const GuestGoal& goal) {
  std::string text;
  for (const auto& folder : goal.folders) {
    text += fmt::format("{} {:o}\n", folder.path, folder.mode);
  }
  for (const auto& file : goal.files) {
    text += fmt::format("{} {:o} {} {}\n", file.path, file.state.mode, file.state.size,
                        file.state.sha256.empty() ? written(file.source) : file.state.sha256);
  }
  return sys::sha256(text);
}

}  // namespace

UnlockInput read_unlock_input(Context& context, const std::string& profile, const std::optional<std::filesystem::path>& workload,
                              const LibraryOptions& library) {
  UnlockInput input;
  input.profile = load_profile(profile, context.templates);
  if (workload) {
    input.workload = load_workload(*workload);
  }
  input.kit = load_kit(context.libexec);
  input.library = choose_library(library, input.kit.front(), context.state_dir);
  input.kit.front() = input.library.source;
  if (input.workload) {
    input.sources = gather(*input.workload, LargeFiles::unhashed);
    input.remarks = preflight(*input.workload, input.sources, input.kit);
    for (const auto& remark : input.remarks) {
      context.console.warn(remark);
    }
  }
  input.skeleton = sys::read_file(context.templates / "agent.plist", skeleton_cap);
  return input;
}

std::string goal_digest(const UnlockInput& input) {
  return digest_of(guest_goal(input.profile, input.workload, input.kit, input.sources, some_guest(), input.skeleton));
}

std::string kit_digest(const UnlockInput& input) {
  return digest_of(guest_goal(input.profile, std::nullopt, input.kit, {}, some_guest(), input.skeleton));
}

}  // namespace lumelift
