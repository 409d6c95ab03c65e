#pragma once

#include <stddef.h>
#include <stdint.h>

#include "shim/text.hpp"

namespace lumelift::shim {

/// A value shared by threads without locks; every access is sequentially consistent unless its name says otherwise.
template <typename T>
class Cell {
 public:
  constexpr Cell() = default;
  constexpr explicit Cell(T value) : value_(value) {}
  [[nodiscard]] T load() const { return get(__ATOMIC_SEQ_CST); }
  [[nodiscard]] T load_acquire() const { return get(__ATOMIC_ACQUIRE); }
  void store(T value) { __atomic_store(&value_, &value, __ATOMIC_SEQ_CST); }
  void store_release(T value) { __atomic_store(&value_, &value, __ATOMIC_RELEASE); }
  T add(T value) { return __atomic_add_fetch(&value_, value, __ATOMIC_SEQ_CST); }
  T exchange(T value) {
    T before;
    __atomic_exchange(&value_, &value, &before, __ATOMIC_SEQ_CST);
    return before;
  }
  bool replace(T expected, T desired) {
    return __atomic_compare_exchange(&value_, &expected, &desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  }

 private:
  T get(int order) const {
    T value;
    __atomic_load(&value_, &value, order);
    return value;
  }
  T value_{};
};

/// Which slice of a universal file is running.
[[nodiscard]] const char* slice_name();

/// Identity of this process, read once: pid, start time in seconds and microseconds since 1970 as the kernel knows it
/// (zero where it cannot be read), path of the executable. A pid may be used again; pid and start time together never.
struct Process {
  int pid = 0;
  uint64_t started_seconds = 0;
  uint64_t started_microseconds = 0;
  char executable[1024] = "";

  void read();
  /// Members pid, started ("1764422000.004211" or null), executable, slice.
  void describe(Text& json) const;
};

/// What follows the last slash.
[[nodiscard]] const char* last_component(const char* path);

/// Makes a file appear whole or not at all: temporary file in the same folder (mode 0600), then rename; or, with
/// `replace` off, a link that leaves a file that is already there alone. False when it could not, without a trace.
enum class IfPresent : uint8_t { replace, keep };
bool write_whole(const char* path, const Text& content, IfPresent present);

/// Turns `pattern` into an absolute path: "%p" becomes the pid, a relative pattern is taken from the current folder.
/// `per_process` tells whether "%p" was there. False when it does not fit.
bool expand_path(const char* pattern, int pid, char* path, size_t size, bool& per_process);

/// Runs `write` so that the last state always reaches the file and no caller ever waits: a thread that finds another
/// one writing leaves it a note and goes on.
class Publisher {
 public:
  void publish(void (*write)());

 private:
  Cell<int> wanted_;
  Cell<int> busy_;
};

}  // namespace lumelift::shim
