#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace lumelift {

/// What is known of large files in one guest without reading them: a cache, kept there as ~/Library/Caches/lumelift/manifest,
/// and only ever a reason not to send a file again. Whoever can write it could as well change the files themselves. Nothing
/// that is injected or run as proof is looked up in it. One line a file; lines that make no sense are dropped.
class Manifest {
 public:
  struct Entry {
    std::uint64_t size = 0;  ///< bytes
    std::string stamp;       ///< the guest's times of change, to the nanosecond, and inode: "%Fm %Fc %i" of its stat
    std::string sha256;
    std::string source;  ///< SourceFile::stamp() of the host file that was sent; "-" when there was none
    bool operator==(const Entry&) const = default;
  };
  static constexpr std::size_t most_bytes = 1u << 20;
  /// Below the guest user's home.
  static constexpr std::string_view folder = "Library/Caches/lumelift";

  [[nodiscard]] static Manifest parse(std::string_view text);
  [[nodiscard]] std::string text() const;
  /// Nothing for a path that is not known, or known with another size or stamp.
  [[nodiscard]] const Entry* find(const std::string& path, std::uint64_t size, const std::string& stamp) const;
  [[nodiscard]] const Entry* find(const std::string& path) const;
  void remember(const std::string& path, Entry entry) { entries_[path] = std::move(entry); }
  void forget(const std::string& path) { entries_.erase(path); }
  bool operator==(const Manifest&) const = default;

 private:
  std::map<std::string, Entry> entries_;
};

}  // namespace lumelift
