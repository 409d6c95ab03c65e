#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "host/sys/time.hpp"

namespace lumelift {

/// The name of one preference of the current user.
struct PrefKey {
  std::string domain, key;
  bool operator==(const PrefKey&) const = default;
};

/// com.apple.gpusw.ParavirtualizedGraphics / ForceUnrestrictedDeviceFeatureLevel: read by the host's graphics process when
/// a VM's device is made, that is at VM start; one per macOS user.
[[nodiscard]] const PrefKey& feature_level_key();

struct PrefAbsent {
  bool operator==(const PrefAbsent&) const = default;
};
/// A real number, kept as its printed text so that it comes back digit for digit.
struct PrefReal {
  std::string text;
  bool operator==(const PrefReal&) const = default;
};
/// An array, dictionary, data or date: can be seen and compared by `digest`, never written by us.
struct PrefContainer {
  std::string type, digest;
  bool operator==(const PrefContainer&) const = default;
};
/// A preference with its exact type.
using PrefValue = std::variant<PrefAbsent, bool, std::int64_t, PrefReal, std::string, PrefContainer>;

/// "absent", "true", "integer 1", "string \"1\"", "dictionary".
[[nodiscard]] std::string shown(const PrefValue& value);

/// What was seen of this Mac. Empty strings where the system did not say.
struct HostFacts {
  std::string model;         ///< hw.model: "Mac13,2"
  std::string chip;          ///< machdep.cpu.brand_string: "Apple M1 Ultra"
  std::string os, build;     ///< "26.6.1", "25G71"
  std::string hardware_id;   ///< IOPlatformUUID: names this Mac, unlike a host name
  std::uint64_t memory = 0;  ///< bytes
  bool operator==(const HostFacts&) const = default;
};

/// Who runs this, as the environment says; the composition root reads it.
struct Invoker {
  std::optional<std::string> home;      ///< HOME
  std::optional<std::string> sudo_uid;  ///< SUDO_UID
};

/// This Mac: typed preferences through `defaults`, and facts. Holds no state: every call looks again. Blocks up to 10 s per
/// tool call. Throws Error ("preference-unreadable", "preference-not-written", "host-tool-missing").
class Host {
 public:
  [[nodiscard]] HostFacts facts() const;

  /// Exact type by `defaults export`, never by what `defaults read` prints.
  [[nodiscard]] PrefValue preference(const PrefKey& key) const;
  /// Writes or deletes, then reads back until type and value agree (the preference daemon may answer the old value for a
  /// moment, up to 5 s), and again a moment later. Absent is a value like any other. Refuses PrefContainer.
  void set_preference(const PrefKey& key, const PrefValue& value) const;

  /// Why running as this user is wrong (through sudo, HOME unset or somebody else's): the preference is per user. Nothing
  /// when fine; root at home is.
  [[nodiscard]] static std::optional<std::string> wrong_user(const Invoker& invoker);
};

}  // namespace lumelift
