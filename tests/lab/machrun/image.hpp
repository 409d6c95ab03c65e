#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "machrun/macho_format.hpp"

namespace lab {

/// Why a file could not become an image, in dyld's own words ("no such file", "mach-o file, but is an …").
struct LoadError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

#if defined(__aarch64__)
inline constexpr const char* kArch = "arm64";
#else
inline constexpr const char* kArch = "x86_64";
#endif

struct Dependency {
  std::string name;
  bool weak = false;
};

/// A Mach-O file in memory: mapped, not yet bound. Stays mapped for the life of the process, as on a Mac most do.
class Image {
 public:
  /// Maps the slice of `path` for this architecture. Throws LoadError.
  explicit Image(const std::string& path);
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;

  std::string path;
  std::vector<Dependency> dependencies;  // in load-command order: import ordinal 1 is index 0
  std::vector<std::string> rpaths;       // as written, @loader_path not yet replaced
  std::vector<Image*> linked;            // parallel to dependencies; null for system libraries and absent weak ones
  std::string uuid = "no uuid";
  std::string install_name;
  bool initialised = false;

  [[nodiscard]] const macho::Header* header() const { return header_; }
  [[nodiscard]] bool is_executable() const { return header_->filetype == macho::kFileExecute; }
  /// Address in memory of a virtual address of the file.
  [[nodiscard]] char* at(uint64_t vmaddr) const { return reinterpret_cast<char*>(vmaddr + slide_); }
  [[nodiscard]] bool contains(const void* address) const;
  /// The address of an exported symbol (with its leading underscore), or null. `reexport` names another image's
  /// symbol when the export is only passed on.
  [[nodiscard]] void* find_export(std::string_view symbol) const;
  [[nodiscard]] std::string nearest_export(const void* address, void** start) const;
  /// The entry point of a program, or null.
  [[nodiscard]] void* entry() const;
  [[nodiscard]] std::vector<void*> initialisers() const;
  /// The section of that name, or null.
  [[nodiscard]] const macho::Section64* section(std::string_view segment, std::string_view name) const;
  [[nodiscard]] std::vector<const macho::Segment64*> segments() const;
  [[nodiscard]] std::vector<const macho::Section64*> sections() const;
  /// Bytes of the link-edit segment at a file offset.
  [[nodiscard]] const uint8_t* linkedit(uint32_t file_offset) const;
  template <typename T>
  [[nodiscard]] const T* command(uint32_t cmd) const {
    return reinterpret_cast<const T*>(find_command(cmd));
  }
  [[nodiscard]] std::vector<const macho::LoadCommand*> commands() const;
  /// Gives every segment the protection that the file asks for; called once the fixups are applied.
  void protect() const;
  /// Where exported symbols of re-exported libraries would be found.
  [[nodiscard]] uint64_t preferred_base() const { return preferred_base_; }

 private:
  void map(int fd, uint64_t slice_offset, uint64_t slice_size);
  void read_commands();
  [[nodiscard]] const macho::LoadCommand* find_command(uint32_t cmd) const;

  const macho::Header* header_ = nullptr;
  uint64_t slide_ = 0;
  uint64_t preferred_base_ = 0;
  char* begin_ = nullptr;
  char* end_ = nullptr;
};

/// Reads an unsigned LEB128 number and moves `p` behind it.
[[nodiscard]] uint64_t read_uleb(const uint8_t*& p);
[[nodiscard]] int64_t read_sleb(const uint8_t*& p);

}  // namespace lab
