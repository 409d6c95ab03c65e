#include "cli/guest_run.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <csignal>
#include <random>

#include "host/sys/error.hpp"
#include "host/sys/terminal.hpp"

namespace lumelift {
namespace {

using sys::Deadline;
using sys::Milliseconds;

constexpr Milliseconds start_limit{20'000}, kill_limit{10'000}, watch_every{1'000};
constexpr std::size_t start_text_cap = 64u << 10;  // what start files may print before the mark
constexpr std::size_t keep_cap = 8u << 20;         // of each stream
constexpr char mark_byte = '\036';

// $1 folder, $2 token, then the words for env. The scrub takes whatever is there, not a list that ages; a name that is none
// comes from a value with line breaks.
constexpr std::string_view launch_script = R"sh(set -f
IFS='
'
for line in $(export -p); do
  case $line in
    'export '*) name=${line#export } ;;
    'declare -x '*) name=${line#declare -x } ;;
    *) continue ;;
  esac
  name=${name%%=*}
  case $name in
    *[!A-Za-z0-9_]*) ;;
    DYLD_*|LUME_METAL_*|LUMELIFT_*) unset "$name" ;;
  esac
done
unset IFS line name
set +f
if [ -n "$1" ] && ! cd "$1" 2>/dev/null; then
  printf 'lumelift: the guest has no folder %s that can be entered\n' "$1" >&2
  exit 126
fi
printf '\036%s %s\036' "$2" "$$"
shift 2
exec /usr/bin/env "$@")sh";

void check_words(const Launch& launch) {
  const std::string& program = launch.command.front();
  if (program.empty() || program.front() == '-' || program.find('=') != std::string::npos) {
    throw Error(ErrorKind::usage, "program-unusable",
                fmt::format("'{}' cannot be started through env: it is empty, begins with '-' or holds '='", cleaned(program, 200)))
        .fix("give it another name in the guest, for example by a symbolic link");
  }
}

/// Our terminal, taken over for as long as the program runs.
struct Attachment {
  std::optional<TerminalRequest> terminal;
  std::optional<sys::RawTerminal> raw;
  sys::SignalRelay relay;

  explicit Attachment(const std::string& type) {
    if (type.empty() || ::isatty(STDIN_FILENO) != 1 || ::isatty(STDOUT_FILENO) != 1) {
      return;
    }
    terminal = TerminalRequest{type, sys::window_size(STDOUT_FILENO).value_or(sys::WindowSize{})};
    raw.emplace(STDIN_FILENO);
  }
};

void send_signal(Console& console, Session& session, int pid, int signal) {
  const auto name = sys::signal_name(signal);
  if (!name) {
    return;
  }
  try {
    // A process that is gone already is no failure.
    static_cast<void>(session.exec(fmt::format("/bin/kill -{} {}", *name, pid), Deadline::in(kill_limit)));
  } catch (const Error& error) {
    // A server that allows one session at a time is no reason to give up the program.
    if (error.id() != "guest-protocol") {
      throw;
    }
    console.warn(fmt::format("signal {} cannot be passed on: {}", *name, error.message()));
  }
}

}  // namespace

std::string fresh_token() {
  std::random_device source;
  return fmt::format("{:08x}{:08x}", source(), source());
}

std::vector<std::pair<std::string, std::string>> variables_from(const std::vector<std::string>& given) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const auto& word : given) {
    const auto equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const bool plain =
        !name.empty() && name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == name.npos;
    if (equals == word.npos || !plain || (name[0] >= '0' && name[0] <= '9')) {
      throw Error(ErrorKind::usage, "variable-invalid", fmt::format("'{}' is no NAME=VALUE", word))
          .fix("example: --env GGML_METAL_NO_RESIDENCY=1");
    }
    if (name.starts_with("DYLD_") || name.starts_with("LUMELIFT_") || name.starts_with("LUME_METAL_")) {
      throw Error(ErrorKind::usage, "variable-reserved", fmt::format("{} is set by lumelift itself, or kept out of the program", name));
    }
    out.emplace_back(name, word.substr(equals + 1));
  }
  return out;
}

