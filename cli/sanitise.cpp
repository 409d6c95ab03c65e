#include "cli/sanitise.hpp"

#include <algorithm>
#include <array>
#include <vector>

namespace lumelift {
namespace {

bool digit(char c) {
  return c >= '0' && c <= '9';
}
bool letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool hex(char c) {
  return digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}
bool word(char c) {
  return digit(c) || letter(c) || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}
bool host_part(char c) {
  return digit(c) || letter(c) || c == '-' || c == '.';
}
bool mail_part(char c) {
  return host_part(c) || c == '_' || c == '%' || c == '+';
}
bool name_part(char c) {
  return word(c) || c == '-' || c == '.';
}

/// Words that are users or hosts in every other log of this trade.
constexpr std::array ordinary{"admin", "apple",  "build",  "cua",     "guest", "home",  "host",   "library",  "llama",
                              "local", "lume",   "mac",    "macos",   "metal", "model", "models", "mlx",      "ollama",
                              "root",  "runner", "shared", "samples", "stock", "test",  "tests",  "unlocked", "user"};

bool telling(std::string_view name) {
  if (name.size() < 3 || std::none_of(name.begin(), name.end(), letter)) return false;
  return std::none_of(ordinary.begin(), ordinary.end(), [&](const char* plain) {
    return std::equal(name.begin(), name.end(), plain, plain + std::string_view(plain).size(),
                      [](char a, char b) { return (a | 0x20) == b; });
  });
}

/// Something found at the start of a text: how long it is and what stands for it.
struct Match {
  std::size_t length = 0;
  std::string_view instead = {};
  std::string_view name = {};  ///< the user or host name in it
};

std::size_t run(std::string_view text, bool (*part)(char)) {
  return static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), part) - text.begin());
}

/// `path` at the start of `text`, whose slashes a JSON writer may have escaped; its length there, or 0.
std::size_t path_prefix(std::string_view text, std::string_view path) {
  std::size_t at = 0;
  for (const char c : path) {
    if (c == '/' && at + 1 < text.size() && text[at] == '\\' && text[at + 1] == '/') ++at;
    if (at >= text.size() || text[at] != c) return 0;
    ++at;
  }
  return at;
}

Match home_folder(std::string_view text) {
  for (const std::string_view parent : {"/Users/", "/home/"}) {
    const auto prefix = path_prefix(text, parent);
    if (prefix == 0) continue;
    const auto name = text.substr(prefix, run(text.substr(prefix), name_part));
    if (name.empty() || name == "Shared") return {};
    return {prefix + name.size(), "~", name};
  }
  for (const std::string_view root : {"/private/var/root", "/var/root", "/root"}) {
    const auto length = path_prefix(text, root);
    if (length > 0 && (length == text.size() || !name_part(text[length]))) return {length, "~"};
  }
  for (const std::string_view folders : {"/private/var/folders/", "/var/folders/"}) {
    auto length = path_prefix(text, folders);
    if (length == 0) continue;
    length += run(text.substr(length), name_part);
    if (const auto slash = path_prefix(text.substr(length), "/"); slash > 0) {
      length += slash;
      length += run(text.substr(length), name_part);
    }
    return {length, "<tmp>"};
  }
  return {};
}

Match ipv4(std::string_view text) {
  std::size_t at = 0, first = 0;
  for (int group = 0; group < 4; ++group) {
    const auto digits = run(text.substr(at), digit);
    if (digits == 0 || digits > 3) return {};
    std::size_t value = 0;
    for (const char c : text.substr(at, digits)) value = value * 10 + static_cast<std::size_t>(c - '0');
    if (value > 255) return {};
    if (group == 0) first = value;
    at += digits;
    if (group < 3 && (at >= text.size() || text[at++] != '.')) return {};
  }
  if (at < text.size() && (word(text[at]) || (text[at] == '.' && at + 1 < text.size() && digit(text[at + 1])))) return {};
  return first == 127 || first == 0 ? Match{} : Match{at, "<address>"};
}

/// MAC and IPv6. A time of day has three groups and no double colon, so it is neither.
Match colons(std::string_view text) {
  const auto length = run(text, [](char c) { return hex(c) || c == ':'; });
  const auto token = text.substr(0, length);
  if (length < text.size() && word(text[length])) return {};
  std::vector<std::size_t> groups{0};
  for (const char c : token) {
    if (c == ':')
      groups.push_back(0);
    else
      ++groups.back();
  }
  if (groups.size() == 6 && std::all_of(groups.begin(), groups.end(), [](std::size_t n) { return n == 2; })) {
    return {length, "<address>"};
  }
  const auto doubled = token.find("::");
  const bool fits = std::all_of(groups.begin(), groups.end(), [](std::size_t n) { return n <= 4; });
  const bool shape = groups.size() == 8 ? true : doubled != std::string_view::npos && groups.size() > 2 && groups.size() < 9;
  if (!fits || !shape || token == "::" || token == "::1" || std::none_of(token.begin(), token.end(), digit)) return {};
  return {length, "<address>"};
}

