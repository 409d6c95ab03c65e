#include "cli/vm_name.hpp"

#include <fmt/format.h>

#include "cli/yaml_reader.hpp"

namespace lumelift {

Vm find_vm(const Lume& lume, const std::string& name) {
  if (auto vm = lume.find(name)) {
    return *vm;
  }
  throw unknown_vm(lume, name);
}

Error unknown_vm(const Lume& lume, const std::string& name) {
  Error error(ErrorKind::usage, "vm-unknown", fmt::format("lume knows no VM named '{}'", name));
  try {
    std::vector<std::string> names;
    for (const auto& vm : lume.list()) {
      names.push_back(vm.name);
    }
    if (const auto meant = nearest(name, names)) {
      error.note(fmt::format("did you mean '{}'?", *meant));
    }
  } catch (const Error&) {
    // One broken VM can spoil the whole list; the answer to the question stands without it.
  }
  error.fix("see: lume ls");
  return error;
}

void require_own_address(const std::vector<Vm>& listed, const std::string& name, const std::string& address) {
  for (const auto& vm : listed) {
    if (vm.name == name || vm.power() != Power::running || vm.address != address) {
      continue;
    }
    throw Error(ErrorKind::busy, "vm-address-shared",
                fmt::format("lume names one address for '{}' and '{}', which both run: {}", name, vm.name, address))
        .note("which of the two answers there cannot be told, so nothing was asked of it; no password was sent")
        .fix(fmt::format("restart one of them, so that it gets an address of its own: lume stop {}", vm.name));
  }
}

std::vector<std::string> others_without_address(const std::vector<Vm>& listed, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& vm : listed) {
    if (vm.name != name && vm.power() == Power::running && !vm.address) {
      names.push_back(vm.name);
    }
  }
  return names;
}

}  // namespace lumelift
