// JSON that comes from a guest: the probe's answer, the library's receipt and its trace; and records of the journal.
#include <string>

#include "cli/explanation.hpp"
#include "cli/plan.hpp"
#include "cli/proof.hpp"
#include "cli/receipt.hpp"
#include "fuzz.hpp"

using namespace lumelift;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(fuzz::text_of(data, size));
  fuzz::tolerate([&] {
    const auto answers = parse_probe(text);
    (void)shortfalls({answers, answers}, Profile{"tested", 1009, 65536, 0});
    fuzz::require(parse_probe(answers.raw).families == answers.families, "what is kept of an answer says the same");
  });
  fuzz::tolerate([&] {
    const Trace trace = parse_trace(text);
    fuzz::require(!explain(trace, Profile{"tested", 1009, 65536, 0}, nullptr).outlooks.empty(), "every trace is judged");
  });
  if (const auto receipt = parse_receipt(text)) {
    const auto again = parse_receipt(receipt->json);
    fuzz::require(again && again->pid == receipt->pid && again->outcome == receipt->outcome, "what is kept of a receipt says the same");
  }
  fuzz::tolerate([&] {
    const Step step = step_from_json(text);
    fuzz::require(step_from_json(to_json(step)) == step, "a step comes back as it was recorded");
  });
  fuzz::tolerate([&] {
    const PrefValue value = pref_from_json(text);
    fuzz::require(pref_from_json(to_json(value)) == value, "a preference comes back as it was recorded");
  });
  return 0;
}
