#pragma once

#include "shim/sdk/darwin.hpp"
#include "shim/text.hpp"
#include "shim/verdict.hpp"

namespace lumelift::shim {

/// Sends a message with the exact prototype of the method; the variadic form has another convention on arm64.
template <typename Result, typename... Arguments>
Result send(id target, const char* selector, Arguments... arguments) {
  using Function = Result (*)(id, SEL, Arguments...);
  return reinterpret_cast<Function>(&objc_msgSend)(target, sel_registerName(selector), arguments...);
}

/// Asked before every message that a device of some macOS version may not know. Also true for proxies that forward.
[[nodiscard]] bool responds(id object, const char* selector);

/// The bytes of an NSString, or null; they live as long as the string.
[[nodiscard]] const char* utf8(id string);

/// A new NSString, or null where there is no such class.
[[nodiscard]] id make_string(const char* text);

/// What `[error localizedDescription]` says, or null.
[[nodiscard]] const char* description_of(id error);

/// The Metal devices of this process. Asks for the default device first: in a fresh process the list may be empty until
/// then, and without a session the default may be missing while the list has one. Never releases them.
class Devices {
 public:
  static constexpr size_t kMost = 8;

  void find();
  [[nodiscard]] bool metal_loaded() const { return metal_; }
  [[nodiscard]] bool has_default() const { return default_ != nullptr; }
  /// Number of devices in the list, or -1 where it cannot be asked for.
  [[nodiscard]] int64_t listed() const { return listed_; }
  [[nodiscard]] size_t count() const { return count_; }
  [[nodiscard]] id at(size_t index) const { return devices_[index]; }
  /// The one to judge: the default device, else the first of the list, else null.
  [[nodiscard]] id chosen() const { return count_ != 0 ? devices_[0] : nullptr; }

 private:
  bool metal_ = false;
  id default_ = nullptr;
  int64_t listed_ = -1;
  size_t count_ = 0;
  id devices_[kMost] = {};
};

/// Asks everything that a verdict needs.
[[nodiscard]] Answers ask(id device);

/// Members name, class, families, sizes and so on of an open JSON object. What cannot be asked is null.
void describe_device(id device, const Answers& answers, Text& json);

/// The functional checks: three tiny kernels with known answers, compiled by the device.
struct Check {
  enum class Result : uint8_t { pass, fail, unavailable } result = Result::unavailable;
  const char* name = "";
  char message[256] = "";
};
inline constexpr size_t kCheckCount = 3;
void run_checks(id device, Check (&checks)[kCheckCount]);

}  // namespace lumelift::shim