std::string launch_line(const Launch& launch, const std::string& token) {
  check_words(launch);
  std::vector<std::string> words{"/bin/sh", "-c", std::string(launch_script), "lumelift", launch.folder, token};
  for (const auto& [name, value] : launch.environment) {
    words.push_back(name + "=" + value);
  }
  words.insert(words.end(), launch.command.begin(), launch.command.end());
  return "exec " + quote(words);
}

MarkCutter::MarkCutter(const std::string& token) : head_(mark_byte + token + ' ') {}

std::string MarkCutter::feed(std::string_view piece) {
  if (open_) {
    return std::string(piece);
  }
  held_ += piece;
  const auto begin = held_.find(head_);
  const auto end = begin == held_.npos ? begin : held_.find(mark_byte, begin + head_.size());
  if (end == held_.npos) {
    if (held_.size() <= start_text_cap) {
      return {};
    }
    open_ = true;
    return rest();
  }
  int pid = 0;
  const char* const digits = held_.data() + begin + head_.size();
  if (std::from_chars(digits, held_.data() + end, pid).ec == std::errc{}) {
    pid_ = pid;
  }
  open_ = true;
  std::string own = held_.substr(end + 1);
  held_.clear();
  return own;
}

std::string MarkCutter::rest() {
  return std::exchange(held_, {});
}

int RunEnding::status() const {
  if (result.status) {
    return *result.status;
  }
  const auto number = sys::signal_number(result.signal);
  constexpr int by_signal = 128, unknown = 255;
  return number ? by_signal + *number : unknown;
}

RunEnding run_attached(Console& console, Session& session, const Launch& launch, const RunStreams& streams) {
  const std::string token = fresh_token();
  const std::string line = launch_line(launch, token);
  const bool pass = streams.output == RunStreams::Output::pass;
  MarkCutter cutter(token);
  RunEnding ending;
  std::string out, err;
  const auto put = [&](std::string_view bytes, bool is_err) {
    if (bytes.empty()) {
      return;
    }
    if (pass) {
      return console.pass(bytes, is_err ? Console::Stream::err : Console::Stream::out);
    }
    std::string& kept = is_err ? err : out;
    kept.append(bytes.substr(0, keep_cap - std::min(keep_cap, kept.size())));
  };

  Attachment attachment(pass ? streams.terminal_type : std::string());
  std::vector<int> early;  // signals that came before the pid was known
  bool ended_by_us = false;
  Interaction with;
  with.input = STDIN_FILENO;
  with.terminal = attachment.terminal;
  with.wake = attachment.relay.fd();
  with.every = watch_every;
  with.on_output = [&](std::string_view piece, bool is_err) { put(is_err ? std::string(piece) : cutter.feed(piece), is_err); };
  with.on_wake = [&]() -> std::optional<sys::WindowSize> {
    std::optional<sys::WindowSize> size;
    for (const int signal : attachment.relay.take()) {
      if (signal == SIGWINCH) {
        size = sys::window_size(STDOUT_FILENO);
      } else {
        early.push_back(signal);
      }
    }
    if (!cutter.pid()) {
      return size;
    }
    for (const int signal : std::exchange(early, {})) {
      send_signal(console, session, *cutter.pid(), signal);
    }
    if (streams.watch && !ended_by_us && streams.watch(*cutter.pid())) {
      ended_by_us = true;
      send_signal(console, session, *cutter.pid(), SIGTERM);
    }
    return size;
  };
  try {
    ending.result = session.interact(line, with, Deadline::in(start_limit));
    ending.lost = !ending.result.status && ending.result.signal.empty();
  } catch (const Error& error) {
    if (error.id() != "guest-lost") {
      throw;
    }
    ending.lost = true;
    ending.lost_reason = error.message();
  }
  put(cutter.rest(), false);
  ending.pid = cutter.pid();
  ending.result.out = std::move(out);
  ending.result.err = std::move(err);
  return ending;
}

}  // namespace lumelift
