#include "remote/manifest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <vector>

#include "host/sys/error.hpp"
#include "remote/guest.hpp"
#include "remote/guest_parse.hpp"
#include "remote/script.hpp"

namespace lumelift {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view first_line = "lumelift-manifest 1";

constexpr std::string_view recall_script = R"sh(printf 'home\037%s\036' "$HOME"
manifest=$HOME/$1
shift
number=0
for path in "$@"; do
  shift
  case $path in
    '~') path=$HOME ;;
    '~/'*) path=$HOME/${path#'~/'} ;;
  esac
  if [ -e "$path" ] || [ -L "$path" ]; then
    set -- "$@" "$path"
    printf 'here\037%s\036' "$number"
  fi
  number=$((number + 1))
done
if [ $# -gt 0 ]; then printf 'stat\037%s\036' "$(/usr/bin/stat -f '%p %u %z %Fm %Fc %i' "$@" </dev/null)"; fi
if [ -f "$manifest" ] && [ ! -L "$manifest" ]; then printf 'manifest\037%s\036' "$(/usr/bin/head -c "$most" "$manifest")"; fi)sh";

constexpr std::string_view keep_script = R"sh(umask 077
folder=$HOME/$1
if [ -L "$folder" ]; then echo link; exit 0; fi
[ -d "$folder" ] || /bin/mkdir -p "$folder" || exit 1
/bin/cat > "$folder/.manifest.lumelift-part" && /bin/mv -f "$folder/.manifest.lumelift-part" "$folder/manifest" && echo done)sh";

/// A path as one word of visible characters.
std::string encoded(std::string_view path) {
  std::string word;
  for (const char letter : path) {
    const auto byte = static_cast<unsigned char>(letter);
    if (byte <= 0x20 || byte == 0x7f || letter == '%') {
      word += fmt::format("%{:02x}", byte);
    } else {
      word += letter;
    }
  }
  return word;
}

std::optional<std::string> decoded(std::string_view word) {
  std::string path;
  for (std::size_t i = 0; i < word.size(); ++i) {
    if (word[i] != '%') {
      path += word[i];
      continue;
    }
    unsigned byte = 0;
    if (i + 2 >= word.size()) {
      return std::nullopt;
    }
    const auto [end, fault] = std::from_chars(word.data() + i + 1, word.data() + i + 3, byte, 16);
    if (fault != std::errc{} || end != word.data() + i + 3) {
      return std::nullopt;
    }
    path += static_cast<char>(byte);
    i += 2;
  }
  return path;
}

std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  while (!line.empty()) {
    const auto blank = line.find(' ');
    words.emplace_back(line.substr(0, blank));
    line.remove_prefix(blank == std::string_view::npos ? line.size() : blank + 1);
  }
  return words;
}

template <class Number>
bool read_number(const std::string& word, Number& into, int base = 10) {
  const auto [end, fault] = std::from_chars(word.data(), word.data() + word.size(), into, base);
  return fault == std::errc{} && end == word.data() + word.size();
}

