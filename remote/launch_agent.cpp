#include "remote/launch_agent.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "host/sys/error.hpp"

namespace lumelift {
namespace {

Error invalid(std::string_view what, std::string_view reason) {
  return Error(ErrorKind::usage, "agent-invalid", fmt::format("the agent's {} {}", what, reason));
}

/// The length of the UTF-8 character at the front of `text`, or 0 when none that XML allows stands there.
std::size_t character(std::string_view text) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = at(0);
  if (first < 0x80) {
    return (first >= 0x20 && first != 0x7f) || first == '\t' || first == '\n' || first == '\r' ? 1 : 0;
  }
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) {
    return 0;
  }
  unsigned code = first & (0x7fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xc0) != 0x80) {
      return 0;
    }
    code = (code << 6) | (at(i) & 0x3f);
  }
  constexpr unsigned shortest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  const bool allowed = code >= shortest[length] && code <= 0x10ffff && !surrogate && code != 0xfffe && code != 0xffff;
  return allowed ? length : 0;
}

/// `value` as the text of an XML element. A bare carriage return would be read back as a newline.
std::string escaped(std::string_view what, std::string_view value) {
  std::string text;
  for (auto rest = value; !rest.empty();) {
    const auto length = character(rest);
    if (length == 0) {
      throw invalid(what, fmt::format("holds the byte 0x{:02x} at position {}, which no property list can carry",
                                      static_cast<unsigned char>(rest[0]), value.size() - rest.size()));
    }
    switch (rest[0]) {
      case '&':
        text += "&amp;";
        break;
      case '<':
        text += "&lt;";
        break;
      case '>':
        text += "&gt;";
        break;
      case '\r':
        text += "&#13;";
        break;
      default:
        text += rest.substr(0, length);
    }
    rest.remove_prefix(length);
  }
  return text;
}

std::string path(std::string_view what, std::string_view value) {
  if (!value.starts_with('/')) {
    throw invalid(what, fmt::format("must be an absolute path, not '{}'", value));
  }
  return escaped(what, value);
}

std::string label(std::string_view value) {
  constexpr std::string_view letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
  if (value.empty() || value.find_first_not_of(letters) != std::string_view::npos) {
    throw invalid("label", fmt::format("'{}' may hold letters, digits, '.', '_' and '-' only", value));
  }
  return std::string(value);
}

std::string arguments(const AgentSpec& spec) {
  if (spec.arguments.empty() || spec.arguments[0].empty()) {
    throw invalid("program", "is empty");
  }
  std::string lines = "\t\t<string>" + path("program", spec.arguments[0]) + "</string>";
  for (std::size_t i = 1; i < spec.arguments.size(); ++i) {
    lines += "\n\t\t<string>" + escaped(fmt::format("argument {}", i), spec.arguments[i]) + "</string>";
  }
  return lines;
}

std::string environment(const AgentSpec& spec) {
  std::map<std::string, std::string> sorted;
  for (const auto& [name, value] : spec.environment) {
    if (name.empty() || name.find('=') != std::string::npos) {
      throw invalid("variable", fmt::format("'{}' has no usable name", name));
    }
    if (!sorted.emplace(name, value).second) {
      throw invalid("variable", fmt::format("'{}' is given twice", name));
    }
  }
  std::string lines;
  for (const auto& [name, value] : sorted) {
    lines += fmt::format("{}\t\t<key>{}</key>\n\t\t<string>{}</string>", lines.empty() ? "" : "\n", escaped("variable's name", name),
                         escaped("variable " + name, value));
  }
  return lines;
}

constexpr std::string_view both_sessions =
    "\t<key>LimitLoadToSessionType</key>\n\t<array>\n\t\t<string>Aqua</string>\n\t\t<string>Background</string>\n\t</array>";

/// One pass, so that a value that looks like a key stays as it is. A line that holds nothing but an empty value goes.
std::string filled(std::string_view skeleton, const std::map<std::string, std::string, std::less<>>& values) {
  std::string text;
  std::size_t used = 0;
  while (!skeleton.empty()) {
    const auto end = std::min(skeleton.find('\n'), skeleton.size() - 1) + 1;
    auto line = skeleton.substr(0, end);
    skeleton.remove_prefix(end);
    const auto from = line.find('@');
    const auto to = from == std::string_view::npos ? from : line.find('@', from + 1);
    if (to == std::string_view::npos) {
      text += line;
      continue;
    }
    const auto found = values.find(line.substr(from + 1, to - from - 1));
    if (found == values.end()) {
      throw Error(ErrorKind::usage, "agent-invalid",
                  fmt::format("the agent skeleton names an unknown key: {}", line.substr(from, to - from + 1)));
    }
    ++used;
    if (found->second.empty() && from == line.find_first_not_of('\t') && to + 2 == line.size()) {
      continue;
    }
    text.append(line.substr(0, from)).append(found->second).append(line.substr(to + 1));
  }
  if (used != values.size()) {
    throw Error(ErrorKind::usage, "agent-invalid",
                fmt::format("the agent skeleton uses {} keys; {} are needed, each once", used, values.size()));
  }
  return text;
}

}  // namespace

std::string render_agent(std::string_view skeleton, const AgentSpec& spec) {
  return filled(skeleton, {{"LABEL", label(spec.label)},
                           {"ARGUMENTS", arguments(spec)},
                           {"ENVIRONMENT", environment(spec)},
                           {"WORKING_DIRECTORY", path("working directory", spec.working_directory)},
                           {"STDOUT_PATH", path("standard output path", spec.stdout_path)},
                           {"STDERR_PATH", path("standard error path", spec.stderr_path)},
                           {"KEEP_ALIVE", spec.keep_alive ? "<true/>" : "<false/>"},
                           {"SESSION_TYPES", std::string(spec.any_session ? both_sessions : "")}});
}

}  // namespace lumelift
