#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/arms.hpp"
#include "cli/bench_folder.hpp"
#include "cli/commands.hpp"
#include "cli/report.hpp"
#include "host/sys/file.hpp"

namespace lumelift {
namespace {

std::string rendered(const Context& context, const Report& report, std::string_view format) {
  if (format == "text") return render_text(report);
  if (format == "json") return render_json(report);
  if (format == "csv") return render_csv(report);
  if (format == "markdown" || format == "md") return render_markdown(report);
  if (format == "html") return render_html(report, sys::read_file(context.templates / "report.html", 1u << 20));
  throw Error(ErrorKind::usage, "report-format", fmt::format("there is no report format '{}'", format))
      .fix("use text, json, csv, markdown or html");
}

/// What the folders were measured by; the usual limits where none says it, or where they disagree.
Limits measured_by(Context& context, const std::vector<std::string>& inputs) {
  std::optional<Limits> limits;
  for (const auto& input : inputs) {
    const auto recorded = recorded_limits(input);
    if (!recorded) continue;
    if (limits && *limits != *recorded) {
      context.console.warn("the folders were measured with different limits; the usual ones are used");
      return {};
    }
    limits = recorded;
  }
  return limits.value_or(Limits{});
}

/// The format of the text. Under --json the answer on stdout is JSON, and a file beside it may be nothing else either: one of the two
/// options would be without effect.
std::string format_of(const Context& context, const ReportOptions& options) {
  if (!context.console.json()) return options.format.value_or("text");
  if (options.format.value_or("json") != "json") {
    throw Error(ErrorKind::usage, "report-format", fmt::format("--json and --format {} are two different formats", *options.format))
        .fix("leave one of the two out");
  }
  return "json";
}

}  // namespace

int run_report(Context& context, const ReportOptions& options) {
  std::vector<ArmInput> inputs;
  for (const auto& input : options.inputs) inputs.push_back({input, std::nullopt});
  for (const auto& arm : options.arms) inputs.push_back(arm_option(arm));
  if (inputs.empty()) {
    throw Error(ErrorKind::usage, "report-input", "no file to report on")
        .fix("name files or folders with the output of llama-bench -o json");
  }
  const auto format = format_of(context, options);
  const auto loaded = load_arms(inputs);
  for (const auto& file : loaded.skipped) context.console.detail(fmt::format("{} holds no benchmark, left out", file));
  if (loaded.arms.empty()) {
    throw Error(ErrorKind::usage, "no-benchmark", "no benchmark in what was named")
        .fix("llama-bench has to be run with -o json or -o jsonl");
  }
  const auto usual = measured_by(context, options.inputs);
  const auto report = make_report(loaded.arms, {options.spread_flag.value_or(usual.flag), options.spread_reject.value_or(usual.reject),
                                                options.material.value_or(usual.material)});
  auto text = rendered(context, report, format);
  if (options.output) {
    sys::write_file(*options.output, text, 0644);
    if (context.console.json()) {
      using nlohmann::ordered_json;
      context.console.result_json(
          ordered_json{{"schema", 1}, {"output", *options.output}, {"format", format}, {"refused", report.refused_something()}}.dump(
              -1, ' ', false, ordered_json::error_handler_t::replace));
    } else {
      context.console.say(fmt::format("written to {}", *options.output));
    }
  } else if (format == "json") {
    text.pop_back();
    context.console.result_json(text);
  } else {
    context.console.result(text);
  }
  return report.refused_something() ? exit_status(ErrorKind::unproven) : 0;
}

}  // namespace lumelift
