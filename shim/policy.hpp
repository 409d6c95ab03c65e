#pragma once

#include <stddef.h>
#include <stdint.h>

namespace lumelift::shim {

/// MTLGPUFamily values. Apple numbers them per group; the groups never overlap.
inline constexpr int64_t kApple1 = 1001;
inline constexpr int64_t kHighestCeiling = 1009;  // 1010 would make programs use hardware that no guest has
inline constexpr int64_t kFamilies[] = {1001, 1002, 1003, 1004, 1005, 1006, 1007, 1008, 1009,
                                        1010, 2001, 2002, 3001, 3002, 3003, 5001, 5002};
inline constexpr size_t kFamilyCount = sizeof kFamilies / sizeof kFamilies[0];

/// The published default of LUME_METAL_MAX_THREADGROUP_MEMORY, and the limits above which a size is a typing error.
inline constexpr uint64_t kDefaultThreadgroupMemory = 65536;              // bytes
inline constexpr uint64_t kHighestThreadgroupMemory = uint64_t{1} << 20;  // bytes
inline constexpr uint64_t kHighestWorkingSet = uint64_t{1} << 50;         // bytes

/// The variables that users and scripts set. `absent` for a setting is a null pointer; an empty text is malformed.
inline constexpr char kCeilingVariable[] = "LUME_METAL_APPLE_FAMILY_MAX";
inline constexpr char kThreadgroupVariable[] = "LUME_METAL_MAX_THREADGROUP_MEMORY";
inline constexpr char kWorkingSetVariable[] = "LUME_METAL_RECOMMENDED_WORKING_SET_SIZE";
inline constexpr char kOnlyVariable[] = "LUMELIFT_ONLY";
inline constexpr char kInheritVariable[] = "LUMELIFT_INHERIT";
inline constexpr char kReceiptVariable[] = "LUMELIFT_RECEIPT";
inline constexpr char kTraceVariable[] = "LUMELIFT_TRACE";
inline constexpr char kVerboseVariable[] = "LUMELIFT_VERBOSE";
inline constexpr const char* kVariables[] = {kCeilingVariable, kThreadgroupVariable, kWorkingSetVariable, kOnlyVariable,
                                             kInheritVariable, kReceiptVariable,     kTraceVariable,      kVerboseVariable};

/// The environment as text, and the name of the running program. Owns nothing.
struct Settings {
  const char* ceiling = nullptr;
  const char* threadgroup_memory = nullptr;
  const char* working_set = nullptr;
  const char* only = nullptr;
  const char* inherit = nullptr;
  const char* receipt = nullptr;
  const char* trace = nullptr;
  const char* verbose = nullptr;
  const char* program = "";  // last component of the executable's path

  [[nodiscard]] bool any() const noexcept {
    return ceiling || threadgroup_memory || working_set || only || inherit || receipt || trace || verbose;
  }
};

/// Why a process is stock. The first group is decided from the environment, the second by what the process contains.
enum class Reason : uint8_t {
  none,
  program_not_listed,
  only_malformed,
  ceiling_absent,
  ceiling_zero,
  ceiling_malformed,
  ceiling_out_of_range,
  threadgroup_malformed,
  threadgroup_out_of_range,
  working_set_malformed,
  working_set_out_of_range,
  inherit_malformed,
  verbose_malformed,
  receipt_malformed,
  trace_malformed,
  metal_missing,
  base_class_missing,
  init_method_missing,
  init_method_inherited,
  init_method_encoding,
  device_not_paravirtual,
  method_missing,
  method_encoding,
  install_failed,
  self_check_failed,
};

/// The stable identifier that receipts carry, for instance "ceiling-malformed".
[[nodiscard]] const char* reason_id(Reason reason) noexcept;

/// What a process does about its device. Built once from the environment; valid ever after. Pure, allocates nothing.
/// `reason` is `none` exactly when answers are raised. A process may trace without raising anything.
struct Policy {
  Reason reason = Reason::ceiling_absent;
  int64_t ceiling = 0;              // highest Apple family answered with yes; 0 leaves families as reported
  uint64_t threadgroup_memory = 0;  // bytes, raises only; 0 as reported
  uint64_t working_set = 0;         // bytes, raises only; 0 as reported
  bool inherit = true;
  bool verbose = false;
  bool trace = false;

  [[nodiscard]] bool raises() const noexcept { return reason == Reason::none; }
  [[nodiscard]] bool needs_hooks() const noexcept { return raises() || trace; }

  [[nodiscard]] bool family(int64_t value, bool stock) const noexcept { return stock || (value >= kApple1 && value <= ceiling); }
  [[nodiscard]] uint64_t threadgroup(uint64_t stock) const noexcept { return stock > threadgroup_memory ? stock : threadgroup_memory; }
  [[nodiscard]] uint64_t working(uint64_t stock) const noexcept { return stock > working_set ? stock : working_set; }
};

/// Strict: plain decimal digits only, no blank, sign, base prefix or leading zero, no overflow.
[[nodiscard]] bool parse_decimal(const char* text, uint64_t& value) noexcept;

/// Any malformed setting leaves the whole process stock and untraced; the reason names the first one found.
[[nodiscard]] Policy read_policy(const Settings& settings) noexcept;

/// Takes every entry whose last path component is `file_name` out of a colon-separated list, in place, and keeps the
/// order of the others. Returns how many entries went.
size_t remove_entries(char* list, const char* file_name) noexcept;

/// True when an encoding such as "B24@0:8q16" names the types of `wanted` ("B@:q"); offsets do not matter. `B` and `c`
/// are the two spellings of BOOL and count as one.
[[nodiscard]] bool same_types(const char* encoding, const char* wanted) noexcept;

}  // namespace lumelift::shim
