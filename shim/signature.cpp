#include "shim/signature.hpp"

#include <algorithm>
#include <utility>

#include "shim/bytes.hpp"

namespace lumelift {

namespace {

using macho::Bytes;
using macho::damaged;

enum Magic : std::uint32_t {
  super_blob = 0xfade0cc0,
  code_directory = 0xfade0c02,
  xml_entitlements = 0xfade7171,
  der_entitlements = 0xfade7172,
};

enum Slot : std::uint32_t {
  directory_slot = 0,
  requirements_slot = 2,
  entitlements_slot = 5,
  der_slot = 7,
  alternate_slots = 0x1000,
  alternate_end = 0x1005,
  cms_slot = 0x10000,
};

constexpr std::uint64_t blob_header = 8;

/// The order in which the kernel prefers code directories.
int rank(std::uint8_t hash_type) {
  static constexpr std::uint8_t weakest_first[] = {1, 3, 2, 4};
  const auto at = std::find(std::begin(weakest_first), std::end(weakest_first), hash_type);
  return at == std::end(weakest_first) ? -1 : static_cast<int>(at - std::begin(weakest_first));
}

bool is_directory(std::uint32_t slot) {
  return slot == directory_slot || (slot >= alternate_slots && slot < alternate_end);
}

void read_directory(CodeSignature& out, const Bytes& slice, const CodeSignature::Blob& blob) {
  const Bytes directory = slice.part(blob.offset, blob.size, "code directory");
  const auto version = directory.big<std::uint32_t>(8);
  out.directory = blob;
  out.flags = directory.big<std::uint32_t>(12);
  const std::uint64_t hashes = directory.big<std::uint32_t>(16);
  out.identifier = directory.c_string(directory.big<std::uint32_t>(20));
  out.special_count = directory.big<std::uint32_t>(24);
  out.page_count = directory.big<std::uint32_t>(28);
  out.code_limit = directory.big<std::uint32_t>(32);
  out.hash_size = directory.byte(36);
  out.hash_type = directory.byte(37);
  const unsigned page_bits = directory.byte(39);
  out.team_id.clear();
  if (version >= 0x20200) {
    if (const auto team = directory.big<std::uint32_t>(48); team != 0) {
      out.team_id = directory.c_string(team);
    }
  }
  if (version >= 0x20300) {
    if (const auto wide = directory.big<std::uint64_t>(56); wide != 0) {
      out.code_limit = wide;
    }
  }
  if (out.code_limit > slice.size()) {
    damaged("the code directory covers more bytes than the slice has");
  }
  if (page_bits > 31) {
    damaged("the code directory has an impossible page size");
  }
  // A page size of zero means that one hash covers everything.
  out.page_size = page_bits == 0 ? std::max<std::uint64_t>(out.code_limit, 1) : std::uint64_t{1} << page_bits;
  if (out.page_count != (out.code_limit + out.page_size - 1) / out.page_size) {
    damaged("the code directory has " + std::to_string(out.page_count) + " page hashes, which is not what " +
            std::to_string(out.code_limit) + " bytes need");
  }
  const std::uint64_t special = std::uint64_t{out.special_count} * out.hash_size;
  if (special > hashes || !directory.holds(hashes, std::uint64_t{out.page_count} * out.hash_size)) {
    damaged("the hashes of the code directory run past its end");
  }
  out.page_hashes = blob.offset + hashes;
}

std::optional<PropertyDict> read_entitlements(const Bytes& slice, const CodeSignature::Blob& blob, Magic magic) {
  const Bytes bytes = slice.part(blob.offset, blob.size, "entitlements");
  if (bytes.big<std::uint32_t>(0) != magic) {
    damaged("an entitlements blob has a wrong magic number");
  }
  const Bytes content = bytes.part(blob_header, blob.size - blob_header, "entitlements");
  if (magic == der_entitlements) {
    return parse_entitlements_der(content.span());
  }
  try {
    return parse_plist_xml(content.text(0, content.size()));
  } catch (const Error& error) {
    damaged("the entitlements cannot be read: " + error.message());
  }
}

}  // namespace

bool CodeSignature::grants(std::string_view entitlement) const {
  const auto& dict = entitlements_der ? entitlements_der : entitlements_xml;
  if (!dict) {
    return false;
  }
  const auto found = dict->find(entitlement);
  return found != dict->end() && found->second == PropertyValue(true);
}

CodeSignature parse_signature(std::span<const std::byte> slice_bytes, std::uint64_t offset, std::uint64_t size) {
  const Bytes slice(slice_bytes, "slice");
  const Bytes region = slice.part(offset, size, "code signature");
  if (region.big<std::uint32_t>(0) != super_blob) {
    damaged("the code signature does not begin with its magic number");
  }
  const Bytes super = region.part(0, region.big<std::uint32_t>(4), "code signature");
  const std::uint64_t count = super.big<std::uint32_t>(8);
  if (!super.holds(12, count * 8)) {
    damaged("the index of the code signature runs past its end");
  }

  CodeSignature out;
  int best = -2;
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto slot = super.big<std::uint32_t>(12 + i * 8);
    const std::uint64_t at = super.big<std::uint32_t>(16 + i * 8);
    // Only the first of each slot counts, so that a thousand entries for one blob cost no more than one.
    if (std::any_of(out.blobs.begin(), out.blobs.end(), [&](const auto& blob) { return blob.slot == slot; })) {
      continue;
    }
    if (out.blobs.size() == 64) {
      damaged("the code signature has more parts than any signer writes");
    }
    const std::uint64_t length = super.big<std::uint32_t>(at + 4);
    if (length < blob_header || !super.holds(at, length)) {
      damaged("a part of the code signature runs past its end");
    }
    const CodeSignature::Blob blob{slot, offset + at, length};
    out.blobs.push_back(blob);
    if (is_directory(slot)) {
      if (super.big<std::uint32_t>(at) != code_directory) {
        damaged("a code directory has a wrong magic number");
      }
      const int this_rank = rank(super.byte(at + 37));
      if (this_rank > best) {
        best = this_rank, read_directory(out, slice, blob);
      }
    } else if (slot == entitlements_slot) {
      out.entitlements_xml = read_entitlements(slice, blob, xml_entitlements);
    } else if (slot == der_slot) {
      out.entitlements_der = read_entitlements(slice, blob, der_entitlements);
    } else if (slot == cms_slot) {
      out.has_certificate = length > blob_header;
    }
  }
  if (best == -2) {
    damaged("the code signature has no code directory");
  }
  return out;
}

