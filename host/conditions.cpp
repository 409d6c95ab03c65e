#include "host/conditions.hpp"

#include <unistd.h>

#include <charconv>
#include <string>

#include "host/sys/error.hpp"

namespace lumelift {

std::unique_ptr<sys::Companion> stay_awake() {
  try {
    return std::make_unique<sys::Companion>(std::vector<std::string>{"caffeinate", "-i", "-w", std::to_string(::getpid())});
  } catch (const Error&) {
    return nullptr;
  }
}

int gpu_cores() {
  // AGXAccelerator is the class above all of Apple's own GPUs; a guest has none.
  const auto outcome = sys::run({.argv = {"ioreg", "-rd1", "-c", "AGXAccelerator"}}, sys::Deadline::in(sys::Milliseconds(10'000)));
  constexpr std::string_view mark = "\"gpu-core-count\" = ";
  const auto at = outcome.out.find(mark);
  int cores = 0;
  if (at != std::string::npos) {
    std::from_chars(outcome.out.data() + at + mark.size(), outcome.out.data() + outcome.out.size(), cores);
  }
  return cores;
}

}  // namespace lumelift
