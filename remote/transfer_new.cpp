#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <span>

#include "host/sys/error.hpp"
#include "host/sys/hash.hpp"
#include "remote/script.hpp"
#include "remote/transfer.hpp"
#include "remote/transfer_answer.hpp"

namespace lumelift {
namespace {

using namespace std::chrono_literals;

// As put_script in transfer.cpp, for several new files: one shell, and one start of shasum for all. Each file is asked for by
// its number, because the guest's head may read ahead. Linking a part to its final name fails where something stands by now.
// Five words for a file: final, part, want, mode, size.
constexpr std::string_view put_all_script = R"sh(umask 077
said= number=0 newline='
'
say() { printf '%s\n' "$1"; exit 0; }
refuse() { said="$number $1"; return 1; }
each() {
  verb=$1 number=0
  shift
  while [ $# -gt 0 ]; do
    "$verb" "$1" "$2" "$3" "$4" "$5" || return 1
    number=$((number + 1))
    shift 5
  done
}
free() { folder=${1%/*}; /bin/df -k "${folder:-/}" </dev/null | { read -r head; read -r disk blocks used available rest; printf '%s' "$available"; }; }
check() {
  folder=${1%/*}
  [ -d "${folder:-/}" ] || { refuse no-folder; return 1; }
  if [ -L "$1" ]; then refuse link; return 1; fi
  if [ -e "$1" ]; then refuse exists; return 1; fi
}
take() {
  /bin/rm -f "$2" || { refuse no-write; return 1; }
  opened= written=
  set -C
  printf '\nlumelift-send %s\n' "$number"
  {
    opened=1
    if [ "$5" -eq 0 ]; then written=1; elif /usr/bin/head -c "$5"; then written=1; fi
  } > "$2"
  set +C
  [ -n "$opened" ] || { refuse no-write; return 1; }
  [ -n "$written" ] || { refuse "short $(free "$1")"; return 1; }
}
sums_of() {
  left=$(($# / 5))
  while [ "$left" -gt 0 ]; do
    set -- "$@" "$2"
    shift 5
    left=$((left - 1))
  done
  /usr/bin/shasum -a 256 "$@" </dev/null
}
compare() {
  sum=${sums%%"$newline"*}
  sums=${sums#*"$newline"}
  sum=${sum%% *}
  sum=${sum#\\}
  case $sum in *[!0-9a-f]*) refuse "no-sum $sum"; return 1 ;; esac
  [ ${#sum} -eq 64 ] || { refuse "no-sum $sum"; return 1; }
  [ "$sum" = "$3" ] || { refuse "differs $sum"; return 1; }
  /bin/chmod "$4" "$2" || { refuse no-write; return 1; }
}
settle() {
  /bin/ln "$2" "$1" || { if [ -e "$1" ]; then refuse exists; else refuse no-write; fi; return 1; }
  /bin/rm -f "$2"
}
away() { /bin/rm -f "$2"; }
drop() { words=$said; each away "$@"; say "$words"; }

folders=$1
shift
while [ "$folders" -gt 0 ]; do
  if [ -L "$1" ]; then say "0 link-folder $1"; fi
  shift
  folders=$((folders - 1))
done
each check "$@" || say "$said"
each take "$@" || drop "$@"
sums=$(sums_of "$@")$newline
each compare "$@" || drop "$@"
printf '\nlumelift-verified\n'
read -r word
if [ "$word" != commit ]; then said="0 abandoned"; drop "$@"; fi
each settle "$@" || drop "$@"
say done)sh";

/// Which file the guest's last line is about; the line without its number goes back into `answer`.
std::size_t blamed(ScriptAnswer& answer, std::size_t files) {
  const auto end = answer.body.find_last_not_of('\n');
  const auto start = end == std::string::npos ? std::string::npos : answer.body.rfind('\n', end);
  std::string line = start == std::string::npos ? answer.body : answer.body.substr(start + 1);
  std::size_t number = 0;
  const auto [stop, fault] = std::from_chars(line.data(), line.data() + line.size(), number);
  if (fault != std::errc{} || number >= files) {
    return 0;
  }
  line.erase(0, static_cast<std::size_t>(stop - line.data()));
  answer.body = line.substr(std::min(line.find_first_not_of(' '), line.size()));
  return number;
}

}  // namespace

void Transfer::put_new(const std::vector<NewFile>& files) {
  if (files.empty()) {
    return;
  }
  std::vector<std::string> folders, words;
  std::uint64_t total = 0;
  for (const auto& file : files) {
    require_plain_path(file.path);
    if (file.content.size() != file.want.size || sys::sha256(file.content) != file.want.sha256) {
      throw Error(ErrorKind::failed, "source-changed",
                  fmt::format("what is to stand at {} changed: it is not what was planned for", file.path))
          .fix("leave the file alone and try again");
    }
    for (const auto& folder : own_folders_above(file.path)) {
      if (std::find(folders.begin(), folders.end(), folder) == folders.end()) {
        folders.push_back(folder);
      }
    }
    words.insert(words.end(),
                 {file.path, part_name(file.path), file.want.sha256, fmt::format("{:o}", file.want.mode), std::to_string(file.want.size)});
    total += file.want.size;
  }
  folders.insert(folders.begin(), std::to_string(folders.size()));
  words.insert(words.begin(), folders.begin(), folders.end());
  const auto channel = session_.open_exec(script_command(put_all_script, words), sys::Deadline::in(30s));
  bool taken = true;
  for (std::size_t i = 0; taken && i < files.size(); ++i) {
    taken = channel->await(fmt::format("\nlumelift-send {}\n", i), sys::Deadline::in(30s));
    if (taken) {
      channel->write_all(std::as_bytes(std::span(files[i].content)));
    }
  }
  if (taken && channel->await("\nlumelift-verified\n", time_for(total))) {
    constexpr std::string_view go = "commit\n";
    channel->write_all(std::as_bytes(std::span(go)));
  }
  auto answer = script_answer("write files in the guest", channel->finish(sys::Deadline::in(30s)));
  if (answer.body.ends_with("lumelift-verified\ndone\n")) {
    return;
  }
  const auto number = blamed(answer, files.size());
  if (first_word(answer.body) == "exists") {
    throw Error(ErrorKind::failed, "world-moved", fmt::format("{} appeared in the guest since it was looked at", files[number].path))
        .fix("somebody else is changing it; try again");
  }
  throw refusal(files[number].path, answer, files[number].want.size);
}

}  // namespace lumelift
