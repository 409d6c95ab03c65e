// Gathers what the verdict judges: the only part of it that reads files.
#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "cli/verdict.hpp"
#include "host/sys/error.hpp"
#include "host/sys/hash.hpp"

namespace lumelift {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t most_libraries = 512;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

bool is_system_library(std::string_view path) {
  return path.starts_with("/usr/lib/") || path.starts_with("/System/");
}

bool is_metal(std::string_view path) {
  const auto slash = path.rfind('/');
  const auto name = slash == path.npos ? path : path.substr(slash + 1);
  return name.starts_with("Metal") && path.starts_with("/System/Library/Frameworks/");
}

/// Libraries of macOS that are known not to bring Metal into a process.
bool is_plain(std::string_view path) {
  static constexpr std::string_view names[] = {"/usr/lib/libSystem.B.dylib", "/usr/lib/libc++.1.dylib",       "/usr/lib/libc++abi.dylib",
                                               "/usr/lib/libobjc.A.dylib",   "/usr/lib/libz.1.dylib",         "/usr/lib/libbz2.1.0.dylib",
                                               "/usr/lib/libresolv.9.dylib", "/usr/lib/libiconv.2.dylib",     "/usr/lib/libcharset.1.dylib",
                                               "/usr/lib/libsqlite3.dylib",  "/usr/lib/libncurses.5.4.dylib", "/usr/lib/libedit.3.dylib",
                                               "/usr/lib/libxml2.2.dylib",   "/usr/lib/libexpat.1.dylib",     "/usr/lib/libutil.dylib"};
  static constexpr std::string_view frameworks[] = {"CoreFoundation", "Security", "SystemConfiguration", "IOKit"};
  if (std::find(std::begin(names), std::end(names), path) != std::end(names)) {
    return true;
  }
  return std::any_of(std::begin(frameworks), std::end(frameworks), [&](std::string_view name) {
    return path.starts_with("/System/Library/Frameworks/" + std::string(name) + ".framework/");
  });
}

/// Names with which a process can get at more code than it is linked to, its own or that of a child.
bool reaches_further(std::string_view import) {
  static constexpr std::string_view starts[] = {"_dlopen",   "_NSLinkModule", "_NSAddImage", "_NSCreateObjectFileImage",
                                                "_CFBundle", "_CFPlugIn",     "_exec",       "_posix_spawn",
                                                "_popen",    "_system",       "_syscall"};
  return std::any_of(std::begin(starts), std::end(starts), [&](auto start) { return import.starts_with(start); });
}

/// Finds the libraries of one program as dyld does, among the files that `view` shows.
class Libraries {
 public:
  Libraries(const FileView& view, Cpu cpu, const std::string& executable, Program& out)
      : view_(view), cpu_(cpu), folder_(fs::path(executable).parent_path()), out_(out) {}

  void visit(const Slice& slice, std::string_view content, const fs::path& folder, std::vector<std::string> rpaths) {
    note_metal(slice, content);
    for (const auto& rpath : slice.rpaths) {
      rpaths.push_back(expand(rpath, folder));
    }
    for (const auto& library : slice.libraries) {
      if (is_system_library(library.path) || !seen_.insert(library.path).second) {
        continue;
      }
      if (seen_.size() > most_libraries) {
        return;
      }
      load(library, folder, rpaths);
    }
  }

  void conclude() { out_.metal = linked_ ? MetalUse::linked : sure_ && out_.missing.empty() ? MetalUse::none : MetalUse::possible; }

 private:
  void note_metal(const Slice& slice, std::string_view content) {
    for (const auto& library : slice.libraries) {
      linked_ |= is_metal(library.path);
      sure_ &= !is_system_library(library.path) || is_plain(library.path);
    }
    const auto names = imports(bytes_of(content), slice);
    sure_ &= names && std::none_of(names->begin(), names->end(), reaches_further);
  }

  std::string expand(std::string_view path, const fs::path& folder) const {
    for (const auto& [mark, base] : {std::pair<std::string_view, const fs::path&>{"@loader_path", folder},
                                     std::pair<std::string_view, const fs::path&>{"@executable_path", folder_}}) {
      if (path == mark) {
        return base.string();
      }
      if (path.starts_with(std::string(mark) + "/")) {
        return (base / path.substr(mark.size() + 1)).lexically_normal().string();
      }
    }
    return std::string(path);
  }

