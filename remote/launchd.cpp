#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "host/sys/error.hpp"
#include "remote/guest.hpp"
#include "remote/guest_parse.hpp"
#include "remote/script.hpp"

namespace lumelift {
namespace {

using namespace std::chrono_literals;

// launchctl's own numbers; the same number has several causes, so only looking decides.
constexpr int no_such_process = 3, input_output = 5, in_progress = 36, already = 37, bad_plist = 109, no_domain = 112, no_service = 113,
              is_disabled = 119, bad_ownership = 122, wrong_domain = 125;

// Two questions at once; the short answer is told while the long one is still being caught, so they cannot mix.
constexpr std::string_view ask_script = R"sh(domain=$1 label=$2
shift 2
if [ $# -gt 0 ]; then
  text=$(/bin/launchctl "$@" 2>&1 </dev/null)
  printf 'verb\037%s\037%s\036' $? "$text"
fi
{
  text=$(/bin/launchctl print-disabled "$domain" 2>/dev/null </dev/null)
  case $text in *"\"$label\" => disabled"* | *"\"$label\" => true"*) printf 'disabled\0371\036' ;; esac
} &
text=$(/bin/launchctl print "$domain/$label" 2>&1 </dev/null)
status=$?
known=0
if [ "$status" -ne 0 ]; then /bin/launchctl print "$domain" >/dev/null 2>&1 </dev/null; known=$?; fi
wait
printf 'job\037%s\037%s\036domain\037%s\037\036' "$status" "$text" "$known")sh";

// Around the questions: the third word is a file to be told after them.
constexpr std::string_view file_before = "file=$3; set -- \"$1\" \"$2\"\n";
constexpr std::string_view file_after = R"sh(
if [ -f "$file" ] && [ "$(/usr/bin/wc -c < "$file")" -le 65536 ]; then printf 'file\037%s\036' "$(/bin/cat "$file")"; fi)sh";

// Beside the questions: the property list on standard input is checked.
constexpr std::string_view lint_before = R"sh(exec 3<&0
{ text=$(/usr/bin/plutil -lint - 2>&1 <&3); tell lint "$?$(printf '\037')$text"; } &
)sh";

struct Said {
  int status = 0;
  std::string text;
};

/// What launchd said to a verb, and what was seen right after it.
struct Look {
  std::optional<Said> verb;
  Said job;
  JobText now;  ///< `loaded` only when launchd knows the label
  bool domain_known = false;
  std::optional<std::string> file;
  std::optional<Said> lint;
};

/// Nothing when it does not begin with a number.
std::optional<Said> said(std::string_view value) {
  const auto middle = value.find('\037');
  const auto number = value.substr(0, middle);
  Said answer;
  if (const auto [last, error] = std::from_chars(number.data(), number.data() + number.size(), answer.status);
      error != std::errc{} || last != number.data() + number.size()) {
    return std::nullopt;
  }
  if (middle != std::string_view::npos) {
    answer.text = value.substr(middle + 1);
  }
  return answer;
}

/// Has its own time: the caller's deadline ends its waiting, not the last look that explains why it waited in vain.
Look ask(Session& session, const std::string& domain, const std::string& label, std::vector<std::string> verb = {},
         const std::string& file = {}, std::string_view plist = {}) {
  std::vector<std::string> arguments{domain, label};
  arguments.insert(arguments.end(), verb.begin(), verb.end());
  std::string script(ask_script);
  if (!file.empty()) {
    arguments.push_back(file);
    script = std::string(file_before) + script + std::string(file_after);
  }
  if (!plist.empty()) {
    script.insert(0, std::string(tell_function) + std::string(lint_before));
  }
  const auto answer = run_script(session, "ask launchd about " + label, script, arguments, sys::Deadline::in(30s), {.input = plist});
  Look look;
  Said of_domain;
  bool complete = false;
  bool readable = true;
  bool disabled = false;
  const auto keep = [&](std::string_view value, auto& place) {
    const auto one = said(value);
    readable = readable && one;
    place = one.value_or(Said{});
  };
  for (const auto& [key, value] : parse_records(answer.body)) {
    if (key == "verb") {
      keep(value, look.verb);
    }
    if (key == "job") {
      keep(value, look.job);
    }
    if (key == "disabled") {
      disabled = true;
    }
    if (key == "file") {
      look.file = value;
    }
    if (key == "lint") {
      keep(unflattened(value), look.lint);
    }
    if (key == "domain") {
      keep(value, of_domain);
      look.domain_known = of_domain.status == 0;
      complete = true;
    }
  }
  if (!complete || !readable || (!verb.empty() && !look.verb)) {
    throw Error(ErrorKind::failed, "guest-unreadable", "cannot understand what the guest's launchctl says of " + label)
        .note("it said: " + excerpt(answer.body));
  }
  if (look.job.status == 0) {
    look.now = parse_job(look.job.text);
  }
  look.now.seen.disabled = disabled;
  return look;
}

