// Reads just enough shell to see what a small wrapper script ends with.
#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "cli/launch_chain.hpp"

namespace lumelift {

namespace {

using Variables = std::map<std::string, std::string, std::less<>>;

std::string parent(std::string_view path) {
  const auto slash = path.rfind('/');
  return slash == path.npos ? "." : std::string(path.substr(0, slash));
}

bool is_name(char c) {
  return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/// Expands one line into words. Any construct that it does not know makes the whole line unknown.
class Line {
 public:
  Line(std::string_view text, const Variables& variables, const std::string& script)
      : text_(text), variables_(variables), script_(script) {}

  std::optional<std::vector<std::string>> words() {
    std::vector<std::string> out;
    for (;;) {
      while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) {
        ++at_;
      }
      if (at_ == text_.size() || text_[at_] == '#') {
        return out;
      }
      std::string word;
      if (!read_word(word)) {
        return std::nullopt;
      }
      out.push_back(std::move(word));
    }
  }

 private:
  bool read_word(std::string& word) {
    bool quoted = false;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (!quoted && (c == ' ' || c == '\t')) {
        return true;
      }
      ++at_;
      if (c == '"') {
        quoted = !quoted;
      } else if (c == '\'' && !quoted) {
        const auto end = text_.find('\'', at_);
        if (end == text_.npos) {
          return false;
        }
        word += text_.substr(at_, end - at_);
        at_ = end + 1;
      } else if (c == '\\' && at_ < text_.size()) {
        word += text_[at_++];
      } else if (c == '$') {
        if (!read_dollar(word)) {
          return false;
        }
      } else if (c == '`') {
        const auto end = text_.find('`', at_);
        if (end == text_.npos || !substitute(text_.substr(at_, end - at_), word)) {
          return false;
        }
        at_ = end + 1;
      } else if (!quoted && std::string_view("|&;<>()*?[").find(c) != std::string_view::npos) {
        return false;
      } else {
        word += c;
      }
    }
    return !quoted;
  }

  bool read_dollar(std::string& word) {
    if (at_ == text_.size()) {
      return false;
    }
    const char c = text_[at_];
    if (c == '(') {
      int depth = 0;
      const std::size_t start = at_ + 1;
      for (; at_ < text_.size(); ++at_) {
        if (text_[at_] == '(') {
          ++depth;
        }
        if (text_[at_] == ')' && --depth == 0) {
          break;
        }
      }
      if (at_ == text_.size()) {
        return false;
      }
      return substitute(text_.substr(start, at_++ - start), word);
    }
    if (c == '{') {
      const auto end = text_.find('}', at_);
      if (end == text_.npos) {
        return false;
      }
      const auto name = text_.substr(at_ + 1, end - at_ - 1);
      at_ = end + 1;
      return braced(name, word);
    }
    if (c == '@' || c == '*') {
      return word += "$@", ++at_, true;
    }
    if (c == '0') {
      return word += script_, ++at_, true;
    }
    const std::size_t start = at_;
    while (at_ < text_.size() && is_name(text_[at_])) {
      ++at_;
    }
    return value_of(text_.substr(start, at_ - start), word);
  }

  bool braced(std::string_view name, std::string& word) {
    if (name == "0" || name == "BASH_SOURCE[0]" || name == "BASH_SOURCE") {
      return word += script_, true;
    }
    if (name == "0%/*" || name == "BASH_SOURCE[0]%/*" || name == "BASH_SOURCE%/*") {
      return word += parent(script_), true;
    }
    if (const auto fallback = name.find(":-"); fallback != name.npos) {
      if (value_of(name.substr(0, fallback), word)) {
        return true;
      }
      const auto text = name.substr(fallback + 2);
      return text.find('$') == text.npos ? (word += text, true) : false;
    }
    return value_of(name, word);
  }

