#include "cli/library.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <utility>

#include "cli/verdict.hpp"
#include "host/sys/error.hpp"
#include "host/sys/file.hpp"
#include "host/sys/hash.hpp"

namespace lumelift {
namespace {

using nlohmann::json;

constexpr std::size_t library_cap = 64u << 20;

// The release binaries of Cua's metal-capability-shim, thin files for arm64 and arm64e.
constexpr std::array<std::string_view, 2> published = {"515b9d84ab67e86d959282e95c194a5ad8a947261514b947d6f7483c57797b31",
                                                       "62504be341ed74191eab22f19e21d99b2afbe6cc029902c760578ffbbd0588cb"};

// <mach-o/fat.h>: all numbers big-endian; slices on pages of Apple silicon.
constexpr std::uint32_t fat_magic = 0xcafebabe;
constexpr std::size_t fat_header = 8, fat_entry = 20;
constexpr unsigned page_bits = 14;

Error invalid(std::string message) {
  return Error(ErrorKind::usage, "library-invalid", std::move(message));
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

void put(std::string& out, std::uint64_t number) {
  for (int shift = 24; shift >= 0; shift -= 8) {
    out += static_cast<char>(number >> shift & 0xff);
  }
}

MachO parsed(const std::string& content) {
  try {
    return MachO::parse(bytes_of(content));
  } catch (const Error& error) {
    throw invalid(error.message());
  }
}

struct Piece {
  Slice slice;
  std::string_view bytes;
};

std::vector<Piece> pieces_of(const std::vector<std::string>& contents) {
  std::vector<Piece> out;
  for (const auto& content : contents) {
    for (const Slice& slice : parsed(content).slices) {
      const auto bytes = slice_bytes(bytes_of(content), slice);
      out.push_back({slice, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}});
    }
  }
  std::stable_sort(out.begin(), out.end(), [](const Piece& a, const Piece& b) {
    return std::pair(a.slice.cpu_type, a.slice.cpu_subtype) < std::pair(b.slice.cpu_type, b.slice.cpu_subtype);
  });
  const auto twin = std::adjacent_find(out.begin(), out.end(), [](const Piece& a, const Piece& b) { return a.slice.cpu == b.slice.cpu; });
  if (twin != out.end()) {
    throw invalid(fmt::format("two of the files have a slice for {}", shown(twin->slice.cpu)));
  }
  return out;
}

/// One file of the user's, judged by its hash and then by its content.
LibraryOrigin judge(const std::filesystem::path& file, const std::string& content, const std::string& hash,
                    const std::set<std::string>& accepted) {
  const bool known = std::find(published.begin(), published.end(), hash) != published.end();
  if (!known && !accepted.contains(hash)) {
    throw Error(ErrorKind::usage, "library-unknown", fmt::format("'{}' is no published release that lumelift knows", file.string()))
        .note("sha256 " + hash)
        .fix("if this is the file you mean: --accept-sha256 " + hash);
  }
  const auto defects = brought_library_defects(content);
  if (!defects.empty()) {
    Error error = invalid(fmt::format("'{}' is not fit to be injected", file.string()));
    for (const auto& defect : defects) {
      error.note(defect);
    }
    throw error;
  }
  return known ? LibraryOrigin::published : LibraryOrigin::accepted;
}

std::vector<LibrarySlice> slices_in(const std::filesystem::path& file, const std::string& content, const std::string& hash) {
  std::vector<LibrarySlice> out;
  for (const Slice& slice : parsed(content).slices) {
    const auto bytes = slice_bytes(bytes_of(content), slice);
    out.push_back({slice.cpu, sys::sha256({reinterpret_cast<const char*>(bytes.data()), bytes.size()}), file.string(), hash});
  }
  return out;
}

std::set<std::string> accepted_hashes(const LibraryOptions& options) {
  std::set<std::string> out;
  for (std::string hash : options.accepted) {
    std::transform(hash.begin(), hash.end(), hash.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (hash.size() != 64 || hash.find_first_not_of("0123456789abcdef") != hash.npos) {
      throw Error(ErrorKind::usage, "library-option", fmt::format("'{}' is no SHA-256", hash))
          .fix("64 hexadecimal digits, as shasum -a 256 prints them");
    }
    out.insert(std::move(hash));
  }
  return out;
}

}  // namespace

std::string_view name_of(LibraryOrigin origin) {
  static constexpr std::string_view names[] = {"own", "published", "accepted"};
  return names[static_cast<std::size_t>(origin)];
}

std::string join_slices(const std::vector<std::string>& contents) {
  const auto pieces = pieces_of(contents);
  if (contents.size() == 1) {
    return contents.front();
  }
  std::string out;
  put(out, fat_magic);
  put(out, pieces.size());
  constexpr std::size_t page = std::size_t{1} << page_bits;
  const auto aligned = [](std::size_t offset) { return (offset + page - 1) / page * page; };
  std::size_t offset = aligned(fat_header + fat_entry * pieces.size());
  for (const auto& piece : pieces) {
    for (const std::uint64_t field : {std::uint64_t{piece.slice.cpu_type}, std::uint64_t{piece.slice.cpu_subtype}, std::uint64_t{offset},
                                      std::uint64_t{piece.bytes.size()}, std::uint64_t{page_bits}}) {
      put(out, field);
    }
    offset = aligned(offset + piece.bytes.size());
  }
  for (const auto& piece : pieces) {
    out.resize(aligned(out.size()), '\0');
    out += piece.bytes;
  }
  return out;
}

ChosenLibrary choose_library(const LibraryOptions& options, const Source& own, const std::filesystem::path& state_dir) {
  const auto accepted = accepted_hashes(options);
  ChosenLibrary out;
  out.source = own;
  if (options.files.empty()) {
    if (!accepted.empty()) {
      throw Error(ErrorKind::usage, "library-option", "--accept-sha256 belongs to a --library");
    }
    out.slices = slices_in(own.file, sys::read_file(own.file, library_cap), own.state.sha256);
    return out;
  }
  std::vector<std::string> contents;
  std::set<std::string> hashes;
  out.origin = LibraryOrigin::published;
  for (const auto& file : options.files) {
    contents.push_back(sys::read_file(file, library_cap));
    const std::string hash = sys::sha256(contents.back());
    hashes.insert(hash);
    if (judge(file, contents.back(), hash, accepted) == LibraryOrigin::accepted) {
      out.origin = LibraryOrigin::accepted;
    }
    const auto slices = slices_in(file, contents.back(), hash);
    out.slices.insert(out.slices.end(), slices.begin(), slices.end());
  }
  for (const auto& hash : accepted) {
    if (!hashes.contains(hash)) {
      throw Error(ErrorKind::usage, "library-option", fmt::format("no --library has the accepted SHA-256 {}", hash));
    }
  }
  const std::string joined = join_slices(contents);
  if (std::none_of(out.slices.begin(), out.slices.end(), [](const LibrarySlice& slice) { return slice.cpu == Cpu::arm64; })) {
    throw invalid("none of the files has a slice for arm64, which programs on Apple silicon need");
  }
  out.source.state = {sys::sha256(joined), 0755, joined.size()};
  out.source.file = std::filesystem::absolute(options.files.front());
  if (contents.size() > 1) {
    const auto folder = state_dir / "libraries";
    sys::ensure_private_folder(state_dir);
    sys::ensure_private_folder(folder);
    out.source.file = folder / (out.source.state.sha256 + ".dylib");
    sys::write_file(out.source.file, joined, 0600);
  }
  return out;
}

std::string to_json(const ChosenLibrary& library) {
  json slices = json::array();
  for (const auto& slice : library.slices) {
    slices.push_back({{"cpu", shown(slice.cpu)}, {"sha256", slice.sha256}, {"file", slice.file}, {"file_sha256", slice.file_sha256}});
  }
  return json({{"origin", name_of(library.origin)}, {"sha256", library.source.state.sha256}, {"slices", slices}})
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace lumelift
