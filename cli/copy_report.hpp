#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/console.hpp"
#include "host/sys/time.hpp"
#include "remote/transfer.hpp"

namespace lumelift {

/// One file that was to be copied, in the end.
struct Copied {
  std::string from, to;
  FileState state;
  enum class How { sent, continued, mode_set, unchanged } how = How::sent;  ///< of a dry run: what would be done
  std::uint64_t found = 0;                                                  ///< bytes that an interrupted copy had left and that were right
};

/// What a copy came to, for the console or as JSON.
struct CopyReport {
  std::string vm;
  bool from_guest = false;
  std::vector<Copied> files;
  std::size_t folders = 0, links = 0;  ///< made, or links changed
  bool dry_run = false;
  sys::Milliseconds spent{0};

  [[nodiscard]] bool changes() const;
  /// Bytes that went over the connection; of a dry run: that would, if nothing is left from an interrupted copy.
  [[nodiscard]] std::uint64_t moved() const;
  [[nodiscard]] std::string text() const;
  [[nodiscard]] std::string json() const;
};

}  // namespace lumelift
