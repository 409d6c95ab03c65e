#include "cli/next_step.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace lumelift {
namespace {

/// For errors that are thrown in many places, most of them where no command is known.
constexpr std::array<std::pair<std::string_view, std::string_view>, 15> steps = {{
    {"file-unreadable", "check the name, and that you may read it"},
    {"file-unwritable", "check the folder, its permissions and its free space, or name another one"},
    {"workload-invalid", "mend it there; docs/guide.md shows a whole workload"},
    {"profile-invalid", "mend it there; docs/guide.md shows a whole profile"},
    {"settings-invalid", "mend it there; docs/settings.md lists what can stand in it"},
    {"fleet-invalid", "mend it there; docs/fleet.md shows a whole fleet"},
    {"fleet-host-unknown", "name one of the fleet's hosts with --on"},
    {"guest-key-unusable", "an encrypted key needs LUMELIFT_KEY_PASSPHRASE; ssh-keygen -t ed25519 makes one that always works"},
    {"variable-reserved", "choose what the library answers with --profile"},
    {"follow-json", "leave out --follow or --json"},
    {"guest-file-missing", "check the name: it counts from the account's home"},
    {"trace-unreadable", "let lumelift make one: lumelift explain VM -- PROGRAM"},
    {"password-unreadable", "give an open descriptor to --password-fd, a file to --password-file, or a terminal to --ask-password"},
    {"agent-exits", "mend what it says; most often a model is missing or an argument is wrong"},
    {"vm-name-invalid", "see: lume ls"},
}};

}  // namespace

std::string next_step(const Error& error) {
  if (!error.fix().empty()) {
    return error.fix();
  }
  const auto* const known = std::find_if(steps.begin(), steps.end(), [&](const auto& step) { return step.first == error.id(); });
  return known != steps.end() ? std::string(known->second) : "see " + error.id() + " in docs/errors.md";
}

}  // namespace lumelift
