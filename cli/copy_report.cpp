#include "cli/copy_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/large.hpp"

namespace lumelift {
namespace {

constexpr const char* words[] = {"copied", "continued", "unchanged"};

std::string counted(std::size_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

}  // namespace

std::uint64_t CopyReport::moved() const {
  std::uint64_t bytes = 0;
  for (const auto& file : files) {
    bytes += file.how == Copied::How::unchanged ? 0 : file.state.size - file.found;
  }
  return bytes;
}

std::string CopyReport::text() const {
  const auto same = static_cast<std::size_t>(
      std::count_if(files.begin(), files.end(), [](const Copied& file) { return file.how == Copied::How::unchanged; }));
  std::string line = fmt::format("{} copied and verified", counted(files.size() - same, "file"));
  if (moved() > 0) {
    const auto rate = shown_rate(moved(), spent);
    line += fmt::format(", {} in {:.1f} s{}", shown_bytes(moved()), static_cast<double>(spent.count()) / 1000,
                        rate.empty() ? "" : fmt::format(" ({})", rate));
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
