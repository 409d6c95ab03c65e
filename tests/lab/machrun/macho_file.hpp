#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lab {

/// One architecture inside a thin or universal Mach-O file. Offsets and sizes in bytes from the start of the file.
struct Slice {
  uint32_t cputype = 0;
  uint32_t cpusubtype = 0;
  uint64_t offset = 0;
  uint64_t size = 0;

  [[nodiscard]] std::string arch() const;
};

/// What the first bytes of a file make it, as far as starting it is concerned.
enum class FileKind { missing, unreadable, mach_o, script, other };

struct FileSummary {
  FileKind kind = FileKind::missing;
  std::vector<Slice> slices;     // for Mach-O
  std::string interpreter_line;  // for scripts: the text after "#!", without the line end
};

/// Reads the header of `path`. Never throws for odd content: a file that is neither Mach-O nor script is `other`.
[[nodiscard]] FileSummary summarize(const std::string& path);

/// The slice for `arch` ("arm64", "arm64e", "x86_64"), or nothing.
[[nodiscard]] std::optional<Slice> find_slice(const FileSummary& file, const std::string& arch);

/// "arm64,x86_64": the way dyld lists what a file has.
[[nodiscard]] std::string slice_list(const FileSummary& file);

}  // namespace lab
