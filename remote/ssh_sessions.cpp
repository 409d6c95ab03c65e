#include "remote/ssh_sessions.hpp"

#include <algorithm>
#include <charconv>

#include "host/sys/error.hpp"
#include "remote/script.hpp"

namespace lumelift {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view blanks = " \t\r";

/// Cuts the first word off.
std::string_view next_word(std::string_view& line) {
  line.remove_prefix(std::min(line.size(), line.find_first_not_of(blanks)));
  const auto word = line.substr(0, line.find_first_of(blanks));
  line.remove_prefix(word.size());
  line.remove_prefix(std::min(line.size(), line.find_first_not_of(blanks)));
  return word;
}

std::optional<int> number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

struct Process {
  int pid, parent;
  std::string_view command;
};

/// "lume@ttys000" of a process that the server has named after a login: "sshd: lume@ttys000", in newer releases
/// "sshd-session: lume@notty". Nothing for any other.
std::optional<std::string_view> login_of(std::string_view command) {
  const auto server = next_word(command);
  if (server != "sshd:" && server != "sshd-session:") {
    return std::nullopt;
  }
  const auto login = next_word(command);
  const auto mark = login.find('@');
  return mark == login.npos || mark == 0 ? std::nullopt : std::optional(login);
}

/// The process and all those above it.
std::vector<int> line_of(int pid, const std::vector<Process>& processes) {
  std::vector<int> out;
  for (std::optional<int> next = pid; next && out.size() <= processes.size();) {
    out.push_back(*next);
    const auto found = std::find_if(processes.begin(), processes.end(), [&](const Process& p) { return p.pid == *next; });
    next = found == processes.end() ? std::nullopt : std::optional(found->parent);
  }
  return out;
}

}  // namespace

std::optional<std::vector<std::string>> parse_sessions(std::string_view text) {
  std::vector<Process> processes;
  std::optional<int> self;
  while (!text.empty()) {
    auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const auto first = next_word(line);
    if (first == "self") {
      self = number(next_word(line));
      continue;
    }
    const auto pid = number(first), parent = number(next_word(line));
    if (pid && parent) {
      processes.push_back({*pid, *parent, line});
    }
  }
  if (!self) {
    return std::nullopt;
  }
  const auto own = line_of(*self, processes);
  std::vector<std::string> out;
  for (const auto& process : processes) {
    const auto login = login_of(process.command);
    if (!login || std::find(own.begin(), own.end(), process.pid) != own.end()) {
      continue;
    }
    const auto mark = login->find('@');
    out.push_back(std::string(login->substr(0, mark)) + " (" + std::string(login->substr(mark + 1)) + "), pid " +
                  std::to_string(process.pid));
  }
  return out;
}

std::vector<std::string> other_ssh_sessions(Session& session) {
  constexpr std::string_view script = "printf 'self %s\\n' \"$$\"; exec /bin/ps -axo pid=,ppid=,command= </dev/null";
  const auto answer = run_script(session, "look for SSH sessions in the guest", script, {}, sys::Deadline::in(30s));
  auto sessions = parse_sessions(answer.body);
  if (answer.ok() && sessions) {
    return *sessions;
  }
  throw Error(ErrorKind::failed, "guest-tool-failed", "cannot list the processes of the guest")
      .note("the guest said: " + excerpt(answer.err));
}

}  // namespace lumelift
