#include "machrun/signature.hpp"

#include <sys/stat.h>

#include <cstring>
#include <string_view>

namespace lab {
namespace {

constexpr uint32_t kSuperBlob = 0xfade0cc0, kCodeDirectory = 0xfade0c02, kEntitlements = 0xfade7171, kEntitlementsDer = 0xfade7172;
constexpr uint32_t kRestrict = 0x800, kRequireValidation = 0x2000, kRuntime = 0x10000;
constexpr std::string_view kAllowEnvironment = "com.apple.security.cs.allow-dyld-environment-variables";
constexpr std::string_view kNoValidation = "com.apple.security.cs.disable-library-validation";

uint32_t big32(const char* p) {
  uint32_t value;
  std::memcpy(&value, p, sizeof value);
  return __builtin_bswap32(value);
}

struct Signature {
  uint32_t flags = 0;
  std::string team;
  std::string_view xml, der;
};

Signature read_signature(const Image& image) {
  Signature out;
  const auto* lc = image.command<macho::LinkeditData>(macho::kCodeSignature);
  if (!lc || lc->datasize < 12) return out;
  const std::string_view blob(reinterpret_cast<const char*>(image.linkedit(lc->dataoff)), lc->datasize);
  if (big32(blob.data()) != kSuperBlob) return out;
  const uint32_t count = big32(blob.data() + 8);
  for (uint32_t i = 0; i < count && 12 + (i + 1) * 8 <= blob.size(); ++i) {
    const uint32_t offset = big32(blob.data() + 12 + i * 8 + 4);
    if (offset > blob.size() - 8) continue;
    const uint32_t length = big32(blob.data() + offset + 4);
    if (length < 8 || length > blob.size() - offset) continue;
    const std::string_view part = blob.substr(offset, length);
    switch (big32(part.data())) {
      case kCodeDirectory:
        if (part.size() < 52) break;
        out.flags |= big32(part.data() + 12);
        if (const uint32_t at = big32(part.data() + 48); big32(part.data() + 8) >= 0x20200 && at && at < part.size())
          out.team.assign(part.data() + at, strnlen(part.data() + at, part.size() - at));
        break;
      case kEntitlements:
        out.xml = part.substr(8);
        break;
      case kEntitlementsDer:
        out.der = part.substr(8);
        break;
      default:
        break;
    }
  }
  return out;
}

bool entitled(const Signature& signature, std::string_view key) {
  if (const size_t at = signature.xml.find("<key>" + std::string(key) + "</key>"); at != std::string_view::npos) {
    const std::string_view rest = signature.xml.substr(at + key.size() + 11);
    const size_t value = rest.find_first_not_of(" \t\r\n");
    return value != std::string_view::npos && rest.substr(value, 5) == "<true";
  }
  const size_t at = signature.der.find(key);
  return at != std::string_view::npos && signature.der.substr(at + key.size(), 3) == std::string_view("\x01\x01\xff", 3);
}

}  // namespace

Restrictions read_restrictions(const Image& program) {
  const Signature signature = read_signature(program);
  Restrictions out;
  out.team = signature.team;
  struct stat info {};
  const bool set_id = ::stat(program.path.c_str(), &info) == 0 && (info.st_mode & (S_ISUID | S_ISGID));
  const bool hardened = signature.flags & kRuntime;
  out.environment_ignored = set_id || program.section("__RESTRICT", "__restrict") || (signature.flags & kRestrict) ||
                            (hardened && !entitled(signature, kAllowEnvironment));
  out.library_validation = (hardened || (signature.flags & kRequireValidation)) && !entitled(signature, kNoValidation);
  return out;
}

std::string read_team(const Image& library) {
  return read_signature(library).team;
}

}  // namespace lab
