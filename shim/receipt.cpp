#include "shim/receipt.hpp"

namespace lumelift::shim {
namespace {

uint64_t highest_apple(uint32_t families) {
  uint64_t highest = 0;
  for (size_t i = 0; i < kFamilyCount; ++i)
    if ((families >> i & 1) != 0 && kFamilies[i] < 2000) highest = static_cast<uint64_t>(kFamilies[i]);
  return highest;
}

const char* outcome_name(Receipt::Outcome outcome) {
  return outcome == Receipt::Outcome::active ? "active" : outcome == Receipt::Outcome::armed ? "armed" : "stock";
}

}  // namespace

void Receipt::start(const Process& process, const Policy& policy) {
  process_ = &process;
  policy_ = &policy;
  reason_.store(policy.reason);
  outcome_.store(policy.raises() ? Outcome::armed : Outcome::stock);
}

bool Receipt::stock(Reason reason, const char* detail, const char* device_class) {
  if (outcome_.load() == Outcome::active) return false;
  // A process that was stock by configuration stays so; what it could not trace is no news.
  if (!policy_->raises()) reason = policy_->reason;
  detail_.store(detail);
  const bool same_class = device_class_.exchange(device_class) == device_class;
  const bool same_reason = reason_.exchange(reason) == reason;
  return outcome_.exchange(Outcome::stock) != Outcome::stock || !same_class || !same_reason;
}

void Receipt::active(const char* device_class, uint32_t families_before, uint32_t families_after) {
  families_before_.store(families_before);
  families_after_.store(families_after);
  detail_.store(nullptr);
  device_class_.store(device_class);
  if (!policy_->raises()) return;
  reason_.store(Reason::none);
  outcome_.store(Outcome::active);
}

bool Receipt::Size::saw(uint64_t was, uint64_t is) {
  if (state.load_acquire() != 0 || !state.replace(0, 1)) return false;
  before.store(was);
  after.store(is);
  state.store(2);
  return true;
}

void Receipt::Size::describe(Text& json, bool stock_answer) {
  if (state.load() != 2)
    json.put("null");
  else
    json.number(stock_answer ? before.load() : after.load());
}

void Receipt::describe_answers(Text& json, bool stock_answer) {
  const uint32_t families = stock_answer ? families_before_.load() : families_after_.load();
  if (families_before_.load() == 0 && families_after_.load() == 0) {
    json.put("null");
    return;
  }
  json.put('{').key("highest_apple_family").number(highest_apple(families)).key("families").put('[');
  for (size_t i = 0; i < kFamilyCount; ++i)
    if ((families >> i & 1) != 0) json.element().signed_number(kFamilies[i]);
  json.put(']').key("max_threadgroup_memory");
  threadgroup_.describe(json, stock_answer);
  json.key("recommended_working_set");
  working_set_.describe(json, stock_answer);
  json.put('}');
}

void Receipt::describe(Text& json) {
  const Reason reason = reason_.load();
  json.put('{').key("schema").put('1').key("library").quoted(LUMELIFT_VERSION);
  process_->describe(json);
  json.key("outcome").quoted(outcome_name(outcome_.load()));
  json.key("reason").quoted(reason == Reason::none ? nullptr : reason_id(reason));
  json.key("detail").quoted(detail_.load()).key("device_class").quoted(device_class_.load());
  json.key("ceiling").signed_number(policy_->ceiling);
  json.key("threadgroup_memory").number(policy_->threadgroup_memory);
  json.key("working_set").number(policy_->working_set);
  json.key("inherit").boolean(policy_->inherit).key("tracing").boolean(policy_->trace);
  json.key("before");
  describe_answers(json, true);
  json.key("after");
  describe_answers(json, false);
  json.put("}\n");
}

void Receipt::summarize(Text& line) {
  line.put("lumelift: pid ").signed_number(process_->pid).put(' ').put(outcome_name(outcome_.load()));
  if (const Reason reason = reason_.load(); reason != Reason::none) line.put(": ").put(reason_id(reason));
  if (const char* detail = detail_.load()) line.put(" (").put(detail).put(')');
  if (const char* name = device_class_.load()) line.put(", device class ").put(name);
  if (const uint32_t before = families_before_.load(); before != 0 && outcome_.load() == Outcome::active)
    line.put(", Apple family ").number(highest_apple(before)).put(" -> ").number(highest_apple(families_after_.load()));
  line.put('\n');
}

}  // namespace lumelift::shim
