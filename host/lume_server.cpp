#include "host/lume_server.hpp"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <optional>

#include "host/lume_text.hpp"
#include "host/sys/error.hpp"
#include "host/sys/process.hpp"

namespace lumelift {
namespace {

using sys::Deadline;
using sys::Milliseconds;

constexpr int usual_port = 7777;
// The server waits for the VM as `lume stop` does: up to 12 s.
constexpr Milliseconds answer_limit{25'000}, look_limit{10'000};
constexpr int curl_no_connection = 7;

std::optional<int> port_of(std::string_view text) {
  int port = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (fault != std::errc{} || end != text.data() + text.size() || port < 1 || port > 65535) {
    return std::nullopt;
  }
  return port;
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (!line.empty()) {
    const auto end = std::min(line.find(' '), line.size());
    if (end > 0) {
      words.push_back(line.substr(0, end));
    }
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return words;
}

/// A name as one part of a URL's path.
std::string escaped(std::string_view name) {
  std::string out;
  for (const unsigned char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
    out += plain ? std::string(1, static_cast<char>(c)) : fmt::format("%{:02X}", c);
  }
  return out;
}

enum class Answer { stopped, not_here };

Answer ask_to_stop(int port, const std::string& name, const Deadline& deadline) {
  const std::string url = fmt::format("http://127.0.0.1:{}/lume/vms/{}/stop", port, escaped(name));
  const std::vector<std::string> argv{"curl",      "--silent", "--show-error", "--noproxy",      "*",
                                      "--request", "POST",     "--write-out",  "\n%{http_code}", url};
  const auto outcome = sys::run({.argv = argv}, deadline.at_most(answer_limit));
  if (outcome.status == curl_no_connection) {
    return Answer::not_here;
  }
  const auto line = outcome.out.rfind('\n');
  const std::string code = line == std::string::npos ? "" : outcome.out.substr(line + 1);
  const std::string body = outcome.out.substr(0, line);
  if (outcome.ok() && code == "200") {
    return Answer::stopped;
  }
  // A server without this VM; it is held by a process of its own then.
  if (outcome.ok() && (code == "404" || lume_text::says_not_running(body) || lume_text::says_not_found(body))) {
    return Answer::not_here;
  }
  throw Error(ErrorKind::failed, "vm-stop-failed", fmt::format("the lume server on port {} did not stop VM '{}'", port, name))
      .note(fmt::format("`{}` ended with {}, HTTP status {}: {}", sys::shown(argv), outcome.ending(), code.empty() ? "none" : code,
                        lume_text::quoted(outcome.ok() ? body : outcome.err)))
      .note("`lume stop` was not used: it would end the server and every VM in it")
      .fix("stop the VM where it was started, then try again");
}

}  // namespace

std::vector<int> server_ports_in(std::string_view command_lines) {
  std::vector<int> ports;
  while (!command_lines.empty()) {
    const auto end = std::min(command_lines.find('\n'), command_lines.size());
    const auto words = words_of(command_lines.substr(0, end));
    command_lines.remove_prefix(std::min(end + 1, command_lines.size()));
    for (std::size_t at = 0; at + 1 < words.size(); ++at) {
      if (std::filesystem::path(words[at]).filename() != "lume" || words[at + 1] != "serve") {
        continue;
      }
      int port = usual_port;
      for (std::size_t option = at + 2; option < words.size(); ++option) {
        const auto word = words[option];
        const auto value = word == "--port" && option + 1 < words.size() ? words[option + 1]
                           : word.starts_with("--port=")                 ? word.substr(7)
                                                                         : std::string_view{};
        port = port_of(value).value_or(port);
      }
      ports.push_back(port);
      break;
    }
  }
  return ports;
}

bool stop_in_server(const std::string& name, const Deadline& deadline) {
  // Without -a: processes of this user only. Another user's server may have a VM of the same name.
  const auto listed = sys::run({.argv = {"ps", "-xo", "args="}}, deadline.at_most(look_limit));
  if (!listed.ok()) {
    throw Error(ErrorKind::failed, "vm-stop-failed",
                fmt::format("cannot stop VM '{}': `ps` does not tell whether a lume server holds it", name))
        .note(fmt::format("it ended with {}", listed.ending()));
  }
  for (const int port : server_ports_in(listed.out)) {
    if (ask_to_stop(port, name, deadline) == Answer::stopped) {
      return true;
    }
  }
  return false;
}

}  // namespace lumelift
