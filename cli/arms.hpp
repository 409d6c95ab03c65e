#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/samples.hpp"

namespace lumelift {

/// A file or folder to read arms from; with a role, a file that the user has named a side for.
struct ArmInput {
  std::filesystem::path path;
  std::optional<Role> role;
};

/// "stock=results/a.json" to an input. Throws Error "arm-option" (usage) for an unknown role or a missing "=".
[[nodiscard]] ArmInput arm_option(std::string_view text);

struct LoadedArms {
  std::vector<Arm> arms;             ///< in order of path
  std::vector<std::string> skipped;  ///< JSON files in folders that hold no benchmark
};

/// Reads all inputs; folders with everything below them (`.json`, `.jsonl`; symbolic links are not followed). Beside NAME.json
/// are read, where they exist, NAME.stderr (the banner), NAME.status (the exit status of the run, one number),
/// NAME.refused (why whoever measured does not want it used) and NAME.receipt.json (of the library). Sources are named relative to the
/// folder given. The role comes from the user, else from words in the file name and its folders ("host", "stock", "unlocked", "shim",
/// "hooked", "cpu"), else from the banner and the settings. Damage in a file makes a refused arm. Throws Error "file-unreadable" (usage)
/// for an input that is not there, "no-benchmark" for a named file that is none.
[[nodiscard]] LoadedArms load_arms(const std::vector<ArmInput>& inputs);

/// The role that the words of a path stand for: nothing without such a word, Role::unknown where they contradict.
[[nodiscard]] std::optional<Role> role_in_name(std::string_view path);

/// What lies beside the figures of a run; nothing where a file is not there.
struct Beside {
  std::optional<std::string> banner, status, refused, receipt;
};

/// Sets role, banner, status and the refusals that follow from them ("exit status 134", a debug build, a banner that
/// contradicts the role). Pure.
void complete_arm(Arm& arm, std::optional<Role> given, std::string_view path, const Beside& beside);

}  // namespace lumelift
