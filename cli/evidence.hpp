#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/report.hpp"

namespace lumelift {

/// What a measurement has to say about its surroundings to be of use to others. Empty means not recorded.
struct Environment {
  std::map<std::string, std::string> facts;  ///< by the names of `environment_keys()`
  [[nodiscard]] std::string get(const std::string& key) const;
};

/// "chip", "gpu_cores", "memory_bytes", "host_os", "host_build", "guest_os", "guest_build", "lume", "guest_image_digest",
/// "library_sha256", "profile", "host_preference": the order in which they are shown.
[[nodiscard]] const std::vector<std::string>& environment_keys();

struct PackOptions {
  std::vector<std::string> facts;      ///< "key=value", on top of an environment.json in the folder
  std::string local_user, local_host;  ///< names to take out wherever they stand
  std::optional<Limits> limits;        ///< absent: the usual ones
};

/// A bundle is a folder: raw/ (the sanitised outputs, names kept), results.csv and metadata.json (both follow from raw/ alone),
/// README.md, SHA256SUMS over all of them. Equal inputs give a byte-identical bundle: nothing in it depends on when or where it
/// was packed.
struct Bundle {
  Report report;
  Environment environment;
  std::size_t files = 0;              ///< in raw/
  std::vector<std::string> left_out;  ///< binary and hidden files of the packed folder
};

/// Packs `folder` into `bundle`, which must not exist and may lie in `folder`; it appears under its name only when complete. Figures before
/// and after sanitising are compared. Throws Error "evidence-*" (usage) for an unusable folder, and "evidence-figures-changed" (failed)
/// should sanitising have touched a figure.
[[nodiscard]] Bundle pack_evidence(const std::filesystem::path& folder, const std::filesystem::path& bundle, const PackOptions& options);

struct Verification {
  Bundle bundle;
  std::vector<std::string> problems;  ///< empty: every checksum and every number is right
};

/// Recomputes every checksum, then results.csv and metadata.json from raw/ alone, and looks for names left in. Problems are
/// answers, not exceptions, and so is a part that was lost. Throws Error "evidence-no-bundle" (usage) if `bundle` is no bundle at all.
[[nodiscard]] Verification verify_evidence(const std::filesystem::path& bundle);

/// A compatibility report ready to post: environment, figures, findings, and how to check them. Markdown.
[[nodiscard]] std::string compatibility_report(const Bundle& bundle, const std::string& checksum);

}  // namespace lumelift
