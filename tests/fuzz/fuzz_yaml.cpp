// Profile, workload and fleet files. They are read from a file, so each input is put into one that lives in memory.
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "cli/fleet.hpp"
#include "cli/profile.hpp"
#include "cli/yaml_reader.hpp"
#include "fuzz.hpp"

using namespace lumelift;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const int file = ::memfd_create("input.yaml", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  fuzz::require(::ftruncate(file, 0) == 0 && ::pwrite(file, data, size, 0) == static_cast<ssize_t>(size), "the input was written");
  fuzz::tolerate([&] {
    const Profile profile = load_profile(path, "/nowhere");
    fuzz::require(profile.apple_family_max >= 1001 && profile.apple_family_max <= 1009, "a profile stays within its families");
  });
  fuzz::tolerate([&] {
    const Workload workload = load_workload(path);
    fuzz::require(!workload.name.empty() && !workload.agents.empty(), "a workload has a name and an agent");
    for (const auto& agent : workload.agents) {
      fuzz::require(!agent.executable.empty() && !agent.label.empty(), "an agent has a program and a label");
    }
  });
  fuzz::tolerate([&] {
    const Fleet fleet = Fleet::load(path, "/home/me");
    fuzz::require(fleet.guest_limit(std::nullopt) >= 1, "a fleet has room for a guest");
    std::vector<std::string> unmatched;
    const std::vector<Vm> listed{{.name = "ci-1", .os = "macOS", .status = "running"},
                                 {.name = "ci-2", .os = "macOS", .status = "stopped"}};
    for (const auto& host : fleet.hosts()) {
      fuzz::require(!host.name.empty() && host.name.front() != '-', "a host has a name that is no option");
      fuzz::tolerate([&] { (void)fleet.vms(host.name, listed, unmatched); });
    }
    for (const auto& vm : fleet.vms("", listed, unmatched)) {
      fuzz::require((vm.name == "ci-1" || vm.name == "ci-2") && vm.timeout_s > 0, "only VMs that there are, with time to answer");
    }
  });
  fuzz::tolerate([&] {
    const auto value = YamlValue::parse(fuzz::text_of(data, size), "input", "input-invalid");
    if (value.is_map()) {
      for (const auto& [key, entry] : value.entries()) {
        fuzz::tolerate([&, &k = key, &e = entry] { (void)k.string(), (void)e.text(); });
      }
    }
  });
  return 0;
}
