// What lume prints: VM objects among log lines, its version, the log of a start; and the property list of `defaults export`.
#include "fuzz.hpp"
#include "host/lume_text.hpp"
#include "host/property_list.hpp"

using namespace lumelift;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto text = fuzz::text_of(data, size);
  if (const auto vms = lume_text::vms_in(text)) {
    for (const auto& vm : *vms) {
      fuzz::require(!vm.name.empty() && !vm.status.empty(), "a VM has name and status");
    }
  }
  if (const auto version = lume_text::version_in(text)) {
    (void)lume_text::at_least(*version, "0.5.0");
  }
  (void)lume_text::start_failure_in(text);
  (void)lume_text::detached_in(text);
  (void)lume_text::quoted(text);
  fuzz::tolerate([&] { (void)read_property_list(text); });
  return 0;
}
