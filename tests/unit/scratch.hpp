#pragma once

#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>

#include "host/sys/error.hpp"

namespace lumelift::test {

namespace fs = std::filesystem;

/// A folder of its own for one test, removed afterwards.
class Scratch {
 public:
  Scratch() {
    std::string name = (fs::temp_directory_path() / "lumelift-test.XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    path_ = name;
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  [[nodiscard]] const fs::path& path() const { return path_; }
  fs::path write(const fs::path& name, const std::string& content, unsigned mode = 0644) const {
    const fs::path file = path_ / name;
    fs::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << content;
    ::chmod(file.c_str(), mode);
    return file;
  }
  /// An executable sh script.
  fs::path script(const fs::path& name, const std::string& body) const { return write(name, "#!/bin/sh\n" + body, 0755); }

 private:
  fs::path path_;
};

inline std::string slurp(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline unsigned mode_of(const fs::path& file) {
  struct stat info {};
  return ::stat(file.c_str(), &info) == 0 ? info.st_mode & 07777u : 0u;
}

/// Puts a folder first on PATH for as long as it lives.
class PathFirst {
 public:
  explicit PathFirst(const fs::path& folder) : old_(::getenv("PATH")) { ::setenv("PATH", (folder.string() + ":" + old_).c_str(), 1); }
  ~PathFirst() { ::setenv("PATH", old_.c_str(), 1); }
  PathFirst(const PathFirst&) = delete;
  PathFirst& operator=(const PathFirst&) = delete;

 private:
  std::string old_;
};

/// The Error that `body` throws; nothing when it does not.
template <typename Body>
std::optional<Error> error_of(Body body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

inline bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Runs `body` in a forked process and returns its wait status; for what a test must not do to itself.
inline int in_child(const std::function<int()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    int status = 99;
    try {
      status = body();
    } catch (...) {
    }
    ::_exit(status);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return status;
}

}  // namespace lumelift::test
