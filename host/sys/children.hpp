#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "host/sys/process.hpp"

namespace lumelift::sys {

/// Several commands at once, each run as run() would, without threads. Signals are the owner's to handle: nothing here throws
/// Interrupted, and a second signal leaves the commands to their own end. The destructor kills what is left.
class Children {
 public:
  using Key = std::size_t;
  Children();
  ~Children();
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  /// Starts `command` under a key of the caller's that is not in use. Throws as run() does.
  void start(Key key, Command command, const Deadline& deadline);
  [[nodiscard]] std::size_t count() const;
  /// Waits at most `longest` until a command ends or a signal arrives, and returns those that ended. `said` gets every
  /// whole line that a command writes to standard error meanwhile.
  using Listener = std::function<void(Key, std::string_view line)>;
  struct Ended {
    Key key;
    Outcome outcome;
  };
  [[nodiscard]] std::vector<Ended> wait(Milliseconds longest, const Listener& said);
  /// Sends a signal to each command, not to what it started itself.
  void signal_all(int signal);

 private:
  struct Entry;
  std::vector<std::unique_ptr<Entry>> entries_;
};

}  // namespace lumelift::sys
