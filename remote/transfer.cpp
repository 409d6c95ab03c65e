#include "remote/transfer.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "host/sys/error.hpp"
#include "host/sys/hash.hpp"
#include "remote/script.hpp"
#include "remote/transfer_answer.hpp"

namespace lumelift {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t block_bytes = 1u << 20;
constexpr std::size_t longest_name = 205;  // with our marks below the 255 bytes of a file name

// One command does it all: it takes the bytes, verifies them by reading them back, and waits for our word before the rename.
// A client that dies before then closes the stream, and the part is removed instead. The former file is kept under a name
// with its own hash, so that several replacements of one file can be taken back one after the other.
constexpr std::string_view put_script = R"sh(umask 077
final=$1 part=$2 former=$3 want=$4 mode=$5 size=$6
shift 6
say() { printf '%s\n' "$1"; exit 0; }
drop() { /bin/rm -f "$part"; say "$1"; }
for own in "$@"; do if [ -L "$own" ]; then say "link-folder $own"; fi; done
folder=${final%/*}
[ -d "${folder:-/}" ] || say no-folder
if [ -L "$final" ]; then say link; fi
if [ -e "$final" ] && [ ! -f "$final" ]; then say kind; fi
free() { /bin/df -k "${folder:-/}" </dev/null | { read -r head; read -r disk blocks used available rest; printf '%s' "$available"; }; }
if [ "$size" -gt 262144 ]; then
  kb=$(free)
  case $kb in
    '' | *[!0-9]*) ;;
    *) if [ "$kb" -le "$((size / 1024))" ]; then say "full $kb"; fi ;;
  esac
fi
/bin/rm -f "$part" || say "no-write"
set -C
opened= written=
{
  opened=1
  if [ "$size" -eq 0 ]; then written=1; elif /usr/bin/head -c "$size"; then written=1; fi
} > "$part"
set +C
[ -n "$opened" ] || say no-write
[ -n "$written" ] || { /bin/rm -f "$part"; say "short $(free)"; }
sum=$(/usr/bin/shasum -a 256 < "$part")
sum=${sum%% *}
case $sum in *[!0-9a-f]*) drop "no-sum $sum" ;; esac
[ ${#sum} -eq 64 ] || drop "no-sum $sum"
[ "$sum" = "$want" ] || drop "differs $sum"
/bin/chmod "$mode" "$part" || drop no-write
if [ -n "$former" ] && [ -f "$final" ]; then
  old=$(/usr/bin/shasum -a 256 < "$final")
  old=${old%% *}
  [ ${#old} -eq 64 ] || drop "no-sum $old"
  former=$former-${old%"${old#????????????}"}
fi
printf '\nlumelift-verified\n'
read -r word
[ "$word" = commit ] || drop abandoned
made=
if [ -n "$former" ] && [ -f "$final" ] && [ ! -e "$former" ] && [ ! -L "$former" ]; then
  /bin/ln "$final" "$former" || drop no-write
  made=1
fi
if /bin/mv -f "$part" "$final"; then say done; fi
if [ -n "$made" ]; then /bin/rm -f "$former"; fi
drop no-write)sh";

// rename() between two links of one inode does nothing and reports success, so that case is its own branch.
constexpr std::string_view take_back_script = R"sh(final=$1 part=$2 former=$3 want=$4 mode=$5
shift 5
say() { printf '%s\n' "$1"; exit 0; }
for own in "$@"; do if [ -L "$own" ]; then say "link-folder $own"; fi; done
/bin/rm -f "$part"
if [ -L "$final" ]; then say link; fi
if [ -e "$final" ] && [ ! -f "$final" ]; then say kind; fi
sum_of() { sum=$(/usr/bin/shasum -a 256 < "$1"); printf '%s' "${sum%% *}"; }
if [ "$want" = - ]; then
  /bin/rm -f "$final" || say no-write
  say done
fi
former=$former-${want%"${want#????????????}"}
if [ -f "$former" ] && [ ! -L "$former" ]; then
  [ "$(sum_of "$former")" = "$want" ] || say former-differs
  /bin/chmod "$mode" "$former" || say no-write
  if [ "$final" -ef "$former" ]; then /bin/rm -f "$former"; else /bin/mv -f "$former" "$final"; fi || say no-write
  say done
fi
if [ -f "$final" ] && [ "$(sum_of "$final")" = "$want" ]; then
  /bin/chmod "$mode" "$final" || say no-write
  say done
fi
say former-missing)sh";

constexpr std::string_view tidy_script = R"sh(final=$1 part=$2 former=$3
shift 3
say() { printf '%s\n' "$1"; exit 0; }
for own in "$@"; do if [ -L "$own" ]; then say "link-folder $own"; fi; done
/bin/rm -f "$part" || say no-write
if [ -L "$final" ] || [ ! -f "$final" ]; then say done; fi
sum_of() { sum=$(/usr/bin/shasum -a 256 < "$1"); printf '%s' "${sum%% *}"; }
for kept in "$former"-*; do
  if [ -L "$kept" ] || [ ! -f "$kept" ]; then continue; fi
  if [ "$final" -ef "$kept" ] || [ "$(sum_of "$final")" = "$(sum_of "$kept")" ]; then
    /bin/rm -f "$kept" || say no-write
  fi
done
say done)sh";

constexpr std::string_view read_script = R"sh(say() { printf '%s\n' "$1"; exit 0; }
[ -e "$1" ] || say absent
[ -f "$1" ] || say kind
size=$(/usr/bin/wc -c < "$1") || say unreadable
[ "$size" -le "$2" ] || say "large $size"
printf 'content\n'
exec /bin/cat "$1")sh";

std::string beside(const std::string& path, std::string_view mark) {
  const auto slash = path.rfind('/') + 1;
  auto name = path.substr(slash);
  if (name.size() > longest_name) {
    // Cut between characters, since the guest's file system takes valid UTF-8 only.
    std::size_t length = longest_name - 40;
    while (length > 0 && (static_cast<unsigned char>(name[length]) & 0xc0) == 0x80) {
      --length;
    }
    name = name.substr(0, length) + "-" + sys::sha256(name).substr(0, 16);
  }
  return fmt::format("{}.{}.lumelift-{}", path.substr(0, slash), name, mark);
}

/// A host file or bytes in memory, read in blocks.
class Source {
 public:
  explicit Source(std::string_view bytes) : rest_(bytes) {}
  explicit Source(const sys::fs::path& file) : name_(file), fd_(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    struct stat about {};
    if (!fd_ || ::fstat(fd_.get(), &about) != 0) {
      unreadable(std::strerror(errno));
    }
    if (!S_ISREG(about.st_mode)) {
      unreadable("it is not a regular file");
    }
    buffer_.resize(block_bytes);
  }

  /// The next block; empty at the end.
  std::span<const std::byte> next() {
    if (!fd_) {
      const auto piece = rest_.substr(0, block_bytes);
      rest_.remove_prefix(piece.size());
      return std::as_bytes(std::span(piece));
    }
    for (;;) {
      const auto got = ::read(fd_.get(), buffer_.data(), buffer_.size());
      if (got >= 0) {
        return std::as_bytes(std::span(buffer_)).first(static_cast<std::size_t>(got));
      }
      if (errno != EINTR) {
        unreadable(std::strerror(errno));
      }
    }
  }
  [[nodiscard]] std::string name() const { return name_.empty() ? "the text to write" : name_.string(); }

 private:
  [[noreturn]] void unreadable(std::string_view reason) const {
    throw Error(ErrorKind::usage, "file-unreadable", fmt::format("cannot read {}: {}", name_.string(), reason));
  }
  sys::fs::path name_;
  sys::Fd fd_;
  std::string buffer_;
  std::string_view rest_;
};

/// Passes news on ten times a second at most.
class Pace {
 public:
  Pace(const Progress& progress, std::uint64_t total) : progress_(progress), total_(total) {}
  void at(std::uint64_t sent) {
    if (!progress_ || (sent < total_ && watch_.elapsed() < 100ms)) {
      return;
    }
    progress_(sent, total_);
    watch_ = {};
  }

 private:
  const Progress& progress_;
  std::uint64_t total_;
  sys::Stopwatch watch_;
};

Error changed(const Source& source, std::string_view how) {
  return Error(ErrorKind::failed, "source-changed", fmt::format("{} changed while it was sent: {}", source.name(), how))
      .fix("leave the file alone and try again");
}

std::vector<std::string> with_own_folders(std::vector<std::string> arguments, const std::string& path) {
  const auto own = own_folders_above(path);
  arguments.insert(arguments.end(), own.begin(), own.end());
  return arguments;
}

void put(Session& session, Source& source, const std::string& path, const FileState& want, const Progress& progress, Former former) {
  require_plain_path(path);
  const auto what = "write " + path;
  const auto command =
      script_command(put_script, with_own_folders({path, Transfer::part_name(path), former == Former::keep ? beside(path, "before") : "",
                                                   want.sha256, fmt::format("{:o}", want.mode), std::to_string(want.size)},
                                                  path));
  const auto channel = session.open_exec(command, sys::Deadline::in(30s));
  sys::Sha256 hash;
  Pace pace(progress, want.size);
  std::uint64_t sent = 0;
  for (auto block = source.next(); !block.empty() && !channel->ended(); block = source.next()) {
    if (block.size() > want.size - sent) {
      throw changed(source, "it grew");
    }
    hash.update(block);
    channel->write_all(block);
    sent += block.size();
    pace.at(sent);
  }
  if (!channel->ended()) {
    if (sent < want.size) {
      throw changed(source, "it shrank");
    }
    // Other bytes than those that were planned for are refused by the guest too; only we know that they were sent so.
    if (hash.hex() != want.sha256) {
      throw changed(source, "its SHA-256 is not the one that was planned for");
    }
    if (channel->await("\nlumelift-verified\n", time_for(want.size))) {
      constexpr std::string_view go = "commit\n";
      channel->write_all(std::as_bytes(std::span(go)));
    }
  }
  const auto answer = script_answer(what, channel->finish(sys::Deadline::in(30s)));
  if (!answer.body.ends_with("lumelift-verified\ndone\n")) {
    throw refusal(path, answer, want.size);
  }
}

}  // namespace

void Transfer::put_file(const sys::fs::path& source, const std::string& path, const FileState& want, const Progress& progress,
                        Former former) {
  Source file(source);
  put(session_, file, path, want, progress, former);
}

void Transfer::put_bytes(std::string_view content, const std::string& path, const FileState& want) {
  Source bytes(content);
  put(session_, bytes, path, want, {}, Former::keep);
}

void Transfer::take_back(const std::string& path, const std::optional<FileState>& before) {
  require_plain_path(path);
  const auto size = before ? before->size : 0;
  const auto answer = run_script(session_, "put back " + path, take_back_script,
                                 with_own_folders({path, part_name(path), beside(path, "before"), before ? before->sha256 : "-",
                                                   fmt::format("{:o}", before ? before->mode : 0)},
                                                  path),
                                 time_for(size));
  if (answer.body != "done\n") {
    throw refusal(path, answer, size);
  }
}

void Transfer::tidy(const std::string& path) {
  require_plain_path(path);
  const auto answer = run_script(session_, "tidy up beside " + path, tidy_script,
                                 with_own_folders({path, part_name(path), beside(path, "before")}, path), time_for(1u << 30));
  if (answer.body != "done\n") {
    throw refusal(path, answer, 0);
  }
}

std::optional<std::string> Transfer::read(const std::string& path, std::size_t cap) {
  require_plain_path(path);
  auto answer =
      run_script(session_, "read " + path, read_script, {path, std::to_string(cap)}, time_for(cap), {.output_cap = cap + (64u << 10)});
  constexpr std::string_view head = "content\n";
  if (answer.body == "absent\n") {
    return std::nullopt;
  }
  if (answer.ok() && answer.body.starts_with(head)) {
    return answer.body.substr(head.size());
  }
  if (answer.body.starts_with("large ")) {
    throw Error(ErrorKind::failed, "guest-file-too-large",
                fmt::format("{} in the guest has {} bytes; at most {} are read", path, excerpt(second_word(answer.body)), cap));
  }
  if (answer.body == "kind\n") {
    throw refusal(path, answer, 0);
  }
  throw Error(ErrorKind::failed, "guest-tool-failed", fmt::format("cannot read {} in the guest", path))
      .note("the guest said: " + excerpt(answer.err));
}

std::string Transfer::part_name(const std::string& path) {
  return beside(path, "part");
}
std::string Transfer::before_name(const std::string& path, std::string_view sha256) {
  return fmt::format("{}-{}", beside(path, "before"), sha256.substr(0, 12));
}

}  // namespace lumelift