template <class Each>
void each_line(std::string_view text, Each each) {
  while (!text.empty()) {
    const auto end = text.find('\n');
    each(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
}

/// One line of the guest's stat.
bool take_stat(std::string_view line, PathSeen& seen, std::string& stamp) {
  const auto words = words_of(line);
  std::uint64_t size = 0;
  unsigned mode = 0;
  if (words.size() != 6 || !read_number(words[0], mode, 8) || !read_number(words[1], seen.owner) || !read_number(words[2], size)) {
    return false;
  }
  seen.kind = kind_of(mode);
  seen.mode = mode & 07777;
  if (seen.kind == PathKind::file) {
    seen.file = FileState{{}, seen.mode, size};
    stamp = fmt::format("{} {} {}", words[3], words[4], words[5]);
  }
  return true;
}

}  // namespace

Manifest Manifest::parse(std::string_view text) {
  Manifest manifest;
  bool known = false;
  each_line(text, [&](std::string_view line) {
    if (line == first_line) {
      known = true;
    }
    const auto words = words_of(line);
    Entry entry;
    if (!known || words.size() != 7 || !read_number(words[1], entry.size) || words[0].size() != 64 ||
        words[0].find_first_not_of("0123456789abcdef") != std::string::npos) {
      return;
    }
    const auto path = decoded(words[6]);
    if (!path) {
      return;
    }
    entry.sha256 = words[0];
    entry.stamp = fmt::format("{} {} {}", words[2], words[3], words[4]);
    entry.source = words[5];
    manifest.entries_[*path] = std::move(entry);
  });
  return manifest;
}

std::string Manifest::text() const {
  std::string text = fmt::format("{}\n", first_line);
  for (const auto& [path, entry] : entries_) {
    const auto line = fmt::format("{} {} {} {} {}\n", entry.sha256, entry.size, entry.stamp, entry.source, encoded(path));
    if (text.size() + line.size() < most_bytes) {
      text += line;
    }
  }
  return text;
}

const Manifest::Entry* Manifest::find(const std::string& path) const {
  const auto found = entries_.find(path);
  return found == entries_.end() ? nullptr : &found->second;
}

const Manifest::Entry* Manifest::find(const std::string& path, std::uint64_t size, const std::string& stamp) const {
  const auto* entry = find(path);
  return entry != nullptr && entry->size == size && entry->stamp == stamp ? entry : nullptr;
}

Recalled Guest::recall(const std::vector<std::string>& paths, const sys::Deadline& deadline) {
  std::vector<std::string> words{"set", "--", std::string(Manifest::folder) + "/manifest"};
  words.insert(words.end(), paths.begin(), paths.end());
  const auto answer = run_long_script(session_, "look at files in the guest",
                                      fmt::format("most={}\n{}\n{}", Manifest::most_bytes, quote(words), recall_script), deadline);
  const auto unreadable = [&] {
    return Error(ErrorKind::failed, "guest-unreadable", "cannot understand what the guest says of its files")
        .note("it said: " + excerpt(answer.body))
        .note("errors: " + excerpt(answer.err));
  };
  Recalled recalled;
  recalled.seen.resize(paths.size());
  recalled.stamps.resize(paths.size());
  std::vector<std::size_t> here;
  std::size_t described = 0;
  for (const auto& [key, value] : parse_records(answer.body)) {
    if (key == "home") {
      recalled.home = value;
    }
    if (key == "manifest") {
      recalled.manifest = Manifest::parse(value);
    }
    if (key == "here") {
      std::size_t number = 0;
      if (!read_number(std::string(value), number) || number >= paths.size()) {
        throw unreadable();
      }
      here.push_back(number);
    }
    if (key != "stat") {
      continue;
    }
    each_line(value, [&](std::string_view line) {
      if (described == here.size() || !take_stat(line, recalled.seen[here[described]], recalled.stamps[here[described]])) {
        throw unreadable();
      }
      ++described;
    });
  }
  if (described != here.size() || recalled.home.empty()) {
    throw unreadable();
  }
  for (const auto i : here) {
    const auto path = paths[i].starts_with("~/") ? recalled.home + paths[i].substr(1) : paths[i];
    auto& file = recalled.seen[i].file;
    if (!file) {
      continue;
    }
    if (const auto* entry = recalled.manifest.find(path, file->size, recalled.stamps[i])) {
      file->sha256 = entry->sha256;
    }
  }
  return recalled;
}

void Guest::keep(const Manifest& manifest) {
  const auto text = manifest.text();
  const auto answer =
      run_script(session_, "note what was copied", keep_script, {std::string(Manifest::folder)}, sys::Deadline::in(30s), {.input = text});
  if (answer.body == "done\n") {
    return;
  }
  throw Error(ErrorKind::failed, "guest-tool-failed", fmt::format("cannot write ~/{}/manifest in the guest", Manifest::folder))
      .note("the guest said: " + excerpt(answer.err));
}

}  // namespace lumelift
