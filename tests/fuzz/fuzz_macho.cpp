// Entry for libFuzzer: whatever bytes come, the readers end in a result or an Error. tests/fuzz/run builds and starts
// it.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "host/sys/error.hpp"
#include "shim/macho.hpp"

namespace {

/// Any deterministic function does: the point is which bytes are read, not what they hash to.
lumelift::Digest256 cheap_digest(std::span<const std::byte> bytes) {
  lumelift::Digest256 out{};
  for (std::size_t i = 0; i < bytes.size(); i += 64) {
    out[i / 64 % out.size()] ^= bytes[i];
  }
  return out;
}

void read_everything(std::span<const std::byte> file) {
  const auto parsed = lumelift::MachO::parse(file);
  for (const auto& slice : parsed.slices) {
    if (slice.signature) {
      (void)check_signature(slice_bytes(file, slice), *slice.signature, cheap_digest);
      (void)slice.signature->grants("com.apple.security.cs.allow-dyld-environment-variables");
    }
    (void)imports(file, slice);
    (void)exports(file, slice);
  }
}

template <typename Function>
void tolerate(Function function) {
  try {
    function();
  } catch (const lumelift::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  tolerate([&] { read_everything(bytes); });
  tolerate([&] { (void)lumelift::parse_plist_xml({reinterpret_cast<const char*>(data), size}); });
  tolerate([&] { (void)lumelift::parse_entitlements_der(bytes); });
  return 0;
}
