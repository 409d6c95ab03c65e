// Files of benchmark programs, and what is made of them: every rendering of the report.
#include "cli/banner.hpp"
#include "cli/report.hpp"
#include "cli/samples.hpp"
#include "cli/sanitise.hpp"
#include "fuzz.hpp"

using namespace lumelift;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto text = fuzz::text_of(data, size);
  const Banner banner = parse_banner(text);
  (void)banner.summary();
  Sanitiser sanitiser;
  sanitiser.learn(text);
  const auto once = sanitiser.clean(text);
  fuzz::require(sanitiser.clean(once) == once, "cleaning twice is cleaning once");
  auto arm = parse_arm(text, "input.json");
  if (!arm) {
    return 0;
  }
  Arm other = *arm;
  arm->role = Role::stock;
  other.role = Role::unlocked;
  const Report report = make_report({*arm, other}, Limits{});
  (void)render_text(report);
  (void)render_markdown(report);
  (void)render_csv(report);
  (void)render_json(report);
  return 0;
}
