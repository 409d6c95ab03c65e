#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/report.hpp"

namespace lumelift {

/// One combination whose behaviour may differ from any other. Empty fields are unknown.
struct CompatKey {
  std::string chip;        ///< "Apple M1 Ultra", as sysctl says it, without "(Virtual)"
  std::string host_build;  ///< "25F84"
  std::string guest_os;    ///< "26.5.2"
  std::string guest_build;
  std::string library_sha256;
  std::string profile;   ///< "tested", "minimal"
  std::string workload;  ///< what was run; empty for the probe alone
  bool operator==(const CompatKey&) const = default;
};

enum class Outcome {
  verified,       ///< measured: faster or unchanged, with the proof of the unlock
  reported_only,  ///< the probe shows the raised answers; no workload was measured
  failing,        ///< it was tried and does not work
};
[[nodiscard]] std::string_view outcome_text(Outcome outcome);
[[nodiscard]] std::optional<Outcome> outcome_of(std::string_view text);

struct CompatRecord {
  CompatKey key;
  Outcome outcome = Outcome::reported_only;
  std::string proof;             ///< SHA-256 of the SHA256SUMS of a bundle, a run id, or words
  std::int64_t recorded_at = 0;  ///< seconds since 1970
  bool operator==(const CompatRecord&) const = default;
};

/// Where a combination stands, as `unlock` says it.
enum class Standing {
  published,      ///< somebody published evidence for this chip, guest version and profile
  proven_here,    ///< a benchmark of this host says so, with these builds and this library
  unlocked_here,  ///< the answers changed here, with these builds and this library; no benchmark was kept
  failing,        ///< recorded here as not working, with these builds and this library
  stale,          ///< recorded here, but a build or the library has changed since
  untested,
};
/// "published evidence (M1 Ultra, Tahoe 26.5)", "proven on this host", …
[[nodiscard]] std::string_view standing_text(Standing standing);

/// What was proven on this host; a value read from and written to `compat.json` in the state folder. One record per key: the
/// last one counts.
class CompatBook {
 public:
  /// An absent file is an empty book. Throws Error "compat-unreadable" (failed) for a damaged one or one of a newer schema.
  [[nodiscard]] static CompatBook load(const std::filesystem::path& state_dir);
  /// Adds `record` under the file's lock, whoever else writes meanwhile; durable on return. Waits up to five seconds for the
  /// lock. Throws Error "lock-held", "file-unwritable".
  static void add(const std::filesystem::path& state_dir, const CompatRecord& record);
  /// Removes what concerns `workload` (everything, if empty); returns how many records that were.
  static std::size_t forget(const std::filesystem::path& state_dir, std::string_view workload);

  [[nodiscard]] const std::vector<CompatRecord>& records() const { return records_; }
  /// What is known of `key`. A record of this host outweighs what was published elsewhere. A workload that was never tried here
  /// inherits nothing from another one; the unlock alone (no workload) is proven by any that works.
  [[nodiscard]] Standing standing(const CompatKey& key) const;
  /// The record speaks of other builds or another library than those of `now`, where both are known.
  [[nodiscard]] static bool stale(const CompatRecord& record, const CompatKey& now);

 private:
  void put(const CompatRecord& record);
  std::vector<CompatRecord> records_;
};

/// What a report proves, a record for each workload: `base` with the workload's name. An unlock that made one slower is failing;
/// what did not change works; without a comparison with the stock guest it is reported only.
[[nodiscard]] std::vector<CompatRecord> compat_records(const Report& report, const CompatKey& base, const std::string& proof,
                                                       std::int64_t now);

/// Evidence was published for chip, guest version and profile of `key` (Apple M1 Ultra, macOS 26.5, profile "tested").
[[nodiscard]] bool published(const CompatKey& key);

}  // namespace lumelift
