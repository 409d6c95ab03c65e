#include "host/ancestry.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "host/sys/error.hpp"
#include "host/sys/process.hpp"

namespace lumelift {
namespace {

constexpr std::size_t most_ancestors = 32;  // a table that is read while it changes may hold a ring

struct Entry {
  int parent = 0;
  std::string program;
};

std::string_view without_blanks(std::string_view text) {
  while (text.starts_with(' ')) {
    text.remove_prefix(1);
  }
  while (text.ends_with(' ')) {
    text.remove_suffix(1);
  }
  return text;
}

std::optional<int> take_number(std::string_view& text) {
  text = without_blanks(text);
  int value = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end.ec != std::errc{}) {
    return std::nullopt;
  }
  text.remove_prefix(static_cast<std::size_t>(end.ptr - text.data()));
  return value;
}

std::map<int, Entry> read_table(std::string_view ps_output) {
  std::map<int, Entry> table;
  while (!ps_output.empty()) {
    const auto end = std::min(ps_output.find('\n'), ps_output.size());
    auto line = ps_output.substr(0, end);
    ps_output.remove_prefix(std::min(end + 1, ps_output.size()));
    const auto pid = take_number(line);
    const auto parent = pid ? take_number(line) : std::nullopt;
    if (parent) {
      table[*pid] = {*parent, std::string(without_blanks(line))};
    }
  }
  return table;
}

/// "tmux" of "/opt/homebrew/bin/tmux", "sshd" of "sshd: admin [priv]", "zsh" of the login shell "-zsh".
std::string short_name(std::string_view program) {
  program = program.substr(0, program.find(": "));
  const auto slash = program.rfind('/');
  if (slash != std::string_view::npos) {
    program.remove_prefix(slash + 1);
  }
  return std::string(program.starts_with('-') ? program.substr(1) : program);
}

/// "/Applications/iTerm.app" of a program inside of it.
std::optional<std::string> bundle_of(std::string_view program) {
  const auto end = program.find(".app/");
  return end == std::string_view::npos ? std::nullopt : std::optional(std::string(program.substr(0, end + 4)));
}

}  // namespace

std::vector<std::string> ancestors(std::string_view ps_output, int pid) {
  const auto table = read_table(ps_output);
  std::vector<std::string> all;
  auto at = table.find(pid);
  while (at != table.end() && at->second.parent > 1 && all.size() < most_ancestors) {
    at = table.find(at->second.parent);
    if (at != table.end()) {
      all.push_back(at->second.program);
    }
  }
  return all;
}

std::vector<std::string> own_ancestors() {
  try {
    const auto answer = sys::run({.argv = {"ps", "-axo", "pid=,ppid=,comm="}}, sys::Deadline::in(sys::Milliseconds{5'000}));
    return ancestors(answer.out, static_cast<int>(::getpid()));
  } catch (const Error&) {
    return {};
  }
}

std::string local_network_advice(const std::vector<std::string>& ancestors) {
  const auto has = [&](std::string_view name) {
    return std::any_of(ancestors.begin(), ancestors.end(), [&](const std::string& one) { return short_name(one) == name; });
  };
  // A session manager's server outlives whoever started it, and the permission goes by that one, or by nobody.
  for (const char* manager : {"tmux", "screen", "zellij"}) {
    if (has(manager)) {
      return fmt::format("started inside {}, which has lost the exemption of the terminal it came from: start lumelift outside of it",
                         manager);
    }
  }
  if (has("sshd") || has("sshd-session")) {
    return "started over SSH, which is exempt: if it is blocked all the same, the session was opened by another program";
  }
  if (has("Terminal")) {
    return "started from Terminal, which is exempt as long as Terminal runs";
  }
  for (auto one = ancestors.rbegin(); one != ancestors.rend(); ++one) {
    if (const auto app = bundle_of(*one)) {
      return fmt::format("started by {}: allow that app under Privacy & Security > Local Network", *app);
    }
  }
  if (ancestors.empty()) {
    return "started by launchd: an agent is blocked without any question, a daemon of root is exempt";
  }
  return fmt::format("started by {}, which macOS may hold responsible for it", ancestors.back());
}

}  // namespace lumelift