namespace {

std::string hex(std::span<const std::byte> bytes) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string out;
  for (const std::byte byte : bytes) {
    out += digits[static_cast<unsigned>(byte) >> 4];
    out += digits[static_cast<unsigned>(byte) & 15];
  }
  return out;
}

}  // namespace

SignatureCheck check_signature(std::span<const std::byte> slice_bytes, const CodeSignature& signature, const Hash256& hash) {
  SignatureCheck check;
  const bool whole = signature.hash_type == 2 && signature.hash_size == 32;
  const bool cut = signature.hash_type == 3 && signature.hash_size == 20;
  if (!whole && !cut) {
    return check;
  }
  check.checked = true;

  const Bytes slice(slice_bytes, "slice");
  const auto matches = [&](std::uint64_t stored_at, std::uint64_t offset, std::uint64_t size) {
    const auto stored = slice.part(stored_at, signature.hash_size, "code directory").span();
    const Digest256 real = hash(slice.part(offset, size, "signed page").span());
    return std::equal(stored.begin(), stored.end(), real.begin());
  };
  const auto& directory = signature.directory;
  const Digest256 whole_directory = hash(slice.part(directory.offset, directory.size, "code directory").span());
  check.cdhash = hex(std::span(whole_directory).first(20));

  for (std::uint64_t i = 0; i < signature.page_count; ++i) {
    const std::uint64_t offset = i * signature.page_size;
    const std::uint64_t size = std::min(signature.page_size, signature.code_limit - offset);
    if (matches(signature.page_hashes + i * signature.hash_size, offset, size)) {
      continue;
    }
    ++check.damaged_pages;
    if (check.pages.size() < 16) {
      check.pages.push_back({i, offset, size});
    }
  }
  static constexpr std::pair<std::uint32_t, const char*> embedded[] = {
      {requirements_slot, "requirements"}, {entitlements_slot, "entitlements"}, {der_slot, "DER entitlements"}};
  for (const auto& blob : signature.blobs) {
    for (const auto& [slot, name] : embedded) {
      if (blob.slot != slot) {
        continue;
      }
      const bool listed = slot <= signature.special_count;
      if (!listed || !matches(signature.page_hashes - slot * signature.hash_size, blob.offset, blob.size)) {
        check.parts.emplace_back(name);
      }
    }
  }
  return check;
}

}  // namespace lumelift
