#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/explanation.hpp"
#include "cli/guest_kit.hpp"
#include "host/sys/file.hpp"

namespace lumelift {
namespace {

std::string yes_no(bool yes) {
  return yes ? "yes" : "no";
}

std::string side_by_side(const ProbePair& pair, const Console& console) {
  std::vector<std::vector<std::string>> rows = {{"asked", "stock", "unlocked", ""}};
  const auto add = [&](const std::string& what, const std::string& a, const std::string& b) {
    rows.push_back({what, a, b, a == b ? "" : console.styled("changed", Style::good)});
  };
  for (const auto& [family, stock] : pair.stock.families) {
    add(fmt::format("{} ({})", family_name(family), family), yes_no(stock), yes_no(pair.unlocked.family(family)));
  }
  add("threadgroup memory", fmt::format("{} B", pair.stock.threadgroup_memory), fmt::format("{} B", pair.unlocked.threadgroup_memory));
  add("working set", shown_bytes(pair.stock.working_set), shown_bytes(pair.unlocked.working_set));
  add("residency set", pair.stock.residency, pair.unlocked.residency);
  return table(rows);
}

}  // namespace

int run_probe(Context& context, const ProbeOptions& options) {
  const Profile profile = load_profile(options.profile, context.templates);
  const auto kit = load_kit(context.libexec);
  return with_guest_kit(context, options.target, "probe", profile, kit, [&](Operation& operation, const GuestKit& guest) {
    const ProbePair pair = run_probes(operation.link->guest(), guest.goal, profile);
    const auto missing = shortfalls(pair, profile);
    if (context.console.json()) {
      const auto raw = [](const std::string& text) { return nlohmann::json::parse(text, nullptr, false); };
      context.console.result_json(nlohmann::json({{"schema", 1},
                                                  {"vm", operation.found.name},
                                                  {"profile", profile.name},
                                                  {"as_promised", missing.empty()},
                                                  {"problems", missing},
                                                  {"stock", raw(pair.stock.raw)},
                                                  {"unlocked", raw(pair.unlocked.raw)}})
                                      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    } else {
      context.console.result(fmt::format("{}  {}  macOS {} ({}), profile {}\n", operation.found.name, cleaned(pair.stock.device),
                                         cleaned(guest.facts.os), cleaned(guest.facts.build), profile.name) +
                             side_by_side(pair, context.console));
      for (const auto& line : missing) {
        context.console.warn(line);
      }
    }
    return missing.empty() ? 0 : exit_status(ErrorKind::unproven);
  });
}

}  // namespace lumelift
