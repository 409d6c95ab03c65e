#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cli/console.hpp"
#include "host/sys/time.hpp"

namespace lumelift {

/// A block of lines on the terminal behind standard error, redrawn in place at most ten times a second and cut to its width.
/// Nothing where there is no terminal. Cleared before anything else is written, by its owner.
class LiveLines {
 public:
  explicit LiveLines(Console& console) : console_(console) {}
  ~LiveLines() { clear(); }
  LiveLines(const LiveLines&) = delete;
  LiveLines& operator=(const LiveLines&) = delete;

  void show(const std::vector<std::string>& lines);
  void clear();

 private:
  Console& console_;
  std::size_t shown_ = 0;  ///< lines that stand there
  sys::Stopwatch since_;
};

}  // namespace lumelift
