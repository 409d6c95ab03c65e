#include "cli/copy_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/large.hpp"

namespace lumelift {
namespace {

constexpr const char* words[] = {"copied", "continued", "mode-set", "unchanged"};

std::string counted(std::size_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

bool was_sent(const Copied& file) {
  return file.how == Copied::How::sent || file.how == Copied::How::continued;
}

}  // namespace

bool CopyReport::changes() const {
  return folders + links > 0 ||
         std::any_of(files.begin(), files.end(), [](const Copied& file) { return file.how != Copied::How::unchanged; });
}

std::uint64_t CopyReport::moved() const {
  std::uint64_t bytes = 0;
  for (const auto& file : files) {
    bytes += was_sent(file) ? file.state.size - file.found : 0;
  }
  return bytes;
}

std::string CopyReport::text() const {
  const auto sent = static_cast<std::size_t>(std::count_if(files.begin(), files.end(), was_sent));
  const auto modes = static_cast<std::size_t>(
      std::count_if(files.begin(), files.end(), [](const Copied& file) { return file.how == Copied::How::mode_set; }));
  const auto same = files.size() - sent - modes;
  std::string line = fmt::format("{} {}", counted(sent, "file"), dry_run ? "would be copied" : "copied and verified");
  if (dry_run && moved() > 0) {
    line += ", " + shown_bytes(moved());
  } else if (moved() > 0) {
    const auto rate = shown_rate(moved(), spent);
    line += fmt::format(", {} in {:.1f} s{}", shown_bytes(moved()), static_cast<double>(spent.count()) / 1000,
                        rate.empty() ? "" : fmt::format(" ({})", rate));
  }
  if (modes > 0) {
    line += fmt::format("; the mode of {}", modes);
  }
  if (same > 0) {
    line += fmt::format("; {} unchanged", same);
  }
  if (links > 0) {
    line += fmt::format("; {}", counted(links, "link"));
  }
  return line + "\n";
}

std::string CopyReport::json() const {
  using nlohmann::json;
  json object = {{"schema", 1},
                 {"vm", vm},
                 {"from_guest", from_guest},
                 {"dry_run", dry_run},
                 {"changes", changes()},
                 {"files", json::array()},
                 {"folders_made", folders},
                 {"links", links},
                 {"bytes_sent", moved()},
                 {"milliseconds", spent.count()}};
  for (const auto& file : files) {
    object["files"].push_back({{"from", file.from},
                               {"to", file.to},
                               {"size", file.state.size},
                               {"sha256", file.state.sha256},
                               {"mode", fmt::format("{:04o}", file.state.mode)},
                               {"state", words[static_cast<int>(file.how)]},
                               {"bytes_found", file.found}});
  }
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace lumelift
