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
  enum class How { sent, continued, unchanged } how = How::sent;
  std::uint64_t found = 0;  ///< bytes that an interrupted copy had left and that were right
};

/// What a copy came to, for the console or as JSON.
struct CopyReport {
  std::string vm;
  bool from_guest = false;
  std::vector<Copied> files;
  std::size_t folders = 0, links = 0;
  sys::Milliseconds spent{0};

  /// Bytes that went over the connection.
  [[nodiscard]] std::uint64_t moved() const;
  [[nodiscard]] std::string text() const;
  [[nodiscard]] std::string json() const;
};

}  // namespace lumelift
