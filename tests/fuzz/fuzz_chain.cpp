// Scripts and wrappers that stand between a user and a program.
#include <string>

#include "cli/launch_chain.hpp"
#include "fuzz.hpp"

using namespace lumelift;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(fuzz::text_of(data, size));
  (void)exec_target(text, "/opt/run");
  FileView view;
  view.look = [](const std::string&) { return PathLook{EntryKind::file, 0755, {}}; };
  view.read = [&](const std::string&) { return text; };
  const auto chain = follow({"/opt/run", "a"}, view);
  fuzz::require(chain.links.size() < 100, "a chain has an end");
  return 0;
}
