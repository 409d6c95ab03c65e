#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "host/sys/error.hpp"

namespace lumelift::macho {

/// Throws Error "macho-damaged" (usage).
[[noreturn]] inline void damaged(std::string message) {
  throw Error(ErrorKind::usage, "macho-damaged", std::move(message)).fix("copy or build the file again: it is cut short or changed");
}

/// A window on untrusted bytes. Owns nothing. Every access is checked against the window; one outside of it throws
/// Error "macho-damaged" that names what was being read and where.
class Bytes {
 public:
  Bytes(std::span<const std::byte> data, std::string_view what) : data_(data), what_(what) {}

  [[nodiscard]] std::size_t size() const { return data_.size(); }
  [[nodiscard]] std::span<const std::byte> span() const { return data_; }

  [[nodiscard]] bool holds(std::uint64_t offset, std::uint64_t length) const {
    return offset <= data_.size() && length <= data_.size() - offset;
  }
  [[nodiscard]] Bytes part(std::uint64_t offset, std::uint64_t length, std::string_view what) const {
    require(offset, length, what);
    return {data_.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(length)), what};
  }
  [[nodiscard]] std::string_view text(std::uint64_t offset, std::uint64_t length) const {
    require(offset, length, what_);
    return {reinterpret_cast<const char*>(data_.data()) + offset, static_cast<std::size_t>(length)};
  }
  /// Up to the first NUL, which must come within `cap` bytes and inside the window.
  [[nodiscard]] std::string_view c_string(std::uint64_t offset, std::size_t cap = 4096) const {
    require(offset, 1, what_);
    const auto rest = text(offset, std::min<std::uint64_t>(cap, data_.size() - offset));
    const auto end = rest.find('\0');
    if (end == rest.npos) {
      damaged("a name in the " + std::string(what_) + " has no end");
    }
    return rest.substr(0, end);
  }
  /// A fixed field of `length` bytes that NULs may fill up.
  [[nodiscard]] std::string_view padded(std::uint64_t offset, std::size_t length) const {
    const auto field = text(offset, length);
    return field.substr(0, field.find('\0'));
  }

  template <std::unsigned_integral T>
  [[nodiscard]] T little(std::uint64_t offset) const {
    require(offset, sizeof(T), what_);
    T value = 0;
    for (std::size_t i = sizeof(T); i-- > 0;) {
      value = static_cast<T>(value << 8 | at(offset + i));
    }
    return value;
  }
  template <std::unsigned_integral T>
  [[nodiscard]] T big(std::uint64_t offset) const {
    require(offset, sizeof(T), what_);
    T value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      value = static_cast<T>(value << 8 | at(offset + i));
    }
    return value;
  }
  [[nodiscard]] std::uint8_t byte(std::uint64_t offset) const {
    require(offset, 1, what_);
    return static_cast<std::uint8_t>(at(offset));
  }

 private:
  [[nodiscard]] std::uint64_t at(std::uint64_t offset) const { return static_cast<std::uint64_t>(data_[static_cast<std::size_t>(offset)]); }
  void require(std::uint64_t offset, std::uint64_t length, std::string_view what) const {
    if (holds(offset, length)) {
      return;
    }
    damaged("the " + std::string(what) + " at byte " + std::to_string(offset) + ", " + std::to_string(length) +
            " long, runs past the end of the " + std::string(what_) + " (" + std::to_string(data_.size()) + " bytes)");
  }

  std::span<const std::byte> data_;
  std::string_view what_;
};

}  // namespace lumelift::macho
