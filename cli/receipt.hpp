#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lumelift {

/// What the injected library wrote of one process. From the guest and therefore untrusted.
struct Receipt {
  std::optional<std::int64_t> pid;      ///< in the guest
  std::optional<std::int64_t> started;  ///< when the process was: seconds since 1970 by the guest's clock
  std::string outcome, reason;          ///< "active", "armed" or "stock"; why it is stock
  std::string json;                     ///< all of it
};

/// Nothing for what is no JSON object. Pure.
[[nodiscard]] std::optional<Receipt> parse_receipt(std::string_view text);

/// Why a receipt does not prove that process `pid` was unlocked; empty when it does.
[[nodiscard]] std::string receipt_defect(std::string_view receipt, std::optional<int> pid);
/// The same for the receipts of a process and all of its children, one a line: one of them must have the raised answers.
[[nodiscard]] std::string receipts_defect(std::string_view receipts);

}  // namespace lumelift
