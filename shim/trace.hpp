#pragma once

#include "shim/process.hpp"

namespace lumelift::shim {

/// The questions that programs ask and the library sees.
enum class Query : uint8_t { supports_family, threadgroup_memory, working_set };
[[nodiscard]] const char* selector_of(Query query);

/// Every distinct question (selector and argument), the stock answer, the answer given, and how often. A fixed table,
/// counted without locks; questions beyond its size, or with absurd arguments, are counted in `lost`.
class Trace {
 public:
  /// True when the file should be written again: a question seen for the first time, or a total that is a power of
  /// two. So a process that is killed leaves all of its questions and at least half of its counts.
  bool record(Query query, int64_t argument, uint64_t stock, uint64_t given);
  /// Members queries and lost.
  void describe(Text& json);

 private:
  static constexpr size_t kRows = 96;
  struct Row {
    Cell<uint64_t> key;  // 0: free
    Cell<uint64_t> stock;
    Cell<uint64_t> given;
    Cell<uint64_t> count;  // 0: claimed, not yet filled
  };
  Row rows_[kRows];
  Cell<uint64_t> total_;
  Cell<uint64_t> lost_;
};

}  // namespace lumelift::shim
