#include "cli/unlock_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/readiness.hpp"

namespace lumelift {
namespace {

using nlohmann::json;

constexpr int metal3 = 5001;

std::string seconds(sys::Milliseconds span) {
  return fmt::format("{:.1f} s", static_cast<double>(span.count()) / 1000);
}

json parsed(const std::string& text) {
  json value = json::parse(text, nullptr, false);
  return value.is_discarded() ? json() : value;
}

json probe_json(const ProbeAnswers& answers) {
  return {{"device", answers.device},
          {"slice", answers.slice},
          {"apple_family", answers.highest_apple},
          {"threadgroup_memory", answers.threadgroup_memory},
          {"metal3", answers.family(metal3)},
          {"raw", parsed(answers.raw)}};
}

std::string dumped(const json& object) {
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

/// A guest path as a person writes it.
std::string short_path(const std::string& path, const std::optional<GuestFacts>& guest) {
  return guest && path.starts_with(guest->home + "/") ? "~" + path.substr(guest->home.size()) : path;
}

std::string arrow(const std::string& a, const std::string& b) {
  return a == b ? a : a + " → " + b;
}

}  // namespace

std::string UnlockReport::headline() const {
  std::string line = vm;
  if (guest) {
    line += fmt::format("  macOS {} ({})", guest->os, guest->build);
  }
  return line + fmt::format("  on {}, lume {}", host.chip.empty() ? host.model : host.chip, lume);
}

std::string UnlockReport::probe_line() const {
  const auto& a = probes->stock;
  const auto& b = probes->unlocked;
  return fmt::format("Apple family {}    threadgroup memory {} KB    Metal 3 {}",
                     arrow(std::to_string(a.highest_apple % 1000), std::to_string(b.highest_apple % 1000)),
                     arrow(std::to_string(a.threadgroup_memory / 1024), std::to_string(b.threadgroup_memory / 1024)),
                     b.family(metal3) ? "as the device reports" : "stays off");
}

std::string UnlockReport::Agent::line() const {
  return fmt::format("{} running in {}, pid {}, library {}", goal.label, goal.domain, proof.pid, name_of(proof.library));
}

std::string UnlockReport::text(const Console& console) const {
  if (steps.empty()) {
    std::string checked = fmt::format("preference, boot, {} files, probe", files.size());
    if (!agents.empty()) {
      checked += agents.size() == 1 ? ", agent, receipt" : fmt::format(", {} agents, receipts", agents.size());
    }
    return fmt::format("{} is unlocked already; nothing to change.  (checked: {})", vm, checked);
  }
  std::string out = console.styled("Unlocked.", Style::good);
  out += fmt::format(" {} in {}", vm, seconds(total));
  if (vm_time.count() > 0) {
    out += fmt::format(", of which {} were the VM's own stop and boot", seconds(vm_time));
  }
  out += fmt::format("\n  profile   {}: Apple family {}, threadgroup memory {}\n", profile.name, profile.apple_family_max % 1000,
                     profile.threadgroup_memory == 0 ? "as reported" : fmt::format("{} bytes", profile.threadgroup_memory));
  out += fmt::format("  host      preference {}\n", arrow(shown(preference_before), shown(preference)));
  for (const auto& file : files) {
    const bool changed = std::any_of(steps.begin(), steps.end(), [&](const Step& step) {
      const auto* put = std::get_if<PutFile>(&step);
      return put != nullptr && put->path == file.path;
    });
    out += fmt::format("  {}  {}  {}  sha256 {}\n", changed ? "copied  " : "kept    ", cleaned(short_path(file.path, guest)),
                       shown_bytes(file.state.size), file.state.sha256);
  }
  for (const auto& agent : agents) {
    out += fmt::format("  agent     {} in {}, logs {}\n", agent.goal.label, agent.goal.domain,
                       cleaned(short_path(std::filesystem::path(agent.goal.stderr_log).parent_path().string(), guest)));
  }
  if (!standing.empty()) {
    out += fmt::format("This combination: {}.\n", standing);
  }
  return out + fmt::format("Undo: lumelift rollback {}", vm);
}

std::string UnlockReport::json() const {
  nlohmann::json object = {
      {"schema", 1},
      {"vm", vm},
      {"changed", !steps.empty()},
      {"lume", lume},
      {"lumelift", LUMELIFT_VERSION},
      {"host", {{"model", host.model}, {"chip", host.chip}, {"os", host.os}, {"build", host.build}}},
      {"profile",
       {{"name", profile.name},
        {"apple_family_max", profile.apple_family_max},
        {"threadgroup_memory", profile.threadgroup_memory},
        {"working_set", profile.working_set}}},
      {"goal", goal},
      {"kit", kit},
      {"preference", {{"before", parsed(to_json(preference_before))}, {"now", parsed(to_json(preference))}}},
      {"library", parsed(library)},
      {"standing", standing},
      {"warnings", warnings},
      {"seconds", {{"total", static_cast<double>(total.count()) / 1000}, {"vm", static_cast<double>(vm_time.count()) / 1000}}},
      {"ssh_connections", connections},
      {"undo", "lumelift rollback " + vm}};
  object["steps"] = nlohmann::json::array();
  for (const auto& step : steps) {
    object["steps"].push_back(parsed(to_json(step)));
  }
  object["files"] = nlohmann::json::array();
  for (const auto& file : files) {
    object["files"].push_back(
        {{"path", file.path}, {"sha256", file.state.sha256}, {"size", file.state.size}, {"mode", fmt::format("{:04o}", file.state.mode)}});
  }
  if (guest) {
    object["guest"] = {{"os", guest->os},
                       {"build", guest->build},
                       {"model", guest->model},
                       {"chip", guest->chip},
                       {"user", guest->user},
                       {"uid", guest->uid},
                       {"sip", guest->sip ? nlohmann::json(*guest->sip) : nlohmann::json()}};
  }
  if (probes) {
    object["probe"] = {{"stock", probe_json(probes->stock)}, {"unlocked", probe_json(probes->unlocked)}};
  }
  object["agents"] = nlohmann::json::array();
  for (const auto& agent : agents) {
    object["agents"].push_back({{"label", agent.goal.label},
                                {"domain", agent.goal.domain},
                                {"pid", agent.proof.pid},
                                {"library", name_of(agent.proof.library)},
                                {"receipt", parsed(agent.proof.receipt)},
                                {"ready", parsed(to_json(agent.goal.ready))}});
  }
  // The shape of reports with one agent, which scripts know.
  if (agents.size() == 1) {
    object["agent"] = object["agents"].front();
  }
  return dumped(object);
}

void print_plan(Console& console, const Plan& plan, bool guest_known, bool promises) {
  const bool changes = promises || !plan.steps.empty();
  if (console.json()) {
    json object = {{"schema", 1},        {"vm", plan.vm}, {"dry_run", true}, {"changes", changes}, {"guest_known", guest_known},
                   {"notes", plan.notes}};
    object["steps"] = json::array();
    for (const auto& step : plan.steps) {
      object["steps"].push_back(parsed(to_json(step)));
    }
    console.result_json(dumped(object));
    return;
  }
  std::string out = !changes && guest_known ? fmt::format("{}: nothing would change.\n", plan.vm) : fmt::format("{}: would do\n", plan.vm);
  int number = 0;
  for (const auto& step : plan.steps) {
    out += fmt::format("{:>3}. {}\n", ++number, cleaned(described(step)));
  }
  for (const auto& note : plan.notes) {
    out += "     " + note + "\n";
  }
  console.result(out + "Nothing was changed (--dry-run).");
}

}  // namespace lumelift
