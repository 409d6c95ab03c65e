#include "remote/guest_parse.hpp"

#include <algorithm>
#include <charconv>
#include <limits>

#include "host/sys/error.hpp"
#include "remote/script.hpp"

namespace lumelift {
namespace {

template <class Number>
std::optional<Number> number(std::string_view text, int base = 10) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc{} || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

std::vector<std::string_view> split(std::string_view text, char mark) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const auto end = text.find(mark);
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return parts;
}

std::string_view trimmed(std::string_view text) {
  constexpr auto blanks = " \t\r\n";
  const auto from = text.find_first_not_of(blanks);
  if (from == std::string_view::npos) {
    return {};
  }
  return text.substr(from, text.find_last_not_of(blanks) - from + 1);
}

/// The value of "name: value" in sysctl's output.
std::string system_value(std::string_view text, std::string_view name) {
  for (const auto line : split(text, '\n')) {
    if (line.starts_with(name) && line.substr(name.size()).starts_with(": ")) {
      return std::string(trimmed(line.substr(name.size() + 2)));
    }
  }
  return {};
}

/// "{ sec = 1785000000, usec = 0 } Mon …" → 1785000000.
std::optional<std::int64_t> seconds_of(std::string_view text) {
  constexpr std::string_view mark = "sec = ";
  const auto place = text.find(mark);
  if (place == std::string_view::npos) {
    return std::nullopt;
  }
  const auto digits = text.substr(place + mark.size());
  return number<std::int64_t>(digits.substr(0, digits.find_first_not_of("0123456789")));
}

/// The fourth column of df's second line, in bytes. The first column may hold blanks, so columns count from the capacity.
std::optional<std::uint64_t> free_bytes(std::string_view text) {
  const auto lines = split(text, '\n');
  if (lines.size() < 2) {
    return std::nullopt;
  }
  std::vector<std::string_view> columns;
  for (const auto column : split(lines[1], ' ')) {
    if (!column.empty()) {
      columns.push_back(column);
    }
  }
  const auto capacity = std::find_if(columns.begin(), columns.end(), [](auto column) { return column.ends_with('%'); });
  if (capacity == columns.begin() || capacity == columns.end()) {
    return std::nullopt;
  }
  const auto blocks = number<std::uint64_t>(*std::prev(capacity));
  if (!blocks || *blocks > std::numeric_limits<std::uint64_t>::max() / 1024) {
    return std::nullopt;
  }
  return *blocks * 1024;
}

std::optional<bool> protection(std::string_view text) {
  if (text.find("status: enabled") != std::string_view::npos) {
    return true;
  }
  if (text.find("status: disabled") != std::string_view::npos) {
    return false;
  }
  return std::nullopt;
}

bool is_sha256(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

PathKind kind_of(unsigned mode) {
  switch (mode & 0170000) {
    case 0100000:
      return PathKind::file;
    case 0040000:
      return PathKind::folder;
    case 0120000:
      return PathKind::link;
    default:
      return PathKind::other;
  }
}

std::vector<std::pair<std::string, std::string>> parse_records(std::string_view text) {
  std::vector<std::pair<std::string, std::string>> records;
  for (auto end = text.find('\036'); end != std::string_view::npos; end = text.find('\036')) {
    const auto record = text.substr(0, end);
    const auto middle = record.find('\037');
    if (middle != std::string_view::npos) {
      records.emplace_back(record.substr(0, middle), record.substr(middle + 1));
    }
    text.remove_prefix(end + 1);
  }
  return records;
}

GuestFacts parse_facts(std::string_view body) {
  GuestFacts facts;
  const auto records = parse_records(body);
  const auto value = [&](std::string_view key) {
    const auto found = std::find_if(records.begin(), records.end(), [&](const auto& record) { return record.first == key; });
    return found == records.end() ? std::string_view{} : trimmed(found->second);
  };
  const auto uid = number<unsigned>(value("uid"));
  facts.home = value("home");
  if (!uid || !facts.home.starts_with('/')) {
    throw Error(ErrorKind::failed, "guest-unreadable", "the guest does not say who the account is: " + excerpt(body));
  }
  facts.uid = *uid;
  facts.user = value("user");
  facts.shell = value("shell");
  const auto system = unflattened(value("system"));
  facts.os = system_value(system, "kern.osproductversion");
  facts.build = system_value(system, "kern.osversion");
  if (facts.os.empty()) {
    facts.os = value("os");
  }
  if (facts.build.empty()) {
    facts.build = value("build");
  }
  facts.model = system_value(system, "hw.model");
  facts.chip = system_value(system, "machdep.cpu.brand_string");
  facts.identity = value("platform").empty() ? system_value(system, "kern.uuid") : value("platform");
  facts.memory = number<std::uint64_t>(system_value(system, "hw.memsize")).value_or(0);
  facts.disk_free = free_bytes(unflattened(value("disk")));
  const auto now = number<std::int64_t>(value("now"));
  const auto booted = seconds_of(system_value(system, "kern.boottime"));
  if (now && booted) {
    facts.booted_at = *booted;
    facts.up_seconds = *now - *booted;
  }
  facts.sip = protection(value("sip"));
  facts.gui_domain = value("gui") == "0";
  facts.user_domain = value("background") == "0";
  return facts;
}

std::optional<std::vector<PathSeen>> parse_look(std::string_view body, std::size_t count) {
  std::vector<PathSeen> seen(count);
  std::vector<bool> told(count, false);
  std::vector<std::size_t> here;
  std::vector<std::string> sums(count);
  std::size_t described = 0;
  for (const auto line : split(body, '\n')) {
    const auto words = split(line, ' ');
    if (words.empty()) {
      continue;
    }
    if (words[0] == "stat") {
      if (words.size() != 4 || described == here.size()) {
        return std::nullopt;
      }
      const auto mode = number<unsigned>(words[1], 8);
      const auto owner = number<unsigned>(words[2]);
      const auto size = number<std::uint64_t>(words[3]);
      if (!mode || !owner || !size) {
        return std::nullopt;
      }
      auto& path = seen[here[described++]];
      path.kind = kind_of(*mode);
      path.mode = *mode & 07777;
      path.owner = *owner;
      if (path.kind == PathKind::file) {
        path.file = FileState{{}, path.mode, *size};
      }
      continue;
    }
    const auto index = words.size() > 1 ? number<std::size_t>(words[1]) : std::nullopt;
    if (!index || *index >= count) {
      return std::nullopt;
    }
    if (words[0] == "here") {
      here.push_back(*index);
      told[*index] = true;
    } else if (words[0] == "absent") {
      told[*index] = true;
    } else if (words[0] == "sum") {
      sums[*index] = words.size() > 2 ? words[2] : "";
    }
  }
  if (described != here.size() || std::find(told.begin(), told.end(), false) != told.end()) {
    return std::nullopt;
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (!seen[i].file) {
      continue;
    }
    if (!is_sha256(sums[i])) {
      seen[i].file.reset();
    } else {
      seen[i].file->sha256 = sums[i];
    }
  }
  return seen;
}

std::string AgentSeen::last_end() const {
  if (last_exit_text.empty()) {
    return "never ended";
  }
  return (last_exit ? "last exit code " : "last ended by ") + last_exit_text;
}

JobText parse_job(std::string_view text) {
  JobText job;
  job.seen.loaded = true;
  int depth = 0;
  bool in_environment = false;
  for (const auto raw : split(text, '\n')) {
    const auto line = trimmed(raw);
    if (line.ends_with("{")) {
      ++depth;
      in_environment = depth == 2 && line == "environment = {";
      continue;
    }
    if (line == "}") {
      --depth;
      in_environment = false;
      continue;
    }
    if (in_environment) {
      if (const auto arrow = line.find(" => "); arrow != std::string_view::npos) {
        job.seen.environment.emplace_back(line.substr(0, arrow), line.substr(arrow + 4));
      }
      continue;
    }
    const auto equals = line.find(" = ");
    if (depth != 1 || equals == std::string_view::npos) {
      continue;
    }
    const auto key = line.substr(0, equals);
    const auto value = line.substr(equals + 3);
    if (key == "path") {
      job.seen.path = value;
    }
    if (key == "state") {
      job.state = value;
      job.seen.held_back = value == "spawn scheduled";
    }
    if (key == "pid") {
      job.seen.pid = number<int>(value);
    }
    if (key == "runs") {
      job.seen.runs = number<int>(value).value_or(0);
    }
    if (key == "last exit code") {
      job.seen.last_exit = number<int>(value.substr(0, value.find(':')));
      if (job.seen.last_exit) {
        job.seen.last_exit_text = value;
      }
    }
    if (key == "last terminating signal") {
      job.seen.last_exit_text = "signal " + std::string(value);
    }
  }
  return job;
}

}  // namespace lumelift
