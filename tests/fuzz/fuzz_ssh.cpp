// A server's first bytes, key files, and foreign text on its way to the terminal.
#include "cli/console.hpp"
#include "fuzz.hpp"
#include "remote/kex.hpp"
#include "remote/key_file.hpp"

using namespace lumelift;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto text = fuzz::text_of(data, size);
  if (const auto offer = read_offer(text)) {
    (void)share_a_name(offer->kex, offer->host_key);
  }
  (void)look_at_key(text);
  const auto shown = cleaned(text);
  for (const unsigned char c : shown) {
    fuzz::require(c == '\n' || c == '\t' || (c >= 0x20 && c != 0x7f), "cleaned text holds no controls");
  }
  fuzz::require(cleaned(shown) == shown, "cleaning twice is cleaning once");
  return 0;
}
