#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shim/plist.hpp"

namespace lumelift {

/// Flags of a code directory that decide about injection.
enum class SignatureFlag : std::uint32_t {
  adhoc = 0x2,         ///< no certificate
  hard = 0x100,        ///< refuses to load invalid pages
  kill = 0x200,        ///< is killed when a page turns out invalid
  restricted = 0x800,  ///< dyld must drop DYLD_*
  library_validation = 0x2000,
  hardened_runtime = 0x10000,
  linker_signed = 0x20000,
};

/// What the embedded code signature of one slice says. Values only; offsets count from the start of the slice and have
/// been checked against it.
struct CodeSignature {
  struct Blob {
    std::uint32_t slot = 0;
    std::uint64_t offset = 0, size = 0;
    bool operator==(const Blob&) const = default;
  };

  std::uint32_t flags = 0;
  std::string identifier;
  std::string team_id;           ///< empty: none
  bool has_certificate = false;  ///< a non-empty CMS blob is there; it is not verified here
  std::uint8_t hash_type = 0;    ///< 1 SHA-1, 2 SHA-256, 3 SHA-256 cut to 20 bytes, 4 SHA-384
  std::uint8_t hash_size = 0;    ///< bytes
  std::uint64_t page_size = 0;   ///< bytes
  std::uint64_t code_limit = 0;  ///< bytes from the start of the slice that the page hashes cover
  std::uint32_t page_count = 0;
  std::uint32_t special_count = 0;  ///< hashes in front of those of the pages, for the other blobs
  Blob directory;                   ///< the strongest code directory
  std::uint64_t page_hashes = 0;    ///< offset of the first page's hash in the slice
  std::vector<Blob> blobs;          ///< the first one of each slot
  std::optional<PropertyDict> entitlements_xml, entitlements_der;

  [[nodiscard]] bool has(SignatureFlag flag) const { return (flags & static_cast<std::uint32_t>(flag)) != 0; }
  /// Whether the boolean entitlement is granted. The kernel goes by the DER form where there is one.
  [[nodiscard]] bool grants(std::string_view entitlement) const;
  bool operator==(const CodeSignature&) const = default;
};

/// Reads the signature that LC_CODE_SIGNATURE puts at `offset` of `slice`. Throws Error "macho-damaged" (usage).
[[nodiscard]] CodeSignature parse_signature(std::span<const std::byte> slice, std::uint64_t offset, std::uint64_t size);

using Digest256 = std::array<std::byte, 32>;
/// Supplied by the caller: SHA-256 of the bytes.
using Hash256 = std::function<Digest256(std::span<const std::byte>)>;

/// The signature's hashes beside those of the bytes that are really there.
struct SignatureCheck {
  struct Page {
    std::uint64_t index = 0;
    std::uint64_t offset = 0, size = 0;  ///< bytes, in the slice
    bool operator==(const Page&) const = default;
  };
  bool checked = false;  ///< false: a kind of hash other than SHA-256; nothing below is known
  std::string cdhash;    ///< 40 hex digits, as codesign prints them
  std::uint64_t damaged_pages = 0;
  std::vector<Page> pages;         ///< the first 16 of them
  std::vector<std::string> parts;  ///< damaged signature parts: "requirements", "entitlements", "DER entitlements"
  [[nodiscard]] bool intact() const { return damaged_pages == 0 && parts.empty(); }
};

/// Recomputes every hash that the signature holds of this file. `slice` must be the bytes that `signature` was read
/// from.
[[nodiscard]] SignatureCheck check_signature(std::span<const std::byte> slice, const CodeSignature& signature, const Hash256& hash);

}  // namespace lumelift