Match uuid(std::string_view text) {
  std::size_t at = 0;
  for (const std::size_t digits : {8, 4, 4, 4, 12}) {
    if (run(text.substr(at), hex) != digits) return {};
    at += digits;
    if (digits != 12 && (at >= text.size() || text[at++] != '-')) return {};
  }
  return at < text.size() && word(text[at]) ? Match{} : Match{at, "<uuid>"};
}

Match mail(std::string_view text) {
  const auto user = run(text, mail_part);
  if (user == 0 || user + 1 >= text.size() || text[user] != '@' || !(digit(text[user + 1]) || letter(text[user + 1]))) return {};
  const auto host = run(text.substr(user + 1), host_part);
  // Names of SSH's algorithms that somebody added: "curve25519-sha256@libssh.org", "aes128-gcm@openssh.com".
  for (const std::string_view inventor : {"openssh.com", "libssh.org", "lysator.liu.se"}) {
    if (text.substr(user + 1, host) == inventor) return {};
  }
  return {user + 1 + host, "<address>"};
}

Match local_host(std::string_view text) {
  auto token = text.substr(0, run(text, host_part));
  while (token.ends_with('.')) token.remove_suffix(1);
  for (const std::string_view domain : {".local", ".lan", ".internal", ".localdomain", ".fritz.box"}) {
    if (token.size() > domain.size() && token.ends_with(domain)) {
      const auto label = token.substr(0, token.find('.'));
      return {token.size(), "<host>", label};
    }
  }
  return {};
}

/// What starts at `at`, if a token starts there at all.
Match found(std::string_view text, std::size_t at) {
  const char c = text[at], before = at > 0 ? text[at - 1] : ' ';
  const auto rest = text.substr(at);
  if (c == '/' || (c == '\\' && rest.size() > 1 && rest[1] == '/')) {
    return word(before) || before == '~' || before == '.' || before == '>' ? Match{} : home_folder(rest);
  }
  if (word(before) || before == '-' || before == '.') return {};
  if (hex(c) || c == ':') {
    if (const auto match = uuid(rest); match.length > 0) return match;
    if (const auto match = before == ':' ? Match{} : colons(rest); match.length > 0) return match;
  }
  if (digit(c)) {
    if (const auto match = ipv4(rest); match.length > 0) return match;
  }
  if (!digit(c) && !letter(c)) return {};
  if (const auto match = mail(rest); match.length > 0) return match;
  return local_host(rest);
}

}  // namespace

void Sanitiser::learn_user(std::string_view name) {
  if (telling(name)) users_.emplace(name);
}

void Sanitiser::learn_host(std::string_view name) {
  if (telling(name)) hosts_.emplace(name);
}

void Sanitiser::learn_home(std::string_view path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  if (path.size() > 1 && path.front() == '/') homes_.emplace(path);
}

void Sanitiser::learn(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const auto match = found(text, at);
    if (match.instead == "~") learn_user(match.name);
    if (match.instead == "<host>") learn_host(match.name);
    at += std::max<std::size_t>(match.length, 1);
  }
}

std::string Sanitiser::clean(std::string_view text) const {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const auto home = std::find_if(homes_.begin(), homes_.end(), [&](const std::string& path) {
      const auto end = at + path.size();
      return text.substr(at).starts_with(path) && (end == text.size() || !name_part(text[end])) && (at == 0 || !word(text[at - 1]));
    });
    if (home != homes_.end()) {
      out += '~';
      at += home->size();
      continue;
    }
    if (const auto match = found(text, at); match.length > 0) {
      out += match.instead;
      at += match.length;
      continue;
    }
    const auto length = (at == 0 || !word(text[at - 1])) ? run(text.substr(at), [](char c) { return word(c) || c == '-'; }) : 0;
    const auto known = [&](std::size_t size) {
      return users_.contains(text.substr(at, size)) ? "<user>" : hosts_.contains(text.substr(at, size)) ? "<host>" : nullptr;
    };
    // A name with hyphens first, then its first word alone.
    const auto plain = run(text.substr(at, length), word);
    if (const auto* instead = length > 0 ? known(length) : nullptr) {
      out += instead;
      at += length;
    } else if (const auto* shorter = plain > 0 && plain < length ? known(plain) : nullptr) {
      out += shorter;
      at += plain;
    } else {
      out += text[at++];
    }
  }
  return out;
}

}  // namespace lumelift
