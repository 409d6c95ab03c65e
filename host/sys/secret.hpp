#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace lumelift::sys {

/// A password or passphrase. Overwritten on destruction; has no printing operator, so it cannot slip into a message.
class Secret {
 public:
  Secret() = default;
  explicit Secret(std::string value) : value_(std::move(value)) {}
  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;
  Secret(Secret&& other) noexcept : value_(std::move(other.value_)) { other.wipe(); }
  Secret& operator=(Secret&& other) noexcept {
    if (this != &other) {
      wipe();
      value_ = std::move(other.value_);
      other.wipe();
    }
    return *this;
  }
  ~Secret() { wipe(); }

  /// For handing to a library call only.
  [[nodiscard]] const std::string& reveal() const noexcept { return value_; }

 private:
  void wipe() noexcept;
  std::string value_;
};

}  // namespace lumelift::sys
