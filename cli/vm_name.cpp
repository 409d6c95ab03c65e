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

}  // namespace lumelift
