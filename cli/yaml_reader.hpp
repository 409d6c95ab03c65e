#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/file_keys.hpp"
#include "host/sys/error.hpp"

namespace lumelift {

/// One value of a YAML file that knows where it stands. Strict: what YAML would silently turn into another type is refused
/// with file, line and column. Every reading function throws Error (usage) with the id given to load(). Cheap to copy;
/// keeps the document alive.
class YamlValue {
 public:
  /// Reads a file of at most 1 MiB. Throws Error "file-unreadable" or `error_id`.
  [[nodiscard]] static YamlValue load(const std::filesystem::path& file, std::string error_id);
  /// The same for text already read; `name` stands for the file in messages.
  [[nodiscard]] static YamlValue parse(std::string_view text, std::string name, std::string error_id);

  /// Checks that this is a mapping whose keys are all among `known` and stand once; else names the key and the nearest known.
  void expect_keys(std::initializer_list<std::string_view> known) const;
  void expect_keys(std::span<const FileKey> known) const;
  [[nodiscard]] std::optional<YamlValue> find(std::string_view key) const;
  /// As find(), but a missing key is an error.
  [[nodiscard]] YamlValue at(std::string_view key) const;

  [[nodiscard]] bool is_map() const;
  [[nodiscard]] bool is_list() const;
  [[nodiscard]] bool is_scalar() const;
  [[nodiscard]] std::vector<YamlValue> items() const;                          ///< of a list
  [[nodiscard]] std::vector<std::pair<YamlValue, YamlValue>> entries() const;  ///< of a mapping

  /// A string: quoted, or plain text that no YAML version reads as a number, boolean or null.
  [[nodiscard]] std::string string() const;
  /// As string(), but a plain number is taken as it is written ("1009", "1.10").
  [[nodiscard]] std::string text() const;
  /// A plain decimal number without sign or leading zero, within the bounds.
  [[nodiscard]] std::uint64_t number(std::uint64_t least, std::uint64_t most) const;
  /// Plain `true` or `false`, nothing else.
  [[nodiscard]] bool boolean() const;

  /// The schema version under `schema`, which must be `supported`.
  void expect_schema(std::uint64_t supported) const;

  /// "file.yaml:3:7: message", for problems that only the caller can see.
  [[nodiscard]] Error problem(std::string_view message) const;

 private:
  struct Impl;
  explicit YamlValue(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  void expect_names(const std::vector<std::string>& known) const;
  [[nodiscard]] YamlValue wrap(const void* node, int fallback_line, int fallback_column) const;
  std::shared_ptr<const Impl> impl_;
};

/// The candidate nearest to `word` by edits, when it is near enough to be what was meant; for "did you mean".
[[nodiscard]] std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace lumelift
