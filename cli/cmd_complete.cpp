#include "cli/completion.hpp"
#include "cli/profile_names.hpp"
#include "host/lume_command.hpp"

namespace lumelift {
namespace {

// Who pressed Tab waits no longer than this for names.
constexpr sys::Milliseconds patience{1'500};

std::vector<std::string> vm_names() try {
  std::vector<std::string> out;
  for (const auto& vm : list_vms(sys::Deadline::in(patience))) {
    out.push_back(vm.name);
  }
  return out;
} catch (const Error&) {
  return {};
}

}  // namespace

int run_complete(Context& context, const Reference& reference, const std::vector<std::string>& words) {
  const LiveNames live = [&](std::string_view placeholder) {
    if (placeholder == "VM") {
      return vm_names();
    }
    return placeholder == "PROFILE" ? profile_names(context.templates) : std::vector<std::string>{};
  };
  const std::string lines = lines_of(complete(reference, words, live));
  if (!lines.empty()) {
    context.console.result(lines);
  }
  return 0;
}

}  // namespace lumelift
