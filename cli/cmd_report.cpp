#include <fmt/format.h>

#include "cli/arms.hpp"
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

}  // namespace

int run_report(Context& context, const ReportOptions& options) {
  std::vector<ArmInput> inputs;
  for (const auto& input : options.inputs) inputs.push_back({input, std::nullopt});
  for (const auto& arm : options.arms) inputs.push_back(arm_option(arm));
  if (inputs.empty()) {
    throw Error(ErrorKind::usage, "report-input", "no file to report on")
        .fix("name files or folders with the output of llama-bench -o json");
  }
  const auto loaded = load_arms(inputs);
  for (const auto& file : loaded.skipped) context.console.detail(fmt::format("{} holds no benchmark, left out", file));
  if (loaded.arms.empty()) {
    throw Error(ErrorKind::usage, "no-benchmark", "no benchmark in what was named")
        .fix("llama-bench has to be run with -o json or -o jsonl");
  }
  const auto report = make_report(loaded.arms, {options.spread_flag, options.spread_reject, options.material});
  const auto format = context.console.json() ? std::string("json") : options.format;
  auto text = rendered(context, report, format);
  if (options.output) {
    sys::write_file(*options.output, text, 0644);
    context.console.say(fmt::format("written to {}", *options.output));
  } else if (format == "json") {
    text.pop_back();
    context.console.result_json(text);
  } else {
    context.console.result(text);
  }
  return report.refused_something() ? exit_status(ErrorKind::unproven) : 0;
}

}  // namespace lumelift
