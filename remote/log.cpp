#include "remote/log.hpp"

#include <fmt/format.h>

#include <charconv>

#include "host/sys/error.hpp"
#include "remote/script.hpp"

namespace lumelift {
namespace {

using namespace std::chrono_literals;

// $1 file, $2 first byte or "end", $3 most. The size is taken first: what comes in meanwhile belongs to the next piece.
constexpr std::string_view read_script = R"sh(if [ ! -f "$1" ]; then echo absent; exit 0; fi
told=$(/usr/bin/stat -L -f '%z %m' "$1" </dev/null) || exit 1
size=${told% *} from=$2
if [ "$from" = end ]; then from=$((size - $3)); fi
if [ "$from" -lt 0 ] || [ "$from" -gt "$size" ]; then from=0; fi
most=$((size - from))
if [ "$most" -gt "$3" ]; then most=$3; fi
printf '%s %s\n' "$from" "$told"
if [ "$most" -eq 0 ]; then exit 0; fi
/usr/bin/tail -c "+$((from + 1))" "$1" | /usr/bin/head -c "$most")sh";

// $1 file, $2 least size, $3 how many old ones stay.
constexpr std::string_view rotate_script = R"sh(if [ -L "$1" ] || [ ! -f "$1" ]; then echo kept; exit 0; fi
size=$(/usr/bin/stat -f %z "$1" </dev/null) || exit 1
if [ "$size" -lt "$2" ]; then echo kept; exit 0; fi
number=$3
while [ "$number" -gt 1 ]; do
  former=$((number - 1))
  if [ -f "$1.$former" ]; then /bin/mv -f "$1.$former" "$1.$number" || exit 1; fi
  number=$former
done
umask 077
/bin/rm -f "$1.1"
/bin/cat "$1" > "$1.1" || { /bin/rm -f "$1.1"; exit 1; }
: > "$1" && echo rotated)sh";

Error unreadable(std::string_view what, std::string_view text) {
  return Error(ErrorKind::failed, "guest-unreadable", fmt::format("cannot understand what the guest says of {}", what))
      .note("it said: " + excerpt(text));
}

/// Takes one number and the byte behind it off the front.
template <class Number>
bool take(std::string_view& text, Number& value, char behind) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const auto length = static_cast<std::size_t>(end - text.data());
  if (error != std::errc{} || length == text.size() || text[length] != behind) {
    return false;
  }
  text.remove_prefix(length + 1);
  return true;
}

}  // namespace

std::optional<LogPiece> read_log(Session& session, const std::string& path, std::optional<std::uint64_t> from, std::uint64_t most) {
  require_plain_path(path);
  const auto answer =
      run_script(session, "read " + path, read_script, {path, from ? std::to_string(*from) : std::string("end"), std::to_string(most)},
                 sys::Deadline::in(60s), {.output_cap = static_cast<std::size_t>(most) + (64u << 10)});
  if (answer.body == "absent\n") {
    return std::nullopt;
  }
  std::string_view body = answer.body;
  LogPiece piece;
  if (!take(body, piece.from, ' ') || !take(body, piece.size, ' ') || !take(body, piece.changed_at, '\n')) {
    throw unreadable(path, answer.body);
  }
  piece.text = body;
  return piece;
}

bool rotate_log(Session& session, const std::string& path, std::uint64_t least, int keep) {
  require_plain_path(path);
  const auto answer =
      run_script(session, "rotate " + path, rotate_script, {path, std::to_string(least), std::to_string(keep)}, sys::Deadline::in(120s));
  if (answer.ok()) {
    return answer.body == "rotated\n";
  }
  throw Error(ErrorKind::failed, "log-not-rotated", fmt::format("cannot rotate {} in the guest", path))
      .note("the guest said: " + excerpt(answer.err));
}

GuestClock parse_clock(std::string_view text) {
  GuestClock clock;
  std::string_view rest = text;
  int zone = 0;
  constexpr std::size_t zone_length = 6;  // "+0100" and its line end
  if (!take(rest, clock.now, ' ') || rest.size() != zone_length || (rest[0] != '+' && rest[0] != '-')) {
    throw unreadable("its clock", text);
  }
  const bool west = rest[0] == '-';
  rest.remove_prefix(1);
  if (!take(rest, zone, '\n')) {
    throw unreadable("its clock", text);
  }
  clock.offset = (zone / 100 * 60 + zone % 100) * 60 * (west ? -1 : 1);
  return clock;
}

GuestClock guest_clock(Session& session) {
  return parse_clock(run_script(session, "ask the guest for its time", "exec /bin/date '+%s %z'", {}, sys::Deadline::in(30s)).body);
}

}  // namespace lumelift
