#include "cli/receipt.hpp"

#include <charconv>
#include <nlohmann/json.hpp>

#include "cli/json_text.hpp"

namespace lumelift {
namespace {

using nlohmann::json;

std::string text_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// "1764422000.004211": whole seconds; nothing when it is no such text.
std::optional<std::int64_t> seconds_of(const std::string& text) {
  std::int64_t seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  return error == std::errc{} && end != text.data() ? std::optional(seconds) : std::nullopt;
}

}  // namespace

std::optional<Receipt> parse_receipt(std::string_view text) {
  const json object = json::parse(json_text(text), nullptr, false);
  if (!object.is_object()) { return std::nullopt; }
  Receipt receipt;
  const auto pid = object.find("pid");
  if (pid != object.end() && pid->is_number_integer()) { receipt.pid = pid->get<std::int64_t>(); }
  receipt.started = seconds_of(text_of(object, "started"));
  receipt.outcome = text_of(object, "outcome");
  receipt.reason = text_of(object, "reason");
  receipt.json = object.dump(-1, ' ', false, json::error_handler_t::replace);
  return receipt;
}

}  // namespace lumelift
