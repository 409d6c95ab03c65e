#include "remote/inspect.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "host/sys/error.hpp"
#include "remote/guest_parse.hpp"
#include "remote/script.hpp"

namespace lumelift {
namespace {

using namespace std::chrono_literals;

// %Y alone is a link's target, and the last field because it may hold anything.
constexpr std::string_view entry_script = R"sh(if [ -e "$1" ] || [ -L "$1" ]; then
  exec /usr/bin/stat -f '%p %Y' "$1"
fi
echo absent)sh";

constexpr std::string_view mapped_script = R"sh(/usr/sbin/lsof -n -P -p "$1" -a -d txt -Fn 2>/dev/null </dev/null)sh";
constexpr std::string_view vmmap_script = R"sh(/usr/bin/vmmap "$1" 2>/dev/null </dev/null)sh";

constexpr std::string_view listeners_script = R"sh(/usr/sbin/lsof -n -P -iTCP:"$1" -sTCP:LISTEN -Fp 2>/dev/null </dev/null)sh";

template <class Each>
void each_line(std::string_view text, Each each) {
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    each(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

void add_once(std::vector<std::string>& list, std::string_view path) {
  if (std::find(list.begin(), list.end(), path) == list.end()) {
    list.emplace_back(path);
  }
}

}  // namespace

PathEntry entry_at(Session& session, const std::string& path) {
  require_plain_path(path);
  const auto answer = run_script(session, "look at " + path, entry_script, {path}, sys::Deadline::in(30s));
  std::string_view body = answer.body;
  if (body == "absent\n") {
    return {};
  }
  unsigned mode = 0;
  const auto [last, error] = std::from_chars(body.data(), body.data() + body.size(), mode, 8);
  if (error != std::errc{} || last == body.data() + body.size() || *last != ' ' || !body.ends_with('\n')) {
    throw Error(ErrorKind::failed, "guest-unreadable", fmt::format("cannot understand what the guest says of {}", path))
        .note("it said: " + excerpt(answer.body))
        .note("errors: " + excerpt(answer.err));
  }
  body.remove_prefix(static_cast<std::size_t>(last - body.data()) + 1);
  body.remove_suffix(1);
  const PathKind kind = kind_of(mode);
  return {kind, mode & 07777, kind == PathKind::link ? std::string(body) : std::string()};
}

std::vector<std::string> parse_lsof(std::string_view text) {
  std::vector<std::string> out;
  each_line(text, [&](std::string_view line) {
    if (line.starts_with("n/")) {
      add_once(out, line.substr(1));
    }
  });
  return out;
}

std::vector<std::string> parse_vmmap(std::string_view text) {
  std::vector<std::string> out;
  each_line(text, [&](std::string_view line) {
    // "__TEXT   104abc000-104ac0000 [ 16K] r-x/r-x SM=COW   /path": the sharing mode is the last column before the path.
    const auto mode = line.find(" SM=");
    const auto path = mode == line.npos ? mode : line.find(" /", mode);
    if (path != line.npos) {
      add_once(out, line.substr(path + 1));
    }
  });
  return out;
}

std::vector<std::string> mapped_files(Session& session, int pid) {
  const std::vector<std::string> words{std::to_string(pid)};
  auto files = parse_lsof(run_script(session, "list a process's files", mapped_script, words, sys::Deadline::in(60s)).body);
  if (!files.empty()) {
    return files;
  }
  return parse_vmmap(run_script(session, "list a process's memory", vmmap_script, words, sys::Deadline::in(60s)).body);
}

std::vector<int> listeners(Session& session, int port) {
  std::vector<int> out;
  const auto answer = run_script(session, "ask who listens on a port", listeners_script, {std::to_string(port)}, sys::Deadline::in(60s));
  each_line(answer.body, [&](std::string_view line) {
    int pid = 0;
    if (line.starts_with('p') && std::from_chars(line.data() + 1, line.data() + line.size(), pid).ec == std::errc{}) {
      out.push_back(pid);
    }
  });
  return out;
}

}  // namespace lumelift
