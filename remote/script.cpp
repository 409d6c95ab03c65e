#include "remote/script.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "host/sys/error.hpp"
#include "remote/guest.hpp"

namespace lumelift {
namespace {

constexpr std::string_view begin_mark = "\nlumelift-begin\n";
constexpr std::string_view end_mark = "\nlumelift-end ";

}  // namespace

std::string framed(std::string_view script) {
  return fmt::format("LC_ALL=C; export LC_ALL; printf '\\nlumelift-begin\\n'\n(\n{}\n)\nprintf '\\nlumelift-end %s\\n' $?\n", script);
}

std::string script_command(std::string_view script, const std::vector<std::string>& arguments) {
  std::vector<std::string> words{"/bin/sh", "-c", framed(script), "lumelift"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return quote(words);
}

std::optional<ScriptAnswer> unframe(std::string_view out) {
  const auto begin = out.find(begin_mark);
  const auto end = out.rfind(end_mark);
  if (begin == std::string_view::npos || end == std::string_view::npos) {
    return std::nullopt;
  }
  // The end mark must lie behind the whole begin mark.
  const auto from = begin + begin_mark.size();
  if (end < from) {
    return std::nullopt;
  }
  ScriptAnswer answer;
  answer.body = out.substr(from, end - from);
  auto number = out.substr(end + end_mark.size());
  number = number.substr(0, number.find('\n'));
  const auto [last, error] = std::from_chars(number.data(), number.data() + number.size(), answer.status);
  if (error != std::errc{} || last != number.data() + number.size()) {
    return std::nullopt;
  }
  return answer;
}

ScriptAnswer script_answer(std::string_view what, const ExecResult& result) {
  if (auto answer = unframe(result.out)) {
    answer->err = result.err;
    return *answer;
  }
  if (!result.status && result.signal.empty()) {
    throw Error(ErrorKind::failed, "guest-lost", fmt::format("cannot {}: the connection ended before the answer", what))
        .fix("see whether the VM still runs, then try again");
  }
  Error error(ErrorKind::failed, "guest-unreadable",
              fmt::format("cannot {}: the guest's shell gave no usable answer ({})", what, result.ending()));
  if (result.truncated) {
    error.note("its output was longer than is read");
  }
  if (!result.out.empty()) {
    error.note("it printed: " + excerpt(result.out));
  }
  if (!result.err.empty()) {
    error.note("errors: " + excerpt(result.err));
  }
  throw std::move(error).fix("run a simple command over ssh in the guest: its start files may end the shell");
}

ScriptAnswer run_script(Session& session, std::string_view what, std::string_view script, const std::vector<std::string>& arguments,
                        const sys::Deadline& deadline, const ExecOptions& options) {
  return script_answer(what, session.exec(script_command(script, arguments), deadline, options));
}

ScriptAnswer run_long_script(Session& session, std::string_view what, std::string_view script, const sys::Deadline& deadline) {
  const auto text = framed(script);
  return script_answer(what, session.exec("'/bin/sh' '-s'", deadline, {.input = text}));
}

std::string unflattened(std::string_view text) {
  std::string lines(text);
  std::replace(lines.begin(), lines.end(), '\035', '\n');
  return lines;
}

void require_plain_path(const std::string& path) {
  bool plain = path.size() > 1 && path.front() == '/' && path.back() != '/' && path.find('\0') == std::string::npos;
  for (std::size_t start = 1; plain && start <= path.size();) {
    const auto end = std::min(path.find('/', start), path.size());
    const auto part = std::string_view(path).substr(start, end - start);
    plain = !part.empty() && part != "." && part != "..";
    start = end + 1;
  }
  if (!plain) {
    throw Error(ErrorKind::usage, "guest-path-unsafe", fmt::format("'{}' is not a plain absolute path in the guest", excerpt(path)));
  }
}

std::vector<std::string> own_folders_above(const std::string& path) {
  constexpr std::string_view ours = "/.local/share/lumelift";
  std::vector<std::string> folders;
  const auto place = path.find(std::string(ours) + "/");
  if (place == std::string::npos) {
    return folders;
  }
  for (auto end = place + ours.size(); end != std::string::npos; end = path.find('/', end + 1)) {
    folders.push_back(path.substr(0, end));
  }
  return folders;
}

}  // namespace lumelift
