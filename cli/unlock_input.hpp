#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "cli/kit.hpp"
#include "cli/library.hpp"
#include "cli/plan.hpp"

namespace lumelift {

/// All that an unlock reads and checks before anything is looked at.
struct UnlockInput {
  Profile profile;
  std::optional<Workload> workload;
  std::vector<Source> kit, sources;
  ChosenLibrary library;
  std::string skeleton;
  std::vector<std::string> remarks;  ///< on the workload, already told
};

/// Reads everything and hashes all but large files; warns of what can go wrong. Throws what load_profile(), load_workload(), load_kit(),
/// gather(), choose_library() and preflight() throw; all usage.
[[nodiscard]] UnlockInput read_unlock_input(Context& context, const std::string& profile,
                                            const std::optional<std::filesystem::path>& workload, const LibraryOptions& library = {});

/// SHA-256 of what such an unlock leaves in any guest: equal inputs, equal goals. Large files count by
/// path and time of writing. Without the workload: library and probe alone,
/// which no profile changes.
[[nodiscard]] std::string goal_digest(const UnlockInput& input);
[[nodiscard]] std::string kit_digest(const UnlockInput& input);

}  // namespace lumelift