Error failed(const char* id, const std::string& text, const Look& look) {
  Error error(ErrorKind::failed, id, text);
  if (look.verb) {
    error.note(fmt::format("launchctl ended with {}: {}", look.verb->status, excerpt(look.verb->text)));
  }
  return error;
}

Error bad_list(const std::string& what, const std::string& words) {
  return Error(ErrorKind::failed, "agent-plist-refused", what + " is not valid").note("plutil said: " + excerpt(words));
}

AgentSeen seen_in(const Look& look, const std::string& label) {
  const int status = look.job.status;
  const bool answered = status == 0 || status == no_service || !look.domain_known;
  if (!answered) {
    throw Error(ErrorKind::failed, "guest-tool-failed", fmt::format("launchctl cannot say whether {} is loaded", label))
        .note(fmt::format("it ended with {}: {}", status, excerpt(look.job.text)));
  }
  return look.now.seen;
}

/// The Error for a bootstrap that loaded nothing, or nothing when it may be tried once more.
std::optional<Error> refusal(const Look& look, const std::string& domain, const std::string& label, const std::string& plist) {
  const int status = look.verb->status;
  const auto& text = look.verb->text;
  if (status == is_disabled || look.now.seen.disabled) {
    return failed("agent-disabled", fmt::format("{} is disabled in {}: somebody switched it off", label, domain), look)
        .fix(fmt::format("in the guest: launchctl enable {}/{}", domain, label));
  }
  if (!look.domain_known || status == wrong_domain || status == no_domain) {
    return failed("agent-domain-missing", fmt::format("the guest has no launchd domain {}", domain), look)
        .fix(domain.starts_with("gui/") ? "log in at the guest's screen, or use the domain user/UID" : "log in to the guest");
  }
  if (status == bad_ownership || text.find("bad ownership") != std::string::npos) {
    return failed("agent-plist-refused", fmt::format("launchd refuses {}: owner or mode is wrong", plist), look)
        .fix("the file must belong to the user and be writable by nobody else, and so must its folder");
  }
  if (status == bad_plist) {
    return failed("agent-plist-refused", fmt::format("launchd refuses {}", plist), look);
  }
  return std::nullopt;
}

}  // namespace

AgentSeen Guest::agent(const std::string& domain, const std::string& label) {
  return agent_and_file(domain, label, {}).first;
}

std::pair<AgentSeen, std::optional<std::string>> Guest::agent_and_file(const std::string& domain, const std::string& label,
                                                                       const std::string& path) {
  if (!path.empty()) {
    require_plain_path(path);
  }
  const auto look = ask(session_, domain, label, {}, path);
  return {seen_in(look, label), look.file};
}

AgentSeen Guest::lint_and_agent(std::string_view plist, const std::string& domain, const std::string& label) {
  const auto look = ask(session_, domain, label, {}, {}, plist);
  if (!look.lint || look.lint->status != 0) {
    throw bad_list("the agent's property list", look.lint ? look.lint->text : "nothing");
  }
  return seen_in(look, label);
}

