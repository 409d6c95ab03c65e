#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shim/signature.hpp"

namespace lumelift {

/// Instruction sets that macOS tells apart when it picks a slice.
enum class Cpu { arm64, arm64e, x86_64, x86_64h, i386, arm64_32, powerpc, other };
/// "arm64e", as lipo and file name it.
[[nodiscard]] std::string_view shown(Cpu cpu);

enum class FileType { program, library, bundle, object, other };
enum class Platform { unknown, macos, ios, tvos, watchos, catalyst, simulator, driverkit, other };
[[nodiscard]] std::string_view shown(Platform platform);

struct Version {
  unsigned major = 0, minor = 0, patch = 0;
  auto operator<=>(const Version&) const = default;
};
/// "13.0", or "13.0.1" where there is a third number.
[[nodiscard]] std::string shown(const Version& version);

/// A library that dyld must find; a weak one may be absent.
struct LinkedLibrary {
  std::string path;  ///< as written: may begin with @rpath, @loader_path, @executable_path
  bool weak = false;
  bool operator==(const LinkedLibrary&) const = default;
};

/// A range of the slice (bytes from its start); zero size: not there.
struct SliceRange {
  std::uint64_t offset = 0, size = 0;
  bool operator==(const SliceRange&) const = default;
};

/// One architecture of a Mach-O file, as values. 32-bit and big-endian slices are recognised but not looked into.
struct Slice {
  Cpu cpu = Cpu::other;
  std::uint32_t cpu_type = 0, cpu_subtype = 0;
  FileType type = FileType::other;
  SliceRange range;  ///< in the file
  Platform platform = Platform::unknown;
  Version minimum_os;
  std::string install_name;
  std::vector<LinkedLibrary> libraries;
  std::vector<std::string> rpaths;
  bool encrypted = false;         ///< LC_ENCRYPTION_INFO_64 with a cryptid
  bool restrict_section = false;  ///< __RESTRICT,__restrict
  std::optional<std::array<std::byte, 16>> uuid;
  std::optional<std::uint64_t> entry_offset;  ///< LC_MAIN
  std::optional<CodeSignature> signature;
  SliceRange fixups;  ///< LC_DYLD_CHAINED_FIXUPS
  std::uint32_t symbol_count = 0;
  SliceRange symbols, strings;  ///< LC_SYMTAB
  bool operator==(const Slice&) const = default;
};

/// Read-only view of a Mach-O file, thin or universal (32- and 64-bit headers), as values. Trusts no number in the
/// file: what does not fit is an error, never a wild read; time and memory are bounded by the size of the file.
struct MachO {
  bool universal = false;
  std::vector<Slice> slices;  ///< in file order, at least one

  /// Throws Error "macho-not" when the bytes are no Mach-O at all, "macho-damaged" when they are a broken one (both
  /// usage).
  [[nodiscard]] static MachO parse(std::span<const std::byte> file);
  [[nodiscard]] const Slice* find(Cpu cpu) const;
  bool operator==(const MachO&) const = default;
};

/// Whether the first bytes are those of a Mach-O file (a Java class shares one magic number and is told apart).
[[nodiscard]] bool looks_like_macho(std::span<const std::byte> start);

/// The bytes of one slice of the file that it was read from.
[[nodiscard]] std::span<const std::byte> slice_bytes(std::span<const std::byte> file, const Slice& slice);

/// Names (with their leading underscore) that the slice wants from other libraries, and that it offers. Views into
/// `file`. Throw Error "macho-damaged". `imports` is absent where neither chained fixups nor a symbol table can tell.
[[nodiscard]] std::optional<std::vector<std::string_view>> imports(std::span<const std::byte> file, const Slice& slice);
[[nodiscard]] std::vector<std::string_view> exports(std::span<const std::byte> file, const Slice& slice);

}  // namespace lumelift