  bool value_of(std::string_view name, std::string& word) const {
    const auto found = variables_.find(name);
    if (found == variables_.end()) {
      return false;
    }
    word += found->second;
    return true;
  }

  /// Of all command substitutions only the folder of the script itself is known.
  bool substitute(std::string_view command, std::string& word) const {
    const bool own = command.find("$0") != command.npos || command.find("BASH_SOURCE") != command.npos;
    const auto first = command.find("dirname");
    if (!own || first == command.npos || command.find("dirname", first + 1) != command.npos) {
      return false;
    }
    if (command.find("..") != command.npos || command.find('|') != command.npos) {
      return false;
    }
    word += parent(script_);
    return true;
  }

  std::string_view text_;
  const Variables& variables_;
  const std::string& script_;
  std::size_t at_ = 0;
};

/// NAME=value, or nothing.
std::optional<std::pair<std::string, std::string>> assignment(const std::string& word) {
  const auto equals = word.find('=');
  if (equals == word.npos || equals == 0) {
    return std::nullopt;
  }
  for (std::size_t i = 0; i < equals; ++i) {
    if (!is_name(word[i])) {
      return std::nullopt;
    }
  }
  return std::pair(word.substr(0, equals), word.substr(equals + 1));
}

std::vector<std::string> after_exec(std::vector<std::string> words) {
  std::size_t at = 0;
  while (at < words.size() && assignment(words[at])) {
    ++at;
  }
  if (at == words.size() || words[at] != "exec") {
    return {};
  }
  ++at;
  while (at < words.size() && words[at].starts_with('-')) {
    at += words[at] == "-a" ? 2 : 1;
  }
  if (at >= words.size()) {
    return {};
  }
  return {words.begin() + static_cast<std::ptrdiff_t>(at), words.end()};
}

/// How many levels of if, for, while and case a line opens or closes.
int nesting(std::string_view first_word) {
  for (const std::string_view word : {"if", "for", "while", "until", "case"}) {
    if (first_word == word) {
      return 1;
    }
  }
  for (const std::string_view word : {"fi", "done", "esac"}) {
    if (first_word == word) {
      return -1;
    }
  }
  return 0;
}

/// Takes in one line: an assignment, or something that may be the last command. Returns what the line execs, if it
/// does.
std::vector<std::string> read_line(const std::string& line, const std::string& script, Variables& variables, int& depth) {
  const std::string_view text = line;
  const int change = nesting(text.substr(0, text.find_first_of(" \t;")));
  depth = std::max(0, depth + change);
  auto words = Line(text, variables, script).words();
  if (!words || depth > 0) {
    // What is set here depends on something that is not known.
    std::erase_if(variables, [&](const auto& entry) { return line.find(entry.first + "=") != line.npos; });
    if (change > 0 && (text.ends_with("fi") || text.ends_with("done") || text.ends_with("esac"))) {
      --depth;
    }
    return {};
  }
  if (words->empty()) {
    return {};
  }
  const bool exported = words->size() == 2 && words->front() == "export";
  if (const auto set = assignment(words->back()); set && (words->size() == 1 || exported)) {
    variables[set->first] = set->second;
    return {};
  }
  return after_exec(std::move(*words));
}

}  // namespace

std::vector<std::string> exec_target(std::string_view script, const std::string& path) {
  Variables variables;
  std::vector<std::string> last;
  std::string joined;
  int depth = 0;
  while (!script.empty()) {
    auto line = script.substr(0, script.find('\n'));
    script.remove_prefix(std::min(script.size(), line.size() + 1));
    const bool continued = line.ends_with('\\');
    if (continued) {
      line.remove_suffix(1);
    }
    joined += line;
    if (continued && !script.empty()) {
      continue;
    }
    if (const auto first = joined.find_first_not_of(" \t"); first != joined.npos && joined[first] != '#') {
      last = read_line(joined.substr(first), path, variables, depth);
    }
    joined.clear();
  }
  return last;
}

}  // namespace lumelift
