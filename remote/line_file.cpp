#include <fmt/format.h>

#include "host/sys/error.hpp"
#include "remote/guest.hpp"
#include "remote/script.hpp"

namespace lumelift {
namespace {

using namespace std::chrono_literals;

// $1 what to do, $2 the file, $3 the line. The new text is written beside the file, with the file's own mode and attributes, and
// renamed. A last line without its newline stays without.
constexpr std::string_view line_script = R"sh(how=$1 path=$2 line=$3
next=$path.lumelift
if [ -L "$path" ] || { [ -e "$path" ] && [ ! -f "$path" ]; }; then echo kind; exit 0; fi
present() {
  [ -e "$path" ] || return 1
  while IFS= read -r one || [ -n "$one" ]; do
    if [ "$one" = "$line" ]; then return 0; fi
  done < "$path"
  return 1
}
rest() {
  met=$1
  while IFS= read -r one; do
    if [ -z "$met" ] && [ "$one" = "$line" ]; then met=1; else printf '%s\n' "$one"; fi
  done
  if [ -n "$one" ] && { [ -n "$met" ] || [ "$one" != "$line" ]; }; then printf '%s' "$one"; fi
}
copy() {
  umask 077
  if [ -e "$path" ]; then /bin/cp -p "$path" "$next"; else : > "$next"; fi
}
case $how in
  look)
    if present; then echo present; elif [ -e "$path" ]; then echo missing; else echo absent; fi ;;
  add)
    copy && { printf '%s\n' "$line"; if [ -e "$path" ]; then rest met < "$path"; fi; } > "$next" &&
      /bin/mv -f "$next" "$path" && echo done ;;
  remove*)
    if present; then
      copy && rest '' < "$path" > "$next" || exit 1
      if [ "$how" = remove-file ] && [ ! -s "$next" ]; then /bin/rm -f "$path" "$next"; else /bin/mv -f "$next" "$path"; fi || exit 1
    else
      /bin/rm -f "$next"
    fi
    echo done ;;
esac)sh";

std::string ask(Session& session, const char* how, const std::string& path, const std::string& line) {
  require_plain_path(path);
  const auto answer = run_script(session, "edit " + path, line_script, {how, path, line}, sys::Deadline::in(30s));
  if (answer.body == "kind\n") {
    throw Error(ErrorKind::failed, "guest-path-unsafe", fmt::format("in the guest, {} is not a plain file", path))
        .fix("look at it in the guest and move it away");
  }
  if (answer.body.empty()) {
    Error error(ErrorKind::failed, "guest-tool-failed", fmt::format("cannot change {} in the guest", path));
    if (!answer.err.empty()) {
      error.note("the guest said: " + excerpt(answer.err));
    }
    throw error;
  }
  return answer.body;
}

}  // namespace

LineSeen Guest::line_in(const std::string& path, const std::string& line) {
  const auto answer = ask(session_, "look", path, line);
  return answer == "present\n" ? LineSeen::present : answer == "absent\n" ? LineSeen::no_file : LineSeen::missing;
}

void Guest::add_line(const std::string& path, const std::string& line) {
  (void)ask(session_, "add", path, line);
}

void Guest::remove_line(const std::string& path, const std::string& line, EmptyFile empty) {
  (void)ask(session_, empty == EmptyFile::remove ? "remove-file" : "remove", path, line);
}

}  // namespace lumelift