AgentGlimpse Guest::bootstrap(const std::string& domain, const std::string& label, const std::string& plist,
                              const sys::Deadline& deadline) {
  require_plain_path(plist);
  constexpr int most_tries = 3;
  int tries = 0;
  std::optional<Said> verb;
  auto look_until = deadline;
  for (;;) {
    // A number that speaks for work in progress is answered by looking; any other by another try.
    const bool wait_only = verb && (verb->status == 0 || verb->status == already || verb->status == in_progress);
    auto look = ask(session_, domain, label, wait_only ? std::vector<std::string>{} : std::vector<std::string>{"bootstrap", domain, plist});
    if (look.verb) {
      verb = look.verb;
      ++tries;
      look_until = deadline.at_most(10s);
    }
    look.verb = verb;
    const auto& seen = look.now.seen;
    if (seen.loaded && !look.now.draining()) {
      if (seen.path != plist) {
        throw failed("agent-still-loaded", fmt::format("{} is loaded from another file: {}", label, excerpt(seen.path)), look)
            .fix(fmt::format("in the guest: launchctl bootout {}/{}", domain, label));
      }
      if (!seen.pid && seen.last_exit == 78) {
        throw failed("agent-path-unopenable", fmt::format("launchd could not open a path in {} ({})", plist, seen.last_exit_text), look)
            .fix("check that program, working folder and log folders exist and are not on a share");
      }
      if (seen.pid || seen.last_exit || !seen.last_exit_text.empty() || look_until.expired()) {
        return {seen, {}};
      }
      look_until = look_until.at_most(3s);
    } else if (!seen.loaded) {
      if (auto error = refusal(look, domain, label, plist)) {
        throw *error;
      }
      if (verb->status == input_output) {
        const auto answer = run_script(session_, "check " + plist, "exec /usr/bin/plutil -lint \"$1\" </dev/null", {plist}, deadline);
        if (!answer.ok()) {
          throw bad_list(plist, answer.body + answer.err);
        }
      }
      if ((!wait_only && tries >= most_tries) || (wait_only && look_until.expired())) {
        throw failed("agent-not-loaded", fmt::format("launchd took {} and yet does not know {} in {}", plist, label, domain), look)
            .fix("see the guest's log: log show --last 2m --predicate 'process == \"launchd\"'");
      }
    }
    if (deadline.expired()) {
      throw failed("agent-not-loaded", fmt::format("{} did not load in time", label), look);
    }
    sys::pause(wait_only || seen.loaded ? 100ms : 400ms, deadline);
  }
}

void Guest::bootout(const std::string& domain, const std::string& label, const sys::Deadline& deadline) {
  auto look = ask(session_, domain, label, {"bootout", domain + "/" + label});
  const auto verb = look.verb;
  while (look.now.seen.loaded) {
    if (deadline.expired()) {
      look.verb = verb;
      throw failed("agent-still-loaded", fmt::format("{} was told to go and is still loaded in {}", label, domain), look)
          .note(look.now.seen.pid ? fmt::format("its process {} has not ended", *look.now.seen.pid) : "it has no process");
    }
    sys::pause(100ms, deadline);
    look = ask(session_, domain, label);
  }
  const bool gone = look.job.status == no_service || look.job.status == no_such_process || !look.domain_known;
  if (!gone) {
    throw Error(ErrorKind::failed, "guest-tool-failed", fmt::format("launchctl cannot say whether {} is gone", label))
        .note(fmt::format("it ended with {}: {}", look.job.status, excerpt(look.job.text)));
  }
}

void Guest::enable(const std::string& domain, const std::string& label) {
  const auto look = ask(session_, domain, label, {"enable", domain + "/" + label});
  if (look.verb->status != 0 || look.now.seen.disabled) {
    throw failed(look.domain_known ? "guest-tool-failed" : "agent-domain-missing", fmt::format("cannot enable {} in {}", label, domain),
                 look);
  }
}

void Guest::disable(const std::string& domain, const std::string& label) {
  const auto look = ask(session_, domain, label, {"disable", domain + "/" + label});
  if (look.verb->status != 0 || !look.now.seen.disabled) {
    throw failed(look.domain_known ? "guest-tool-failed" : "agent-domain-missing", fmt::format("cannot disable {} in {}", label, domain),
                 look);
  }
}

}  // namespace lumelift
