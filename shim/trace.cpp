#include "shim/trace.hpp"

namespace lumelift::shim {
namespace {

constexpr int64_t kHighestArgument = INT32_MAX;

uint64_t key_of(Query query, int64_t argument) {
  return (static_cast<uint64_t>(query) + 1) << 32 | static_cast<uint64_t>(argument);
}

}  // namespace

const char* selector_of(Query query) {
  switch (query) {
    case Query::supports_family:
      return "supportsFamily:";
    case Query::threadgroup_memory:
      return "maxThreadgroupMemoryLength";
    case Query::working_set:
      return "recommendedMaxWorkingSetSize";
  }
  return "";
}

bool Trace::record(Query query, int64_t argument, uint64_t stock, uint64_t given) {
  const uint64_t total = total_.add(1);
  const bool round = (total & (total - 1)) == 0;
  if (argument < 0 || argument > kHighestArgument) return lost_.add(1), round;
  const uint64_t key = key_of(query, argument);
  for (Row& row : rows_) {
    bool first = false;
    if (row.key.load_acquire() == 0) first = row.key.replace(0, key);
    if (row.key.load_acquire() != key) continue;
    row.stock.store(stock);
    row.given.store(given);
    row.count.add(1);
    return first || round;
  }
  lost_.add(1);
  return round;
}

void Trace::describe(Text& json) {
  json.key("queries").put('[');
  for (Row& row : rows_) {
    const uint64_t count = row.count.load();
    if (count == 0) continue;
    const uint64_t key = row.key.load();
    const auto query = static_cast<Query>((key >> 32) - 1);
    json.element().put('{').key("selector").quoted(selector_of(query));
    if (query == Query::supports_family) {
      json.key("argument").number(key & UINT32_MAX);
      json.key("stock").boolean(row.stock.load() != 0).key("given").boolean(row.given.load() != 0);
    } else {
      json.key("argument").put("null").key("stock").number(row.stock.load()).key("given").number(row.given.load());
    }
    json.key("count").number(count).put('}');
  }
  json.put(']').key("lost").number(lost_.load());
}

}  // namespace lumelift::shim
