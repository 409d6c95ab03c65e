#pragma once

#include <string_view>

namespace lumelift {

/// What receives one large file in the guest. Bytes come over SFTP or from a share, into a part that it has made; our
/// words come on its standard input, one a line: "new", "check N", "pull N", "tail N", "free", "commit". Segments are
/// copied and hashed beside each other and beside the sending. Nothing gets its final name before "commit"; a client
/// that dies closes the input, and what it has sent stays for the next try. Each answer is a line, and one write: "part
/// BYTES", "ready", "sum N HEX", "lost FREE_KB WHY", "free KB", and last a word of refusal() or "done STAMP".
inline constexpr std::string_view receive_script = R"sh(umask 077
final=$1 part=$2 former=$3 expected=$4 mode=$5 size=$6 blocks=$7 shared=$8
newline='
'
shift 8
say() { printf '%s\n' "$1"; exit 0; }
for own in "$@"; do if [ -L "$own" ]; then say "link-folder $own"; fi; done
folder=${final%/*}
[ -d "${folder:-/}" ] || say no-folder
if [ -L "$final" ]; then say link; fi
if [ -e "$final" ] && [ ! -f "$final" ]; then say kind; fi
length() { count=$(/usr/bin/wc -c < "$1"); printf '%s' $count; }
free() { /bin/df -k "${folder:-/}" </dev/null | { read -r head; read -r disk blocks used available rest; printf '%s' "$available"; }; }
sum() { text=$(/usr/bin/shasum -a 256); printf '\nsum %s %s\n' "$1" "${text%% *}"; }
check() { /bin/dd if="$part" bs=1048576 skip=$(($1 * blocks)) count="$blocks" 2>/dev/null </dev/null | sum "$1"; }
pull() {
  at=$(($1 * blocks))
  if said=$(/bin/dd if="$shared" of="$part" bs=1048576 skip="$at" seek="$at" count="$blocks" conv=notrunc 2>&1 </dev/null); then
    check "$1"
  else
    printf '\nlost %s %s\n' "$(free)" "${said%%"$newline"*}"
  fi
}
make() {
  /bin/rm -f "$part" || say no-write
  set -C
  : > "$part" || say no-write
  set +C
}
stands() { if [ -f "$final" ]; then length "$final"; else printf absent; fi; }
if [ "$expected" != any ] && [ "$(stands)" != "$expected" ]; then say exists; fi
have=0
if [ -f "$part" ] && [ ! -L "$part" ]; then have=$(length "$part"); fi
if [ "$have" -gt "$size" ]; then have=0; fi
kb=$(free)
case $kb in
  '' | *[!0-9]*) ;;
  *) if [ "$kb" -le "$(((size - have) / 1024))" ]; then say "full $kb"; fi ;;
esac
printf 'part %s\n' "$have"
committed=
while read -r word number; do
  case $word in
    new) make; printf '\nready\n' ;;
    check) check "$number" & ;;
    pull) pull "$number" & ;;
    tail) /bin/dd if="$part" bs=1048576 skip=$((number * blocks)) 2>/dev/null </dev/null | sum tail & ;;
    free) printf '\nfree %s\n' "$(free)" ;;
    commit) committed=1; break ;;
  esac
done
wait
if [ -z "$committed" ]; then
  [ -s "$part" ] || /bin/rm -f "$part"
  say abandoned
fi
[ "$(length "$part")" = "$size" ] || say "differs of another length"
/bin/chmod "$mode" "$part" || say no-write
made=
if [ "$expected" != any ] && [ "$(stands)" != "$expected" ]; then say exists; fi
if [ -n "$former" ] && [ -f "$final" ] && [ ! -e "$former" ] && [ ! -L "$former" ]; then
  /bin/ln "$final" "$former" || say no-write
  made=1
fi
if /bin/mv -f "$part" "$final"; then say "done $(/usr/bin/stat -f '%Fm %Fc %i' "$final" </dev/null)"; fi
if [ -n "$made" ]; then /bin/rm -f "$former"; fi
say no-write)sh";

}  // namespace lumelift
