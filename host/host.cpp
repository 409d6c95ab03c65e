#include "host/host.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "host/property_list.hpp"
#include "host/sys/error.hpp"
#include "host/sys/excerpt.hpp"
#include "host/sys/process.hpp"

namespace lumelift {
namespace {

using sys::Deadline;
using sys::Milliseconds;

// An ordinary answer takes milliseconds, but a Mac that is short of memory, or whose preferences daemon just restarts, stalls.
constexpr Milliseconds tool_limit{30'000};
/// How long the preference daemon may go on answering the old value.
constexpr Milliseconds settle_limit{5'000};
/// Between the two reads that must agree: a value that is put back at once is caught.
constexpr Milliseconds second_look{25};

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

sys::Outcome tool(std::vector<std::string> argv) {
  return sys::run({.argv = std::move(argv)}, Deadline::in(tool_limit));
}

/// The text behind `label` on its own line of `output`.
std::string field(std::string_view output, std::string_view label) {
  for (std::size_t at = 0; at < output.size();) {
    const auto end = std::min(output.find('\n', at), output.size());
    const std::string_view line = output.substr(at, end - at);
    if (line.starts_with(label)) {
      const auto start = line.find_first_not_of(" \t", label.size());
      if (start == std::string_view::npos) return "";
      return std::string(line.substr(start, line.find_last_not_of(" \t\r") + 1 - start));
    }
    at = end + 1;
  }
  return "";
}

/// The hardware's own number, out of `ioreg`: host names change with the network.
std::string hardware_id() {
  const auto outcome = tool({"ioreg", "-rd1", "-c", "IOPlatformExpertDevice"});
  const std::string_view mark = "\"IOPlatformUUID\" = \"";
  const auto at = outcome.out.find(mark);
  if (at == std::string::npos) return "";
  const auto start = at + mark.size();
  return outcome.out.substr(start, outcome.out.find('"', start) - start);
}

std::string named(const PrefKey& key) {
  return fmt::format("preference {} of {}", key.key, key.domain);
}

/// Arguments after `defaults` that make the preference be `value`.
std::vector<std::string> write_words(const PrefKey& key, const PrefValue& value) {
  std::vector<std::string> words{"defaults", "write", key.domain, key.key};
  const auto add = [&](const char* type, std::string text) { words.insert(words.end(), {type, std::move(text)}); };
  std::visit(Overloaded{
                 [&](const PrefAbsent&) {
                   words = {"defaults", "delete", key.domain, key.key};
                 },
                 [&](bool is_true) { add("-bool", is_true ? "true" : "false"); },
                 [&](std::int64_t number) { add("-int", std::to_string(number)); },
                 [&](const PrefReal& real) { add("-float", real.text); },
                 [&](const std::string& text) { add("-string", text); },
                 [&](const PrefContainer& container) {
                   throw Error(
                       ErrorKind::failed, "preference-not-written",
                       fmt::format("{} would have to become a value of type {}, which lumelift never writes", named(key), container.type));
                 },
             },
             value);
  return words;
}

/// Single precision is all that `-float` stores; the text of a property list carries every digit.
bool needs_all_digits(const PrefValue& wanted, const PrefValue& seen) {
  const auto* real = std::get_if<PrefReal>(&wanted);
  return real != nullptr && wanted != seen && std::holds_alternative<PrefReal>(seen) &&
         real->text.find_first_not_of("0123456789+-.eE") == std::string::npos;
}

/// Equal in type and value; reals when they are so in single precision.
bool agree(const PrefValue& wanted, const PrefValue& seen) {
  const auto* left = std::get_if<PrefReal>(&wanted);
  const auto* right = std::get_if<PrefReal>(&seen);
  if (left == nullptr || right == nullptr || left->text == right->text) return wanted == seen;
  return std::strtof(left->text.c_str(), nullptr) == std::strtof(right->text.c_str(), nullptr);
}

}  // namespace

const PrefKey& feature_level_key() {
  static const PrefKey key{"com.apple.gpusw.ParavirtualizedGraphics", "ForceUnrestrictedDeviceFeatureLevel"};
  return key;
}

std::string shown(const PrefValue& value) {
  return std::visit(Overloaded{
                        [](const PrefAbsent&) { return std::string("absent"); },
                        [](bool is_true) { return std::string(is_true ? "true" : "false"); },
                        [](std::int64_t number) { return fmt::format("integer {}", number); },
                        [](const PrefReal& real) { return "real " + real.text; },
                        [](const std::string& text) { return fmt::format("string \"{}\"", text); },
                        [](const PrefContainer& container) { return container.type; },
                    },
                    value);
}

HostFacts Host::facts() const {
  HostFacts facts;
  const auto versions = tool({"sw_vers"});
  facts.os = field(versions.out, "ProductVersion:");
  facts.build = field(versions.out, "BuildVersion:");
  // Exit status 1 when one name is unknown; the others are answered all the same.
  const auto values = tool({"sysctl", "hw.model", "machdep.cpu.brand_string", "hw.memsize"});
  facts.model = field(values.out, "hw.model:");
  facts.chip = field(values.out, "machdep.cpu.brand_string:");
  const std::string memory = field(values.out, "hw.memsize:");
  std::from_chars(memory.data(), memory.data() + memory.size(), facts.memory);
  facts.hardware_id = hardware_id();
  return facts;
}

PrefValue Host::preference(const PrefKey& key) const {
  const std::vector<std::string> argv{"defaults", "export", key.domain, "-"};
  const auto outcome = tool(argv);
  if (!outcome.ok()) {
    if (outcome.status && outcome.err.find("does not exist") != std::string::npos) return PrefAbsent{};
    throw Error(ErrorKind::failed, "preference-unreadable",
                fmt::format("cannot read {}: `{}` ended with {}", named(key), sys::shown(argv), outcome.ending()))
        .note(excerpt(outcome.err))
        .fix("run that command by hand, as the user who runs the VM");
  }
  try {
    const auto values = read_property_list(outcome.out);
    const auto found = values.find(key.key);
    return found == values.end() ? PrefValue(PrefAbsent{}) : found->second;
  } catch (Error& error) {
    error.note(fmt::format("printed by `{}`: {}", sys::shown(argv), excerpt(outcome.out)));
    throw;
  }
}

void Host::set_preference(const PrefKey& key, const PrefValue& value) const {
  const auto words = write_words(key, value);
  const auto outcome = tool(words);
  // Deleting what is absent is an error to `defaults` and none to us: only reading back decides. After a refusal there is
  // nothing to wait for.
  const Deadline deadline = Deadline::in(outcome.ok() ? settle_limit : Milliseconds{0});
  PrefValue seen = preference(key);
  bool was_right = false;
  for (Milliseconds nap{20}; !agree(value, seen) && !deadline.expired(); nap = std::min(nap * 2, Milliseconds{500})) {
    sys::pause(nap, deadline);
    seen = preference(key);
  }
  if (needs_all_digits(value, seen)) {
    (void)tool({"defaults", "write", key.domain, key.key, "<real>" + std::get<PrefReal>(value).text + "</real>"});
    seen = preference(key);
  }
  if (agree(value, seen)) {
    sys::pause(second_look, Deadline::in(second_look));
    seen = preference(key);
    if (agree(value, seen)) return;
    was_right = true;
  }
  Error error(ErrorKind::failed, "preference-not-written",
              fmt::format("{} is {} {}`{}`, not {}", named(key), shown(seen), was_right ? "again soon after " : "after ", sys::shown(words),
                          shown(value)));
  if (!outcome.ok()) error.note(fmt::format("it ended with {}: {}", outcome.ending(), excerpt(outcome.err)));
  throw error.fix("look for what else sets it: a configuration profile (System Settings, General, Device Management) or another program");
}

std::optional<std::string> Host::wrong_user(const Invoker& invoker) {
  const auto user = ::geteuid();
  if (user == 0 && invoker.sudo_uid && *invoker.sudo_uid != "0") {
    return fmt::format("this runs as root through sudo, but the preference and the VMs belong to user {}", *invoker.sudo_uid);
  }
  if (!invoker.home || invoker.home->empty()) return "HOME is not set, so it is unknown whose preference and VMs are meant";
  struct stat info {};
  if (::stat(invoker.home->c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
    return fmt::format("HOME is {}, which is no folder", *invoker.home);
  }
  if (info.st_uid != user) {
    return fmt::format("HOME is {}, which belongs to user {}, but this runs as user {}", *invoker.home, info.st_uid, user);
  }
  return std::nullopt;
}

}  // namespace lumelift