  void load(const LinkedLibrary& library, const fs::path& folder, const std::vector<std::string>& rpaths) {
    std::vector<std::string> places;
    if (library.path.starts_with("@rpath/")) {
      for (const auto& rpath : rpaths) {
        places.push_back((fs::path(rpath) / library.path.substr(7)).string());
      }
    } else {
      places.push_back(expand(library.path, folder));
    }
    for (const auto& place : places) {
      if (is_system_library(place)) {
        return;
      }
      const std::string file = resolved(place);
      if (!file.empty()) {
        return read(library, file, rpaths);
      }
    }
    if (library.weak) {
      return;
    }
    std::string where;
    for (const auto& place : places) {
      where += (where.empty() ? "" : ", ") + place;
    }
    out_.missing.push_back(library.path + (places.empty()              ? " (the program has no rpath)"
                                           : library.path == places[0] ? ""
                                                                       : " (looked for at " + where + ")"));
  }

  std::string resolved(std::string path) const {
    for (int hops = 0; hops < 16; ++hops) {
      const PathLook look = view_.look(path);
      if (look.kind == EntryKind::file) {
        return path;
      }
      if (look.kind != EntryKind::symlink) {
        return {};
      }
      path = (fs::path(path).parent_path() / look.target).lexically_normal().string();
    }
    return {};
  }

  void read(const LinkedLibrary& library, const std::string& file, const std::vector<std::string>& rpaths) {
    try {
      const std::string content = view_.read(file);
      const MachO parsed = MachO::parse(bytes_of(content));
      const Slice* slice = parsed.find(cpu_);
      if (!slice) {
        out_.missing.push_back(library.path + " (" + file + " has no " + std::string(shown(cpu_)) + " slice)");
        return;
      }
      visit(*slice, content, fs::path(file).parent_path(), rpaths);
    } catch (const Error& error) {
      out_.missing.push_back(library.path + " (" + error.message() + ")");
    }
  }

  const FileView& view_;
  Cpu cpu_;
  fs::path folder_;
  Program& out_;
  std::set<std::string> seen_;
  bool linked_ = false, sure_ = true;
};

void read_program(Program& program, const FileView& view) {
  const std::string& path = program.chain.program().path;
  const std::string content = view.read(path);
  program.file = MachO::parse(bytes_of(content));
  for (const Slice& slice : program.file->slices) {
    program.checks.push_back(slice.signature ? check_signature(slice_bytes(bytes_of(content), slice), *slice.signature, sha256_digest)
                                             : SignatureCheck{});
  }
  if (const Slice* slice = running_slice(*program.file); slice && slice->type == FileType::program) {
    Libraries libraries(view, slice->cpu, path, program);
    libraries.visit(*slice, content, fs::path(path).parent_path(), {});
    libraries.conclude();
  }
}

}  // namespace

Digest256 sha256_digest(std::span<const std::byte> bytes) {
  sys::Sha256 hash;
  hash.update(bytes);
  const std::string hex = hash.hex();
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  Digest256 out{};
  for (std::size_t i = 0; i < out.size() && i * 2 + 1 < hex.size(); ++i) {
    out[i] = static_cast<std::byte>(digit(hex[i * 2]) << 4 | digit(hex[i * 2 + 1]));
  }
  return out;
}

const Slice* running_slice(const MachO& file) {
  for (const Cpu cpu : {Cpu::arm64e, Cpu::arm64, Cpu::x86_64}) {
    if (const Slice* slice = file.find(cpu)) {
      return slice;
    }
  }
  return nullptr;
}

Program examine(const std::vector<std::string>& argv, const FileView& view) {
  Program program;
  program.chain = follow(argv, view);
  if (!program.chain.found()) {
    const bool stopped_by_script = !program.chain.links.empty() && program.chain.links.back().role == ChainLink::Role::shell;
    if (!stopped_by_script) {
      program.unreadable = program.chain.open_end;
    }
    return program;
  }
  if (program.chain.program().system) {
    return program;
  }
  try {
    read_program(program, view);
  } catch (const Error& error) {
    program.file.reset();
    program.checks.clear();
    program.unreadable = error.message();
  }
  return program;
}

}  // namespace lumelift
