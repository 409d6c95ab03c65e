#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

/// Compares `actual` with tests/golden/NAME; with LUMELIFT_ACCEPT=1 writes it there instead, to be looked at with git diff.
inline void check_golden(const std::string& name, const std::string& actual) {
  const auto path = std::filesystem::path(LUMELIFT_SOURCE_DIR) / "tests/golden" / name;
  if (const char* accept = std::getenv("LUMELIFT_ACCEPT"); accept != nullptr && std::string(accept) == "1") {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << actual;
  }
  std::ifstream in(path, std::ios::binary);
  std::ostringstream expected;
  expected << in.rdbuf();
  INFO("golden file ", path.string(), "; LUMELIFT_ACCEPT=1 accepts the new text");
  CHECK(expected.str() == actual);
}
