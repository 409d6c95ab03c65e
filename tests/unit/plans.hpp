#pragma once

#include <string>
#include <type_traits>

#include "cli/plan.hpp"
#include "host/sys/error.hpp"

namespace lumelift::test {

/// What `body` throws; an Error "nothing-thrown" when it does not.
template <class Body>
Error thrown(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorKind::failed, "nothing-thrown", "nothing was thrown");
}

/// A plan for a golden file: what a person reads, then what the journal keeps.
inline std::string text_of(const Plan& plan) {
  std::string out = plan.vm + "\n";
  for (const auto& note : plan.notes) {
    out += "note  " + note + "\n";
  }
  for (const auto& step : plan.steps) {
    out += described(step) + "\n";
  }
  for (const auto& step : plan.steps) {
    out += to_json(step) + "\n";
  }
  return out;
}

}  // namespace lumelift::test
