#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace lumelift::sys {

/// A running SHA-256. Owns the digest context. Move-only.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void update(std::span<const std::byte> bytes);
  void update(std::string_view bytes);
  /// 64 lower-case hex digits; the object is spent afterwards.
  [[nodiscard]] std::string hex();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

[[nodiscard]] std::string sha256(std::string_view bytes);
/// Reads the whole file once in blocks. Throws Error "file-unreadable", Interrupted.
[[nodiscard]] std::string sha256_file(const std::filesystem::path& path);

}  // namespace lumelift::sys
