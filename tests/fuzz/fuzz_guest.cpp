// What scripts of ours print in a guest: facts, files, transfers, mapped libraries, launchd's jobs, its clock; logs; replies of its
// servers.
#include "cli/log_text.hpp"
#include "fuzz.hpp"
#include "remote/guest_parse.hpp"
#include "remote/http.hpp"
#include "remote/inspect.hpp"
#include "remote/log.hpp"
#include "remote/script.hpp"
#include "remote/transfer_answer.hpp"

using namespace lumelift;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto text = fuzz::text_of(data, size);
  const auto answer = unframe(text);
  if (answer) {
    fuzz::require(answer->body.size() < size, "a frame holds less than what surrounds it");
  }
  const auto body = answer ? std::string_view(answer->body) : text;
  (void)parse_records(body);
  fuzz::tolerate([&] {
    const auto facts = parse_facts(body);
    fuzz::require(facts.home.starts_with('/'), "a home is absolute");
  });
  const std::size_t count = size % 5;
  if (const auto seen = parse_look(body, count)) {
    fuzz::require(seen->size() == count, "one answer for each path");
  }
  const auto job = parse_job(body);
  (void)job.draining();
  (void)refusal("/path", answer.value_or(ScriptAnswer{}), size);
  (void)first_word(body);
  (void)second_word(body);
  (void)parse_lsof(body);
  (void)parse_vmmap(body);
  fuzz::tolerate([&] { (void)parse_clock(body); });
  fuzz::require(lines_since(body, 1'700'000'000, 0, 3600).size() <= body.size() + 1, "lines are only left out");
  fuzz::tolerate([&] {
    const auto reply = http_reply(text, size % 2 == 0);
    fuzz::require(!reply || reply->body.size() < size, "a reply holds less than what was received");
  });
  return 0;
}
