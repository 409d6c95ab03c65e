#include "cli/fleet_inventory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "host/sys/platform.hpp"

namespace lumelift {
namespace {

using nlohmann::json;

constexpr int ask_limit_s = 120;  // a host with many running guests
constexpr const char* own_host = "localhost";

std::string dumped(const json& object) {
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

json parsed(const std::string& text) {
  json value = json::parse(text, nullptr, false);
  return value.is_object() ? value : json::object();
}

std::string error_text(const StageDone& done) {
  return fmt::format("{}: {}", done.error_id.value_or("child-failed"),
                     done.message.empty() ? fmt::format("status {}", done.status) : done.message);
}

/// The first VM of a status object; an object that says why there is none.
json first_vm(const VmPlan& plan, const StageDone& done) {
  const json status = parsed(done.out);
  json vm = {{"name", plan.wanted.name}, {"state", plan.status}, {"unlocked", "unknown"}, {"note", done.ok() ? "" : error_text(done)}};
  if (done.ok() && status.contains("vms") && status["vms"].is_array() && !status["vms"].empty()) {
    vm.update(status["vms"].front());
  }
  vm["profile"] = plan.wanted.profile;
  vm["workloads"] = json::array();
  for (const auto& workload : plan.wanted.workloads) {
    vm["workloads"].push_back(workload.string());
  }
  vm["as_wanted"] = plan.recorded;
  return vm;
}

std::string status_text(const Console& console, const json& object) {
  std::vector<std::vector<std::string>> rows = {{"VM", "STATE", "GUEST", "UNLOCKED", "AS WANTED", "NOTE"}};
  for (const auto& vm : object["vms"]) {
    const std::string unlocked = vm.value("unlocked", "unknown");
    const bool wanted = vm.value("as_wanted", false);
    const std::string guest = vm.contains("guest") ? vm["guest"].value("os", "–") : "–";
    rows.push_back({cleaned(vm.value("name", "")), cleaned(vm.value("state", "")), cleaned(guest),
                    console.styled(cleaned(unlocked), unlocked == "yes" ? Style::good : Style::plain),
                    console.styled(wanted ? "yes" : "no", wanted ? Style::good : Style::warn), cleaned(vm.value("note", ""), 300)});
  }
  return fmt::format("HOST  preference {}    guests at a time: {}    VMs of the fleet: {}\n", object["preference"].get<std::string>(),
                     object["guest_limit"].get<int>(), object["vms"].size()) +
         table(rows);
}

/// A name that Ansible takes for a group.
std::string group_word(std::string_view text) {
  std::string out;
  for (const char c : text) {
    out += std::isalnum(static_cast<unsigned char>(c)) != 0 ? static_cast<char>(std::tolower(static_cast<unsigned char>(c))) : '_';
  }
  return out;
}

/// Builds the inventory's object.
class Inventory {
 public:
  explicit Inventory(const FleetScene& scene) : scene_(scene) {}

  void add_host(const FleetHost& host, const StageDone& answer) {
    const json status = parsed(answer.out);
    json& vars = vars_of(host.name);
    if (host.address.empty()) {
      vars["ansible_connection"] = "local";
    } else {
      vars["ansible_host"] = host.address;
      if (host.user) {
        vars["ansible_user"] = *host.user;
      }
      if (host.port) {
        vars["ansible_port"] = *host.port;
      }
    }
    vars["lumelift_host"] = host.name;
    vars["lumelift_guest_limit"] = scene_.fleet.guest_limit(host);
    vars["lumelift_error"] = answer.ok() ? json() : json(error_text(answer));
    if (status.contains("preference")) {
      vars["lumelift_preference"] = status["preference"];
    }
    vars["lumelift_vms"] = json::array();
    into("lumelift_hosts", host.name);
    if (!answer.ok()) {
      into("lumelift_unreachable", host.name);
    }
    add_vms(host, status);
  }

  [[nodiscard]] json whole() {
    std::vector<std::string> names;
    for (const auto& [name, group] : groups_.items()) {
      names.push_back(name);
    }
    json object = groups_;
    object["all"] = {{"children", names}};
    object["_meta"] = {{"hostvars", hostvars_}};
    return object;
  }
  [[nodiscard]] json one(const std::string& name) const { return hostvars_.value(name, json::object()); }

 private:
  json& vars_of(const std::string& name) {
    if (!hostvars_.contains(name)) {
      hostvars_[name] = json::object();
    }
    return hostvars_[name];
  }
  void into(const std::string& group, const std::string& name) {
    if (!groups_.contains(group)) {
      groups_[group] = {{"hosts", json::array()}};
    }
    groups_[group]["hosts"].push_back(name);
  }

  void add_vms(const FleetHost& host, const json& status) {
    std::vector<Vm> listed;
    for (const auto& one : status.value("vms", json::array())) {
      Vm vm;
      vm.name = one.value("name", "");
      vm.os = one.value("os", "macOS");
      vm.status = one.value("state", "");
      if (one.contains("address") && one["address"].is_string()) {
        vm.address = one["address"].get<std::string>();
      }
      listed.push_back(vm);
    }
    // A VM that stands in the file has an entry even where nobody can be asked about it.
    for (const auto& name : scene_.fleet.named_vms(own_name(host))) {
      if (std::any_of(listed.begin(), listed.end(), [&](const Vm& vm) { return vm.name == name; })) {
        continue;
      }
      Vm vm;
      vm.name = name;
      vm.os = "macOS";
      vm.status = "unknown";
      listed.push_back(vm);
    }
    std::vector<std::string> unmatched;
    for (const auto& wanted : scene_.fleet.vms(own_name(host), listed, unmatched)) {
      const auto vm = std::find_if(listed.begin(), listed.end(), [&](const Vm& one) { return one.name == wanted.name; });
      json seen = {{"unlocked", "unknown"}};
      for (const auto& one : status.value("vms", json::array())) {
        if (one.value("name", "") == wanted.name) {
          seen = one;
        }
      }
      add_vm(host, wanted, *vm, seen);
    }
  }

  void add_vm(const FleetHost& host, const FleetVm& wanted, const Vm& vm, const json& seen) {
    const std::string name = scene_.fleet.hosts().empty() ? wanted.name : wanted.name + "." + host.name;
    json& vars = vars_of(name);
    if (vm.address) {
      vars["ansible_host"] = *vm.address;
    }
    vars["ansible_user"] = wanted.user.value_or(scene_.options.login.user);
    vars["ansible_port"] = wanted.port.value_or(scene_.options.login.port);
    if (wanted.key) {
      vars["ansible_ssh_private_key_file"] = wanted.key->string();
    }
    // Addresses are handed out again to other VMs, so the host key belongs to the name.
    std::string arguments = fmt::format("-o HostKeyAlias=lumelift-{}-{}", host.name, group_word(wanted.name));
    if (!host.address.empty()) {
      arguments += fmt::format(" -o ProxyJump={}{}{}", host.user ? *host.user + "@" : "", host.address,
                               host.port ? fmt::format(":{}", *host.port) : "");
    }
    vars["ansible_ssh_common_args"] = arguments;
    const std::string unlocked = seen.value("unlocked", "unknown");
    vars["lumelift_vm"] = wanted.name;
    vars["lumelift_host"] = host.name;
    vars["lumelift_state"] = vm.status;
    vars["lumelift_unlocked"] = unlocked;
    vars["lumelift_note"] = seen.value("note", "");
    vars["lumelift_profile"] = wanted.profile;
    hostvars_[host.name]["lumelift_vms"].push_back(wanted.name);
    into("lumelift_vms", name);
    into("lumelift_on_" + group_word(host.name), name);
    into("lumelift_state_" + group_word(vm.status), name);
    into("lumelift_unlocked_" + (unlocked == "yes, when it runs" ? "when_it_runs" : group_word(unlocked)), name);
  }

  /// What the fleet file calls it: a file without hosts has no name for this Mac.
  [[nodiscard]] std::string own_name(const FleetHost& host) const { return scene_.fleet.hosts().empty() ? "" : host.name; }

  const FleetScene& scene_;
  json hostvars_ = json::object(), groups_ = json::object();
};

Stage ask_host(const FleetHost& host) {
  Stage stage;
  stage.what = "status";
  stage.limit_s = ask_limit_s;
  if (host.address.empty()) {
    stage.words = {sys::executable_path().string(), "--json", "status"};
    return stage;
  }
  stage.words = {"ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"};
  if (host.port) {
    stage.words.insert(stage.words.end(), {"-p", std::to_string(*host.port)});
  }
  const std::string to = (host.user ? *host.user + "@" : "") + host.address;
  // Names, addresses and the program's path are made of letters that no shell minds; see cli/fleet.
  stage.words.insert(stage.words.end(), {"--", to, host.lumelift, "--json", "status"});
  return stage;
}

}  // namespace

int fleet_status(const FleetScene& scene) {
  Console& console = scene.context.console;
  const FleetSurvey survey = survey_fleet(scene, Depth::recorded, {});
  std::vector<std::string> names;
  std::vector<Stage> stages;
  for (const auto& plan : survey.vms) {
    names.push_back(plan.wanted.name);
    stages.push_back(scene.child("status", plan.wanted, {"status"}));
  }
  const auto answers = run_each(console, "looking", scene.options.jobs, names, stages);
  json object = {{"schema", 1},
                 {"command", "status"},
                 {"fleet", scene.options.file.string()},
                 {"host", scene.host ? json(scene.host->name) : json()},
                 {"preference", shown(survey.preference)},
                 {"guest_limit", scene.fleet.guest_limit(scene.host)},
                 {"warnings", survey.warnings},
                 {"vms", json::array()}};
  for (std::size_t at = 0; at < answers.size(); ++at) {
    object["vms"].push_back(first_vm(survey.vms[at], answers[at]));
  }
  for (const auto& warning : survey.warnings) {
    console.warn(warning);
  }
  if (console.json()) {
    console.result_json(dumped(object));
  } else {
    console.result(status_text(console, object));
  }
  return 0;
}

int fleet_inventory(const FleetScene& scene) {
  if (scene.options.list == !scene.options.one.empty()) {
    throw Error(ErrorKind::usage, "usage", "fleet inventory needs --list or --host NAME").fix("see: lumelift fleet --help");
  }
  std::vector<FleetHost> hosts = scene.fleet.hosts();
  if (hosts.empty()) {
    hosts.push_back({own_host, {}, {}, {}, "lumelift", {}});
  }
  std::vector<std::string> names;
  std::vector<Stage> stages;
  for (const auto& host : hosts) {
    names.push_back(host.name);
    stages.push_back(ask_host(host));
  }
  const auto answers = run_each(scene.context.console, "asking", scene.options.jobs, names, stages);
  Inventory inventory(scene);
  for (std::size_t at = 0; at < hosts.size(); ++at) {
    inventory.add_host(hosts[at], answers[at]);
  }
  scene.context.console.result_json(dumped(scene.options.list ? inventory.whole() : inventory.one(scene.options.one)));
  return 0;
}

}  // namespace lumelift
