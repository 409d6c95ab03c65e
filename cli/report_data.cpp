#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/console.hpp"
#include "cli/report.hpp"

namespace lumelift {
namespace {

using nlohmann::ordered_json;

/// A field of text: quoted where needed, and never one that a spreadsheet would run as a formula.
std::string csv(std::string_view text) {
  auto field = cleaned(text);
  if (!field.empty() && std::string_view("=+-@\t").find(field.front()) != std::string_view::npos) field = '\'' + field;
  if (field.find_first_of(",\"\n") == std::string::npos) return field;
  std::string quoted = "\"";
  for (const char c : field) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

std::string median_of(const TestReport& test, Role role) {
  const auto cell = test.cells.find(role);
  return cell == test.cells.end() || cell->second.rejected ? std::string() : rate_figure(cell->second.summary.median);
}

std::string spread_of(const TestReport& test, Role role) {
  const auto cell = test.cells.find(role);
  return cell == test.cells.end() ? std::string() : figure(cell->second.summary.spread() * 100);
}

ordered_json banner_json(const std::optional<Banner>& banner) {
  if (!banner || !banner->present()) return nullptr;
  ordered_json object;
  const auto put = [&](const char* key, const auto& value) {
    if (value)
      object[key] = *value;
    else
      object[key] = nullptr;
  };
  object["device"] = cleaned(banner->device);
  put("apple_family", banner->apple);
  put("common_family", banner->common);
  put("metal_family", banner->metal);
  put("simdgroup_reduction", banner->simdgroup_reduction);
  put("simdgroup_matrix", banner->simdgroup_matrix);
  put("bfloat", banner->bfloat);
  return object;
}

ordered_json cell_json(const Cell& cell) {
  return {{"samples", cell.rates},           {"median", cell.summary.median}, {"min", cell.summary.min},  {"max", cell.summary.max},
          {"spread", cell.summary.spread()}, {"flagged", cell.flagged},       {"rejected", cell.rejected}};
}

ordered_json test_json(const TestReport& test) {
  ordered_json object{{"test", cleaned(test.test)}, {"arms", ordered_json::object()}, {"unlocked_against", ordered_json::object()}};
  for (const auto& [role, cell] : test.cells) object["arms"][std::string(role_name(role))] = cell_json(cell);
  for (const auto& entry : test.comparisons) {
    object["unlocked_against"][std::string(role_name(entry.against))] = {
        {"ratio", entry.ratio.value}, {"low", entry.ratio.low}, {"high", entry.ratio.high}, {"verdict", verdict_text(entry.verdict)}};
  }
  return object;
}

ordered_json side_json(const Side& side) {
  ordered_json object{{"build", cleaned(side.build)},
                      {"chip", cleaned(side.chip)},
                      {"gpu", cleaned(side.gpu)},
                      {"platform", cleaned(side.platform)},
                      {"banner", banner_json(side.banner)}};
  for (const auto& source : side.sources) object["files"].push_back(cleaned(source));
  return object;
}

const char* level_name(Level level) {
  return level == Level::refused ? "refused" : level == Level::flagged ? "flagged" : "note";
}

}  // namespace

std::string render_csv(const Report& report) {
  std::string text =
      "workload,metric,unit,host_baremetal,stock_guest,unlocked_guest,guest_ratio,unlocked_to_host_percent,guest_cpu,"
      "ratio_low,ratio_high,verdict,host_spread_percent,stock_spread_percent,unlocked_spread_percent\n";
  for (const auto& entry : report.workloads) {
    for (const auto& test : entry.tests) {
      const auto *stock = test.against(Role::stock), *host = test.against(Role::host);
      text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", csv(entry.name), csv(test.test), entry.unit,
                          median_of(test, Role::host), median_of(test, Role::stock), median_of(test, Role::unlocked),
                          stock ? figure(stock->ratio.value) : "", host ? figure(host->ratio.value * 100) : "", median_of(test, Role::cpu),
                          stock ? figure(stock->ratio.low) : "", stock ? figure(stock->ratio.high) : "",
                          stock ? verdict_text(stock->verdict) : "", spread_of(test, Role::host), spread_of(test, Role::stock),
                          spread_of(test, Role::unlocked));
    }
  }
  return text;
}

std::string render_json(const Report& report) {
  ordered_json object{{"schema", 1},
                      {"limits", {{"flag", report.limits.flag}, {"reject", report.limits.reject}, {"material", report.limits.material}}},
                      {"workloads", ordered_json::array()},
                      {"findings", ordered_json::array()}};
  for (const auto& entry : report.workloads) {
    ordered_json workload{
        {"name", cleaned(entry.name)}, {"unit", entry.unit}, {"arms", ordered_json::object()}, {"tests", ordered_json::array()}};
    for (const auto& [role, side] : entry.sides) workload["arms"][std::string(role_name(role))] = side_json(side);
    for (const auto& test : entry.tests) workload["tests"].push_back(test_json(test));
    object["workloads"].push_back(std::move(workload));
  }
  for (const auto& finding : report.findings) {
    object["findings"].push_back(
        {{"level", level_name(finding.level)}, {"subject", cleaned(finding.subject)}, {"text", cleaned(finding.text)}});
  }
  return object.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace lumelift
