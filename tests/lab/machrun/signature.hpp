#pragma once

#include <string>

#include "machrun/image.hpp"

namespace lab {

/// What the code signature and the file's mode say about injection.
struct Restrictions {
  bool environment_ignored = false;  // dyld removes DYLD_* for this program
  bool library_validation = false;   // only libraries of the same team may be loaded
  std::string team;                  // empty: ad hoc or unsigned
};

[[nodiscard]] Restrictions read_restrictions(const Image& program);
[[nodiscard]] std::string read_team(const Image& library);

}  // namespace lab
