#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/compat.hpp"
#include "cli/evidence.hpp"
#include "host/sys/hash.hpp"
#include "host/sys/time.hpp"

namespace lumelift {
namespace {

using nlohmann::ordered_json;

/// The builds of this host now, so far as they can be seen; the guests' are not looked at, because that would start them.
CompatKey seen_now() {
  CompatKey now;
  try {
    const auto facts = Host().facts();
    now.chip = facts.chip;
    now.host_build = facts.build;
  } catch (const Error&) {
    // Without the tools nothing is known to have changed.
  }
  return now;
}

int list(Context& context) {
  const auto book = CompatBook::load(context.state_dir);
  const auto now = seen_now();
  if (context.console.json()) {
    auto rows = ordered_json::array();
    for (const auto& record : book.records()) {
      const auto& key = record.key;
      rows.push_back({{"chip", key.chip},
                      {"host_build", key.host_build},
                      {"guest_os", key.guest_os},
                      {"guest_build", key.guest_build},
                      {"library_sha256", key.library_sha256},
                      {"profile", key.profile},
                      {"workload", key.workload},
                      {"outcome", outcome_text(record.outcome)},
                      {"stale", CompatBook::stale(record, now)},
                      {"proof", record.proof},
                      {"recorded", sys::iso_utc(record.recorded_at)}});
    }
    context.console.result_json(
        ordered_json{{"schema", 1}, {"records", rows}}.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
    return 0;
  }
  if (book.records().empty()) {
    context.console.result("Nothing was proven on this host yet. lumelift bench measures; lumelift compat add BUNDLE records.\n");
    return 0;
  }
  const auto shown = [](const std::string& value) { return value.empty() ? std::string("?") : cleaned(value); };
  std::vector<std::vector<std::string>> rows{{"WORKLOAD", "PROFILE", "CHIP", "HOST", "GUEST", "LIBRARY", "OUTCOME", "RECORDED"}};
  for (const auto& record : book.records()) {
    const auto& key = record.key;
    rows.push_back({key.workload.empty() ? "probe" : cleaned(key.workload), shown(key.profile), shown(key.chip), shown(key.host_build),
                    shown(key.guest_os) + (key.guest_build.empty() ? "" : " " + cleaned(key.guest_build)),
                    shown(key.library_sha256.substr(0, 12)),
                    std::string(outcome_text(record.outcome)) + (CompatBook::stale(record, now) ? ", stale" : ""),
                    sys::iso_utc(record.recorded_at).substr(0, 10)});
  }
  context.console.result(table(rows));
  return 0;
}

int add(Context& context, const CompatOptions& options) {
  if (options.bundle.empty()) {
    throw Error(ErrorKind::usage, "compat-argument", "which bundle is to be recorded?")
        .fix("lumelift compat add BUNDLE, a folder that lumelift evidence pack made");
  }
  const auto verification = verify_evidence(options.bundle);
  if (!verification.problems.empty()) {
    Error error(ErrorKind::unproven, "evidence-unverified",
                fmt::format("'{}' does not verify; nothing was recorded", options.bundle.string()));
    for (const auto& problem : verification.problems) error.note(problem);
    throw std::move(error.fix("lumelift evidence verify says what is wrong"));
  }
  const auto& environment = verification.bundle.environment;
  const auto now = seen_now();
  if (!now.chip.empty() && !environment.get("chip").empty() && now.chip != environment.get("chip")) {
    throw Error(ErrorKind::usage, "compat-other-host",
                fmt::format("the bundle was measured on {}, this host is {}", environment.get("chip"), now.chip))
        .fix("only what was measured on this host is recorded here");
  }
  const auto proof = sys::sha256_file(options.bundle / "SHA256SUMS");
  const CompatKey base{environment.get("chip"),
                       environment.get("host_build"),
                       environment.get("guest_os"),
                       environment.get("guest_build"),
                       environment.get("library_sha256"),
                       environment.get("profile"),
                       {}};
  std::string text;
  for (const auto& record : compat_records(verification.bundle.report, base, proof, sys::wall_seconds())) {
    CompatBook::add(context.state_dir, record);
    text += fmt::format("{}: {}\n", cleaned(record.key.workload), outcome_text(record.outcome));
  }
  if (context.console.json()) {
    context.console.result_json(ordered_json{{"schema", 1}, {"recorded", verification.bundle.report.workloads.size()}}.dump());
  } else {
    context.console.result(text);
  }
  return 0;
}

}  // namespace

int run_compat(Context& context, const CompatOptions& options) {
  if (options.action == "list") {
    if (!options.workload.empty()) {
      throw Error(ErrorKind::usage, "compat-argument", fmt::format("compat list takes no argument, not '{}' either", options.workload))
          .fix("lumelift compat list");
    }
    return list(context);
  }
  if (options.action == "add") return add(context, options);
  if (options.action == "forget") {
    const auto count = CompatBook::forget(context.state_dir, options.workload);
    if (context.console.json())
      context.console.result_json(ordered_json{{"schema", 1}, {"forgotten", count}}.dump());
    else
      context.console.result(fmt::format("{} {} forgotten\n", count, count == 1 ? "record" : "records"));
    return 0;
  }
  throw Error(ErrorKind::usage, "compat-action", fmt::format("compat cannot '{}'", options.action)).fix("list, add or forget");
}

}  // namespace lumelift
