#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/bug_report.hpp"
#include "cli/sanitise.hpp"
#include "host/sys/file.hpp"
#include "host/sys/platform.hpp"
#include "host/sys/process.hpp"

namespace lumelift {
namespace {

constexpr std::size_t part_cap = 256u << 10;

std::string heading(std::string_view title, const std::string& text) {
  return fmt::format("== {}\n{}{}\n", title, text, text.ends_with('\n') ? "" : "\n");
}

/// What another command of this program answers: in a process of its own, so that its failure is part of the report.
std::string answer_of(std::vector<std::string> words) {
  words.insert(words.begin(), sys::executable_path().string());
  const auto outcome = sys::run({.argv = words, .output_cap = part_cap}, sys::Deadline::in(sys::Milliseconds{120'000}));
  return fmt::format("{}{}({})\n", outcome.out, outcome.err, outcome.ending());
}

std::string content(const std::filesystem::path& file) {
  std::error_code fault;
  if (!std::filesystem::exists(file, fault)) {
    return "not there";
  }
  try {
    return sys::read_file(file, part_cap);
  } catch (const Error& error) {
    return error.message();
  }
}

}  // namespace

int run_bug_report(Context& context, const BugReportOptions& options) {
  std::string variables;
  for (const auto& [name, value] : options.variables) {
    variables += fmt::format("{}={}\n", name, value);
  }
  std::string text = heading("versions", options.version) + heading("environment", variables);
  std::vector<std::string> doctor = {"--json", "doctor"};
  if (!options.vm.empty()) {
    doctor.push_back(options.vm);
  }
  text += heading("doctor", answer_of(doctor)) + heading("history", answer_of({"--json", "history"}));
  for (const auto& file : options.settings) {
    text += heading(fmt::format("settings in {}", file.string()), content(file));
  }

  Sanitiser sanitiser;
  sanitiser.learn_user(options.user);
  sanitiser.learn_host(options.host);
  sanitiser.learn_home(context.home.string());
  sanitiser.learn(text);
  sys::write_file(options.output, sanitiser.clean(cleaned(text, 4 * part_cap)), 0600);
  if (context.console.json()) {
    context.console.result_json(
        nlohmann::json{{"report", options.output.string()}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    context.console.result(
        fmt::format("{} is written. User and host names, folders and addresses are taken out; names of VMs stay. "
                    "Read it before you post it: nothing was sent.",
                    cleaned(options.output.string())));
  }
  return 0;
}

}  // namespace lumelift
