#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.hpp"
#include "cli/reference.hpp"

namespace lumelift {

/// What can stand where the cursor is.
struct Candidate {
  std::string insert, text;  ///< the whole word; what it means
  bool operator==(const Candidate&) const = default;
};
struct Completion {
  enum class Also { nothing, files, folders };
  std::vector<Candidate> candidates;
  Also also = Also::nothing;  ///< what the shell itself is to offer besides
};

/// Names that only the running system knows, for a placeholder: "VM", "PROFILE". Empty for any other.
using LiveNames = std::function<std::vector<std::string>(std::string_view placeholder)>;

/// `words` are those after the program's name up to the cursor; the last one, possibly empty, is being typed. A "="
/// that a shell made a word of its own is understood. Pure but for `live`, which is asked at most once.
[[nodiscard]] Completion complete(const Reference& reference, const std::vector<std::string>& words, const LiveNames& live);

/// For the shells' scripts: "word<TAB>meaning" a line, last ":files" or ":folders". Words with control characters are
/// left out.
[[nodiscard]] std::string lines_of(const Completion& completion);

/// Offers what can stand at the end of `words`. Fast or without VM names; never an error.
[[nodiscard]] int run_complete(Context& context, const Reference& reference, const std::vector<std::string>& words);

}  // namespace lumelift
