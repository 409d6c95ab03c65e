#include "host/sys/error.hpp"
#include "remote/guest.hpp"
#include "remote/script.hpp"

namespace lumelift {
namespace {

using namespace std::chrono_literals;

// Some releases of lume show a single folder there itself, others each folder by its name, numbered where two have the
// same.
constexpr std::string_view find_script = R"sh(for place in "/Volumes/My Shared Files" "/Volumes/My Shared Files"/*; do
  if [ -f "$place/$1" ]; then
    printf '%s' "$place"
    exit 0
  fi
done)sh";

}  // namespace

std::optional<std::string> Guest::share_with(const std::string& marker, const sys::Deadline& deadline) {
  for (;;) {
    auto answer = run_script(session_, "look for the share in the guest", find_script, {marker}, sys::Deadline::in(30s));
    if (!answer.body.empty()) {
      return answer.body;
    }
    if (deadline.expired()) {
      return std::nullopt;
    }
    sys::pause(300ms, deadline);
  }
}

}  // namespace lumelift
