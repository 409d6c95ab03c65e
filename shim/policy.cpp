#include "shim/policy.hpp"

namespace lumelift::shim {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool equal(const char* text, size_t size, const char* name) {
  size_t i = 0;
  while (i < size && name[i] != '\0' && text[i] == name[i]) ++i;
  return i == size && name[i] == '\0';
}

bool parse_switch(const char* text, bool& value) {
  if (text == nullptr) return true;
  if ((text[0] != '0' && text[0] != '1') || text[1] != '\0') return false;
  value = text[0] == '1';
  return true;
}

/// A size that may be absent. Zero is a valid way to say "as reported".
Reason parse_size(const char* text, uint64_t limit, Reason malformed, Reason out_of_range, uint64_t& value) {
  if (text == nullptr) return Reason::none;
  if (!parse_decimal(text, value)) return malformed;
  return value > limit ? out_of_range : Reason::none;
}

/// Program names may contain anything but commas and slashes; an empty name can only be a slip.
Reason listed(const char* list, const char* program) {
  if (list == nullptr) return Reason::none;
  bool found = false;
  for (const char* name = list;;) {
    size_t size = 0;
    for (; name[size] != '\0' && name[size] != ','; ++size)
      if (name[size] == '/') return Reason::only_malformed;
    if (size == 0) return Reason::only_malformed;
    found = found || equal(name, size, program);
    if (name[size] == '\0') return found ? Reason::none : Reason::program_not_listed;
    name += size + 1;
  }
}

Reason parse_ceiling(const char* text, int64_t& ceiling) {
  uint64_t value = 0;
  if (text == nullptr) return Reason::ceiling_absent;
  if (!parse_decimal(text, value)) return Reason::ceiling_malformed;
  if (value == 0) return Reason::ceiling_zero;
  if (value < uint64_t{kApple1} || value > uint64_t{kHighestCeiling}) return Reason::ceiling_out_of_range;
  ceiling = static_cast<int64_t>(value);
  return Reason::none;
}

/// Everything but the ceiling: what is wrong with it, if anything.
Reason read_others(const Settings& settings, Policy& policy) {
  policy.threadgroup_memory = kDefaultThreadgroupMemory;
  if (auto r = parse_size(settings.threadgroup_memory, kHighestThreadgroupMemory, Reason::threadgroup_malformed,
                          Reason::threadgroup_out_of_range, policy.threadgroup_memory);
      r != Reason::none)
    return r;
  if (auto r = parse_size(settings.working_set, kHighestWorkingSet, Reason::working_set_malformed, Reason::working_set_out_of_range,
                          policy.working_set);
      r != Reason::none)
    return r;
  if (!parse_switch(settings.inherit, policy.inherit)) return Reason::inherit_malformed;
  if (settings.receipt != nullptr && settings.receipt[0] == '\0') return Reason::receipt_malformed;
  if (settings.trace != nullptr && settings.trace[0] == '\0') return Reason::trace_malformed;
  return Reason::none;
}

Policy stock(Reason reason, const Policy& read) {
  Policy policy;
  policy.reason = reason;
  policy.inherit = read.inherit;
  policy.verbose = read.verbose;
  return policy;
}

}  // namespace

bool parse_decimal(const char* text, uint64_t& value) noexcept {
  uint64_t result = 0;
  if (!is_digit(text[0]) || (text[0] == '0' && text[1] != '\0')) return false;
  for (; is_digit(*text); ++text) {
    const auto digit = static_cast<uint64_t>(*text - '0');
    if (result > (UINT64_MAX - digit) / 10) return false;
    result = result * 10 + digit;
  }
  if (*text != '\0') return false;
  value = result;
  return true;
}

Policy read_policy(const Settings& settings) noexcept {
  Policy read;
  // A program that is not meant stays out of everything, whatever else is set.
  if (auto reason = listed(settings.only, settings.program); reason != Reason::none) {
    Policy other;
    other.reason = reason;
    return other;
  }
  const bool verbose_valid = parse_switch(settings.verbose, read.verbose);  // first: it tells about all the others
  const Reason ceiling = parse_ceiling(settings.ceiling, read.ceiling);
  const bool chosen_stock = ceiling == Reason::ceiling_absent || ceiling == Reason::ceiling_zero;
  if (ceiling != Reason::none && !chosen_stock) return stock(ceiling, read);
  if (auto reason = read_others(settings, read); reason != Reason::none) return stock(reason, read);
  if (!verbose_valid) return stock(Reason::verbose_malformed, read);
  if (chosen_stock) {
    Policy policy = stock(ceiling, read);
    policy.trace = settings.trace != nullptr;
    return policy;
  }
  read.reason = Reason::none;
  read.trace = settings.trace != nullptr;
  return read;
}

size_t remove_entries(char* list, const char* file_name) noexcept {
  size_t removed = 0;
  char* out = list;
  for (const char* entry = list;;) {
    size_t size = 0;
    size_t name = 0;  // where the last path component starts
    for (; entry[size] != '\0' && entry[size] != ':'; ++size)
      if (entry[size] == '/') name = size + 1;
    const bool last = entry[size] == '\0';
    if (equal(entry + name, size - name, file_name)) {
      ++removed;
    } else {
      if (out != list) *out++ = ':';
      for (size_t i = 0; i < size; ++i) *out++ = entry[i];
    }
    if (last) break;
    entry += size + 1;
  }
  *out = '\0';
  return removed;
}

bool same_types(const char* encoding, const char* wanted) noexcept {
  if (encoding == nullptr) return false;
  for (;; ++encoding) {
    if (is_digit(*encoding)) continue;
    const char seen = *encoding == 'c' ? 'B' : *encoding;
    if (seen != *wanted) return false;
    if (seen == '\0') return true;
    ++wanted;
  }
}

const char* reason_id(Reason reason) noexcept {
  switch (reason) {
    case Reason::none:
      return "";
    case Reason::program_not_listed:
      return "program-not-listed";
    case Reason::only_malformed:
      return "only-malformed";
    case Reason::ceiling_absent:
      return "ceiling-absent";
    case Reason::ceiling_zero:
      return "ceiling-zero";
    case Reason::ceiling_malformed:
      return "ceiling-malformed";
    case Reason::ceiling_out_of_range:
      return "ceiling-out-of-range";
    case Reason::threadgroup_malformed:
      return "threadgroup-malformed";
    case Reason::threadgroup_out_of_range:
      return "threadgroup-out-of-range";
    case Reason::working_set_malformed:
      return "working-set-malformed";
    case Reason::working_set_out_of_range:
      return "working-set-out-of-range";
    case Reason::inherit_malformed:
      return "inherit-malformed";
    case Reason::verbose_malformed:
      return "verbose-malformed";
    case Reason::receipt_malformed:
      return "receipt-malformed";
    case Reason::trace_malformed:
      return "trace-malformed";
    case Reason::metal_missing:
      return "metal-missing";
    case Reason::base_class_missing:
      return "base-class-missing";
    case Reason::init_method_missing:
      return "init-method-missing";
    case Reason::init_method_inherited:
      return "init-method-inherited";
    case Reason::init_method_encoding:
      return "init-method-encoding";
    case Reason::device_not_paravirtual:
      return "device-not-paravirtual";
    case Reason::method_missing:
      return "method-missing";
    case Reason::method_encoding:
      return "method-encoding";
    case Reason::install_failed:
      return "install-failed";
    case Reason::self_check_failed:
      return "self-check-failed";
  }
  return "";
}

}  // namespace lumelift::shim
