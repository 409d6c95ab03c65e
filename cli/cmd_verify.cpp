#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/verification.hpp"

namespace lumelift {
namespace {

using nlohmann::json;

std::string text_of(const Console& console, const std::string& vm, const std::vector<Check>& checks, bool passed) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& check : checks) {
    rows.push_back({check.passed ? console.styled("ok", Style::good) : console.styled("FAILED", Style::bad), check.id, check.evidence});
  }
  const auto failed = std::count_if(checks.begin(), checks.end(), [](const Check& check) { return !check.passed; });
  return table(rows) + (passed ? fmt::format("{}: verified, {} checks", vm, checks.size())
                               : fmt::format("{}: NOT verified, {} of {} checks failed", vm, failed, checks.size()));
}

std::string json_of(const std::string& vm, const std::vector<Check>& checks, bool passed) {
  json list = json::array();
  for (const auto& check : checks) {
    list.push_back({{"id", check.id}, {"passed", check.passed}, {"evidence", check.evidence}});
  }
  return json({{"schema", 1}, {"vm", vm}, {"verified", passed}, {"checks", list}}).dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

int run_verify(Context& context, const VerifyOptions& options) {
  Operation operation(context, options.target, "verify", Operation::Touch::nothing);
  auto checks = verify_vm(operation);
  if (options.self_test && operation.found.power() == Power::running) {
    const auto tried = self_test(operation);
    checks.insert(checks.begin(), tried.begin(), tried.end());
  }
  const bool passed = std::all_of(checks.begin(), checks.end(), [](const Check& check) { return check.passed; });
  if (context.console.json()) {
    context.console.result_json(json_of(operation.found.name, checks, passed));
  } else {
    context.console.result(text_of(context.console, operation.found.name, checks, passed));
  }
  return passed ? 0 : exit_status(ErrorKind::unproven);
}

}  // namespace lumelift
