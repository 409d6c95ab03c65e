#pragma once

#include "shim/policy.hpp"
#include "shim/process.hpp"

namespace lumelift::shim {

/// What the library did in this process, as one JSON object that lets the host prove it: the process by pid, start time
/// and path, and the outcome.
///
///   armed   the hook is in place and no device has been initialised yet; written when the library is loaded
///   active  the answers of the paravirtual device class are raised; written when its first device is initialised
///   stock   nothing is changed; `reason` says why, `detail` which selector or class, if that matters
///
/// A process that only traces stays `stock`. `armed` may turn into `stock` (another kind of GPU, a missing method) and
/// then still into `active` if a paravirtual device follows; `active` is final. Family answers are those of the device
/// when the hook took effect. The two sizes are null until the program first asks for them: the library never sends a
/// message of its own to a device that is still being initialised, families aside.
class Receipt {
 public:
  enum class Outcome : uint8_t { stock, armed, active };

  void start(const Process& process, const Policy& policy);
  /// False when that is what it says already. The texts must live as long as the process.
  bool stock(Reason reason, const char* detail, const char* device_class);
  void active(const char* device_class, uint32_t families_before, uint32_t families_after);
  /// True the first time only.
  bool saw_threadgroup_memory(uint64_t before, uint64_t after) { return threadgroup_.saw(before, after); }
  bool saw_working_set(uint64_t before, uint64_t after) { return working_set_.saw(before, after); }

  void describe(Text& json);
  /// The same in one line for people.
  void summarize(Text& line);

 private:
  struct Size {
    Cell<int> state;  // 0 never asked, 1 being noted, 2 known
    Cell<uint64_t> before, after;
    bool saw(uint64_t was, uint64_t is);
    void describe(Text& json, bool stock_answer);
  };
  void describe_answers(Text& json, bool stock_answer);

  const Process* process_ = nullptr;
  const Policy* policy_ = nullptr;
  Cell<Outcome> outcome_;
  Cell<Reason> reason_;
  Cell<const char*> detail_;
  Cell<const char*> device_class_;
  Cell<uint32_t> families_before_;  // bit i: kFamilies[i]
  Cell<uint32_t> families_after_;
  Size threadgroup_;
  Size working_set_;
};

}  // namespace lumelift::shim
