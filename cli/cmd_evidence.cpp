#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/bench_folder.hpp"
#include "cli/commands.hpp"
#include "cli/evidence.hpp"
#include "host/sys/hash.hpp"

namespace lumelift {
namespace {

using nlohmann::ordered_json;

std::size_t test_count(const Report& report) {
  std::size_t count = 0;
  for (const auto& workload : report.workloads) count += workload.tests.size();
  return count;
}

std::string dumped(const ordered_json& object) {
  return object.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

void refuse_extra(const EvidenceOptions& options) {
  if (options.bundle.empty() && options.facts.empty()) return;
  throw Error(ErrorKind::usage, "evidence-argument",
              fmt::format("evidence {} takes one bundle and nothing else{}", options.action,
                          options.bundle.empty() ? "" : fmt::format(", not '{}' too", options.bundle.string())))
      .fix(fmt::format("lumelift evidence {} BUNDLE", options.action));
}

int pack(Context& context, const EvidenceOptions& options) {
  if (options.bundle.empty()) {
    throw Error(ErrorKind::usage, "evidence-no-target", "no name for the bundle").fix("lumelift evidence pack FOLDER BUNDLE");
  }
  const auto bundle = pack_evidence(options.folder, options.bundle,
                                    {options.facts, options.local_user, options.local_host, recorded_limits(options.folder)});
  const auto sum = sys::sha256_file(options.bundle / "SHA256SUMS");
  if (context.console.json()) {
    context.console.result_json(dumped({{"schema", 1},
                                        {"bundle", options.bundle.string()},
                                        {"files", bundle.files},
                                        {"tests", test_count(bundle.report)},
                                        {"left_out", bundle.left_out},
                                        {"sums_sha256", sum}}));
    return 0;
  }
  std::string text =
      fmt::format("{}: {} raw files, {} tests, every figure as it was\n", options.bundle.string(), bundle.files, test_count(bundle.report));
  for (const auto& name : bundle.left_out) text += fmt::format("  left out  {}\n", cleaned(name));
  for (const auto& key : environment_keys()) {
    if (bundle.environment.get(key).empty()) text += fmt::format("  unknown   {}: add it with --fact {}=VALUE\n", key, key);
  }
  context.console.result(text + fmt::format("SHA-256 of its SHA256SUMS: {}\n", sum));
  return 0;
}

int verify(Context& context, const EvidenceOptions& options) {
  refuse_extra(options);
  const auto verification = verify_evidence(options.folder);
  const bool right = verification.problems.empty();
  if (context.console.json()) {
    context.console.result_json(
        dumped({{"schema", 1}, {"verified", right}, {"files", verification.bundle.files}, {"problems", verification.problems}}));
  } else {
    std::string text;
    for (const auto& problem : verification.problems) text += fmt::format("✗ {}\n", cleaned(problem));
    text += right ? fmt::format("{}: every checksum and every number is right ({} raw files, {} tests)\n", options.folder.string(),
                                verification.bundle.files, test_count(verification.bundle.report))
                  : fmt::format("{}: not what it says\n", options.folder.string());
    context.console.result(text);
  }
  return right ? 0 : exit_status(ErrorKind::unproven);
}

int issue(Context& context, const EvidenceOptions& options) {
  refuse_extra(options);
  const auto verification = verify_evidence(options.folder);
  if (!verification.problems.empty()) {
    Error error(ErrorKind::unproven, "evidence-unverified", fmt::format("'{}' does not verify; nothing to post", options.folder.string()));
    for (const auto& problem : verification.problems) error.note(problem);
    throw std::move(error.fix("pack it again from the original outputs"));
  }
  const auto text = compatibility_report(verification.bundle, sys::sha256_file(options.folder / "SHA256SUMS"));
  if (context.console.json()) {
    context.console.result_json(dumped({{"schema", 1}, {"markdown", text}}));
  } else {
    context.console.result(text);
  }
  return 0;
}

}  // namespace

int run_evidence(Context& context, const EvidenceOptions& options) {
  if (options.action == "pack") return pack(context, options);
  if (options.action == "verify") return verify(context, options);
  if (options.action == "issue") return issue(context, options);
  throw Error(ErrorKind::usage, "evidence-action", fmt::format("evidence cannot '{}'", options.action)).fix("pack, verify or issue");
}

}  // namespace lumelift
