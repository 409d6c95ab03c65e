#include "remote/guest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "host/sys/error.hpp"
#include "remote/guest_parse.hpp"
#include "remote/script.hpp"

namespace lumelift {
namespace {

using namespace std::chrono_literals;

// Each tool is a process of its own in a guest that has several cores: all at once, records in any order.
constexpr std::string_view facts_script = R"sh(ask() { key=$1; shift; tell "$key" "$("$@" 2>/dev/null </dev/null)"; }
knows() { /bin/launchctl print "$2" >/dev/null 2>&1 </dev/null; tell "$1" $?; }
uid=$(/usr/bin/id -u)
printf 'uid\037%s\036user\037%s\036home\037%s\036shell\037%s\036' "$uid" "${USER:-$LOGNAME}" "$HOME" "$SHELL"
ask system /usr/sbin/sysctl kern.osproductversion kern.osversion hw.model machdep.cpu.brand_string kern.uuid hw.memsize kern.boottime &
ask now /bin/date +%s &
ask disk /bin/df -k "$HOME" &
ask sip /usr/bin/csrutil status &
knows gui "gui/$uid" &
knows background "user/$uid" &
if [ -x /usr/sbin/ioreg ]; then
  platform=$(/usr/sbin/ioreg -rd1 -c IOPlatformExpertDevice 2>/dev/null </dev/null)
  platform=${platform#*\"IOPlatformUUID\" = \"}
  tell platform "${platform%%\"*}" &
fi
wait)sh";

constexpr std::string_view release_script = R"sh(printf 'os\037%s\036' "$(/usr/bin/sw_vers -productVersion)"
printf 'build\037%s\036' "$(/usr/bin/sw_vers -buildVersion)")sh";

// Names never pass through a tool's output: paths are told by their number. Checksums run four at a time.
constexpr std::string_view look_script = R"sh(number=0 running=0
for path in "$@"; do
  shift
  if [ -e "$path" ] || [ -L "$path" ]; then
    set -- "$@" "$path"
    printf 'here %s\n' "$number"
  else
    printf 'absent %s\n' "$number"
  fi
  if [ -f "$path" ] && [ ! -L "$path" ]; then
    { sum=$(/usr/bin/shasum -a 256 < "$path"); printf 'sum %s %s\n' "$number" "${sum%% *}"; } &
    running=$((running + 1))
    if [ "$running" -eq 4 ]; then wait; running=0; fi
  fi
  number=$((number + 1))
done
if [ $# -gt 0 ]; then seen=$(/usr/bin/stat -f 'stat %p %u %z' "$@" </dev/null); fi
wait
if [ $# -gt 0 ]; then printf '%s\n' "$seen"; fi)sh";
constexpr std::size_t look_batch_bytes = 100'000;

// Three words for a folder: path, mode, umask; before them, the folders that must be no links. Stops at the first that cannot be made.
constexpr std::string_view make_folders_script = R"sh(count=$1 number=0
shift
while [ "$count" -gt 0 ]; do
  if [ -L "$1" ]; then printf '0 link %s\n' "$1"; exit 0; fi
  shift
  count=$((count - 1))
done
while [ $# -gt 0 ]; do
  if [ -L "$1" ]; then printf '%s link\n' "$number"; exit 0; fi
  if [ -d "$1" ]; then
    mode=$(/usr/bin/stat -f %Lp "$1" </dev/null)
    if [ "$mode" != "$2" ]; then printf '%s exists %s\n' "$number" "$mode"; exit 0; fi
  elif [ -e "$1" ]; then
    printf '%s kind\n' "$number"; exit 0
  else
    umask "$3"
    /bin/mkdir "$1" || { printf '%s refused\n' "$number"; exit 0; }
  fi
  shift 3
  number=$((number + 1))
done
echo done)sh";

constexpr std::string_view remove_folder_script = R"sh(path=$1 how=$2
shift 2
for own in "$@" "$path"; do if [ -L "$own" ]; then echo link; exit 0; fi; done
if [ ! -e "$path" ]; then echo done; exit 0; fi
if [ ! -d "$path" ]; then echo kind; exit 0; fi
if [ "$how" = all ]; then
  /bin/rm -rf "$path" && echo done
else
  /bin/rmdir "$path" && echo done
fi)sh";

constexpr std::string_view remove_file_script = R"sh(path=$1
shift
for own in "$@"; do if [ -L "$own" ]; then echo link; exit 0; fi; done
if [ -d "$path" ] && [ ! -L "$path" ]; then echo kind; exit 0; fi
/bin/rm -f "$path" && echo done)sh";

// The first word says whether those that differ are made; they are counted at the end.
constexpr std::string_view make_links_script = R"sh(make=$1 number=0 differ=0
shift
while [ $# -gt 0 ]; do
  if [ ! -L "$1" ] && [ -e "$1" ]; then printf '%s kind\n' "$number"; exit 0; fi
  if [ ! -L "$1" ] || [ "$(/usr/bin/stat -f %Y "$1")" != "$2" ]; then
    differ=$((differ + 1))
    if [ "$make" = yes ]; then
      /bin/rm -f "$1"
      /bin/ln -s "$2" "$1" || { printf '%s refused\n' "$number"; exit 0; }
    fi
  fi
  shift 2
  number=$((number + 1))
done
printf 'done %s\n' "$differ")sh";

// Names go through no tool. The recursion has no variable of its own but its words, which a loop has read by then.
constexpr std::string_view walk_script = R"sh(walk() {
  for entry in "$1"/* "$1"/.[!.]* "$1"/..?*; do
    if [ -L "$entry" ]; then
      printf 'link\037%s\036target\037%s\036' "$entry" "$(/usr/bin/stat -f %Y "$entry" </dev/null)"
    elif [ -d "$entry" ]; then
      printf 'folder\037%s\036' "$entry"
      walk "$entry"
    elif [ -f "$entry" ]; then
      printf 'file\037%s\036' "$entry"
    elif [ -e "$entry" ]; then
      printf 'other\037%s\036' "$entry"
    fi
  done
}
walk "$1")sh";

// What would make a stock process anything but stock, or an injected one carry more than it was given.
constexpr std::string_view scrub =
    "unset DYLD_INSERT_LIBRARIES DYLD_LIBRARY_PATH DYLD_FRAMEWORK_PATH DYLD_FALLBACK_LIBRARY_PATH "
    "DYLD_FALLBACK_FRAMEWORK_PATH DYLD_VERSIONED_LIBRARY_PATH DYLD_VERSIONED_FRAMEWORK_PATH DYLD_FORCE_FLAT_NAMESPACE "
    "LUME_METAL_APPLE_FAMILY_MAX LUME_METAL_MAX_THREADGROUP_MEMORY LUME_METAL_RECOMMENDED_WORKING_SET_SIZE LUMELIFT_ONLY "
    "LUMELIFT_INHERIT LUMELIFT_RECEIPT LUMELIFT_TRACE LUMELIFT_VERBOSE; ";

sys::Deadline shortly() {
  return sys::Deadline::in(30s);
}

std::vector<std::string> with_own_folders(std::vector<std::string> words, const std::string& path) {
  const auto own = own_folders_above(path);
  words.insert(words.end(), own.begin(), own.end());
  return words;
}

Error path_error(std::string_view verb, const std::string& path, const ScriptAnswer& answer) {
  const auto& body = answer.body;
  if (body.starts_with("link")) {
    return Error(ErrorKind::failed, "guest-path-unsafe",
                 fmt::format("cannot {} {} in the guest: a symbolic link stands there or above it", verb, path));
  }
  if (body == "kind\n") {
    return Error(ErrorKind::failed, "guest-path-unsafe",
                 fmt::format("cannot {} {} in the guest: what stands there is of another kind", verb, path));
  }
  if (body.starts_with("exists ")) {
    return Error(ErrorKind::failed, "guest-path-unsafe",
                 fmt::format("cannot {} {} in the guest: it exists with mode {}", verb, path, excerpt(body.substr(7))));
  }
  const bool read_only = answer.err.find("Read-only") != std::string::npos || answer.err.find("Permission denied") != std::string::npos;
  const bool full = answer.err.find("No space left") != std::string::npos;
  const auto* id = full ? "guest-disk-full" : read_only ? "guest-read-only" : "guest-tool-failed";
  return Error(ErrorKind::failed, id, fmt::format("cannot {} {} in the guest", verb, path)).note("the guest said: " + excerpt(answer.err));
}

}  // namespace

std::string GuestFacts::domain() const {
  return fmt::format("{}/{}", gui_domain ? "gui" : "user", uid);
}

GuestFacts Guest::facts(const sys::Deadline& deadline) {
  const auto script = std::string(tell_function) + std::string(facts_script);
  auto facts = parse_facts(run_script(session_, "ask the guest what it is", script, {}, deadline).body);
  if (facts.os.empty() || facts.build.empty()) {
    // Older systems do not tell their release through sysctl.
    for (const auto& [key, value] :
         parse_records(run_script(session_, "ask the guest for its release", release_script, {}, deadline).body)) {
      (key == "os" ? facts.os : facts.build) = value;
    }
  }
  return facts;
}

std::vector<PathSeen> Guest::look(const std::vector<std::string>& paths, const sys::Deadline& deadline) {
  std::vector<PathSeen> seen;
  for (std::size_t first = 0; first < paths.size();) {
    std::string words = "set --";
    auto last = first;
    for (; last < paths.size() && (last == first || words.size() < look_batch_bytes); ++last) {
      require_plain_path(paths[last]);
      words += ' ' + quote(paths[last]);
    }
    const auto answer = run_long_script(session_, "look at files in the guest", words + "\n" + std::string(look_script), deadline);
    auto batch = parse_look(answer.body, last - first);
    if (!batch) {
      throw Error(ErrorKind::failed, "guest-unreadable", "cannot understand what the guest says of its files")
          .note("it said: " + excerpt(answer.body))
          .note("errors: " + excerpt(answer.err));
    }
    std::move(batch->begin(), batch->end(), std::back_inserter(seen));
    first = last;
  }
  return seen;
}

void Guest::make_folder(const std::string& path, unsigned mode) {
  make_folders({{path, mode}});
}

void Guest::make_folders(const std::vector<NewFolder>& folders) {
  std::vector<std::string> above, words;
  for (const auto& folder : folders) {
    require_plain_path(folder.path);
    words.insert(words.end(), {folder.path, fmt::format("{:o}", folder.mode), fmt::format("{:04o}", ~folder.mode & 0777)});
    for (const auto& own : own_folders_above(folder.path)) {
      if (std::find(above.begin(), above.end(), own) == above.end()) {
        above.push_back(own);
      }
    }
  }
  above.insert(above.begin(), std::to_string(above.size()));
  words.insert(words.begin(), above.begin(), above.end());
  auto answer = run_script(session_, "make folders in the guest", make_folders_script, words, shortly());
  if (answer.body == "done\n") {
    return;
  }
  std::size_t number = 0;
  const auto [end, fault] = std::from_chars(answer.body.data(), answer.body.data() + answer.body.size(), number);
  if (fault == std::errc{}) {
    answer.body.erase(0, static_cast<std::size_t>(end - answer.body.data()) + 1);
  }
  throw path_error("make", folders[std::min(number, folders.size() - 1)].path, answer);
}

void Guest::remove_folder(const std::string& path, Remove how) {
  require_plain_path(path);
  if (how == Remove::with_content && std::count(path.begin(), path.end(), '/') < 3) {
    throw Error(ErrorKind::usage, "guest-path-unsafe", fmt::format("'{}' is too near the root to be removed whole", path));
  }
  const auto words = with_own_folders({path, how == Remove::with_content ? "all" : "empty"}, path);
  const auto answer = run_script(session_, "remove " + path, remove_folder_script, words, sys::Deadline::in(120s));
  if (answer.body == "done\n") {
    return;
  }
  if (answer.err.find("not empty") != std::string::npos) {
    throw Error(ErrorKind::incomplete, "guest-folder-not-empty", fmt::format("{} in the guest holds other files and was left alone", path));
  }
  throw path_error("remove", path, answer);
}

std::size_t Guest::make_links(const std::vector<NewLink>& links, bool dry_run) {
  std::vector<std::string> words{dry_run ? "no" : "yes"};
  for (const auto& link : links) {
    require_plain_path(link.path);
    words.insert(words.end(), {link.path, link.target});
  }
  auto answer = run_script(session_, "make links in the guest", make_links_script, words, shortly());
  std::size_t number = 0;
  const std::size_t skipped = answer.body.starts_with("done ") ? 5 : 0;
  const auto [end, fault] = std::from_chars(answer.body.data() + skipped, answer.body.data() + answer.body.size(), number);
  if (skipped > 0 && fault == std::errc{}) {
    return number;
  }
  if (fault == std::errc{}) {
    answer.body.erase(0, static_cast<std::size_t>(end - answer.body.data()) + 1);
  }
  throw path_error("make the link", links[std::min(number, links.size() - 1)].path, answer);
}

void Guest::set_mode(const std::string& path, unsigned mode) {
  require_plain_path(path);
  const auto answer = run_script(session_, "set a mode in the guest", "/bin/chmod \"$1\" \"$2\" && echo done",
                                 {fmt::format("{:o}", mode), path}, shortly());
  if (answer.body != "done\n") {
    throw path_error("set the mode of", path, answer);
  }
}

std::vector<Guest::Entry> Guest::walk(const std::string& folder, const sys::Deadline& deadline) {
  require_plain_path(folder);
  const auto answer = run_script(session_, "walk " + folder, walk_script, {folder}, deadline, {.output_cap = 64u << 20});
  std::vector<Entry> entries;
  for (auto& [key, value] : parse_records(answer.body)) {
    if (key == "target" && !entries.empty()) {
      entries.back().target = std::move(value);
    } else {
      const auto kind = key == "file"     ? PathKind::file
                        : key == "folder" ? PathKind::folder
                        : key == "link"   ? PathKind::link
                                          : PathKind::other;
      entries.push_back({kind, std::move(value), {}});
    }
  }
  return entries;
}

void Guest::remove_file(const std::string& path) {
  require_plain_path(path);
  const auto answer = run_script(session_, "remove " + path, remove_file_script, with_own_folders({path}, path), shortly());
  if (answer.body != "done\n") {
    throw path_error("remove", path, answer);
  }
}

bool Guest::quarantined(const std::string& path) {
  require_plain_path(path);
  const auto answer =
      run_script(session_, "look for a quarantine mark", "exec /usr/bin/xattr -p com.apple.quarantine \"$1\"", {path}, shortly());
  if (answer.ok()) {
    return true;
  }
  if (answer.err.find("No such xattr") != std::string::npos) {
    return false;
  }
  throw Error(ErrorKind::failed, "guest-tool-failed", fmt::format("cannot read the attributes of {} in the guest", path))
      .note("the guest said: " + excerpt(answer.err));
}

ExecResult Guest::run_program(const std::vector<std::string>& argv, const std::vector<std::pair<std::string, std::string>>& environment,
                              const sys::Deadline& deadline, const ExecOptions& options) {
  if (argv.empty() || argv[0].empty() || argv[0].find('=') != std::string::npos || argv[0].front() == '-') {
    throw Error(
        ErrorKind::usage, "program-unusable",
        fmt::format("'{}' cannot be started through env: it is empty, begins with '-' or holds '='", argv.empty() ? "" : excerpt(argv[0])));
  }
  std::vector<std::string> words{"/usr/bin/env"};
  for (const auto& [name, value] : environment) {
    if (name.empty() || name.front() == '-' || name.find_first_of("=\n") != std::string::npos) {
      throw Error(ErrorKind::usage, "program-unusable", fmt::format("'{}' cannot be a variable's name", excerpt(name)));
    }
    words.push_back(name + "=" + value);
  }
  words.insert(words.end(), argv.begin(), argv.end());
  return session_.exec(std::string(scrub) + "exec " + quote(words), deadline, options);
}

std::optional<std::string> Guest::shut_down(const std::optional<sys::Secret>& password, std::string& why) {
  const auto gone = [&](std::string_view command, std::string_view input) {
    try {
      const auto result = session_.exec(command, sys::Deadline::in(20s), {.input = input});
      // A guest that is going down may end the command, or the connection, before its status.
      if (result.ok() || !result.status) {
        return true;
      }
      if (!why.empty()) {
        why += "; ";
      }
      why += excerpt(result.err.empty() ? result.ending() : result.err);
      return false;
    } catch (const Error& error) {
      if (error.id() == "guest-lost") {
        return true;
      }
      throw;
    }
  };
  if (gone("/bin/sync; /usr/bin/sudo -n /sbin/shutdown -h now", {})) {
    return "sudo shutdown";
  }
  if (password) {
    const sys::Secret line(password->reveal() + "\n");
    if (gone("/usr/bin/sudo -S -p '' /sbin/shutdown -h now", line.reveal())) {
      return "sudo shutdown with the password";
    }
  }
  if (gone("/usr/bin/osascript -e 'tell application \"System Events\" to shut down'", {})) {
    return "System Events";
  }
  return std::nullopt;
}

}  // namespace lumelift
