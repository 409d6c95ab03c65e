#include "cli/examples.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace lumelift {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 22> examples = {{
    {"unlock",
     "lumelift unlock ci-1 --dry-run\n"
     "lumelift unlock ci-1\n"
     "lumelift unlock ci-1 --workload llama-server.yaml --profile minimal"},
    {"rollback",
     "lumelift rollback ci-1\n"
     "lumelift rollback ci-1 --restart never\n"
     "lumelift rollback --all"},
    {"status", "lumelift status\nlumelift --json status ci-1"},
    {"probe", "lumelift probe ci-1"},
    {"history", "lumelift history ci-1"},
    {"doctor", "lumelift doctor\nlumelift doctor ci-1"},
    {"trust", "lumelift trust ci-1"},
    {"inspect", "lumelift inspect ./llama-server\nlumelift inspect --vm ci-1 /usr/local/bin/llama-server"},
    {"verify", "lumelift verify ci-1\nlumelift verify ci-1 --self-test"},
    {"run", "lumelift run ci-1 -- ./llama-cli -m tiny.gguf -p Hello\nlumelift run ci-1 --stock -- ./llama-bench -m tiny.gguf"},
    {"bench", "lumelift bench ci-1 --bench ./llama-bench --cli ./llama-cli --model tiny.gguf"},
    {"explain", "lumelift explain ci-1 -- ./llama-bench --list-devices\nlumelift explain --trace trace.jsonl"},
    {"ablate", "lumelift ablate ci-1"},
    {"agents", "lumelift agents ci-1\nlumelift agents ci-1 restart io.lumelift.llama-server"},
    {"logs", "lumelift logs ci-1 io.lumelift.llama-server -f --since 15m"},
    {"report", "lumelift report stock.json unlocked.json\nlumelift report --format html -o report.html bench-ci-1-2026-11-29"},
    {"evidence", "lumelift evidence pack bench-ci-1-2026-11-29 bundle\nlumelift evidence verify bundle"},
    {"compat", "lumelift compat list\nlumelift compat add bundle"},
    {"copy", "lumelift copy ci-1 tiny.gguf models/\nlumelift copy --from ci-1 results/ ."},
    {"power", "lumelift power ci-1 on\nlumelift power ci-1 off --if-idle"},
    {"fleet", "lumelift fleet plan -f fleet.yaml\nlumelift fleet apply -f fleet.yaml"},
    {"bug-report", "lumelift bug-report\nlumelift bug-report ci-1 -o report.txt"},
}};

}  // namespace

std::string examples_of(std::string_view command, std::string_view indent) {
  const auto found = std::find_if(examples.begin(), examples.end(), [&](const auto& one) { return one.first == command; });
  if (found == examples.end()) {
    return {};
  }
  std::string out(indent);
  for (const char c : found->second) {
    out += c;
    if (c == '\n') {
      out += indent;
    }
  }
  return out;
}

}  // namespace lumelift
