#include "cli/receipt.hpp"

#include <fmt/format.h>

#include <algorithm>
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
  if (!object.is_object()) {
    return std::nullopt;
  }
  Receipt receipt;
  const auto pid = object.find("pid");
  if (pid != object.end() && pid->is_number_integer()) {
    receipt.pid = pid->get<std::int64_t>();
  }
  receipt.started = seconds_of(text_of(object, "started"));
  receipt.outcome = text_of(object, "outcome");
  receipt.reason = text_of(object, "reason");
  receipt.json = object.dump(-1, ' ', false, json::error_handler_t::replace);
  return receipt;
}

std::string receipt_defect(std::string_view receipt, std::optional<int> pid) {
  const auto seen = parse_receipt(receipt);
  if (!seen) {
    return "the library wrote no receipt: it was not in the process";
  }
  if (!pid || seen->pid != *pid) {
    return "the library's receipt is of another process";
  }
  if (seen->outcome == "active") {
    return {};
  }
  return fmt::format("the library was {}: {}", seen->outcome, seen->reason);
}

std::string receipts_defect(std::string_view receipts) {
  std::string defect = "the library wrote no receipt: it was in none of the processes";
  while (!receipts.empty()) {
    const auto line = receipts.substr(0, receipts.find('\n'));
    receipts.remove_prefix(std::min(receipts.size(), line.size() + 1));
    const auto seen = parse_receipt(line);
    if (!seen || seen->outcome.empty()) {
      continue;
    }
    if (seen->outcome == "active") {
      return {};
    }
    defect = "the library is in the processes, but none of them asked for the GPU with it";
  }
  return defect;
}

}  // namespace lumelift
