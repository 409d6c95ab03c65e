#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/operation.hpp"

namespace lumelift {

/// What the commands that run something find in a guest: the library, the probe, and where they stand.
struct GuestKit {
  GuestFacts facts;
  GuestGoal goal;
};

/// Does `work` in a running guest that has library and probe; returns its status. In an unlocked VM they are there: nothing is
/// changed, no lock is taken, and many can run at once. Elsewhere they go in and out again through the journal, as a run named
/// `command`; what could not be taken out is status 3. Throws what `work` throws, after taking them out.
[[nodiscard]] int with_guest_kit(Context& context, const TargetOptions& target, const std::string& command, const Profile& profile,
                                 const std::vector<Source>& kit, const std::function<int(Operation&, const GuestKit&)>& work);

}  // namespace lumelift
