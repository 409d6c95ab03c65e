#include "cli/versions.hpp"

#include <fmt/format.h>

#include <CLI/Version.hpp>
#include <nlohmann/json.hpp>

#include "host/sqlite_version.hpp"
#include "host/sys/crypto_version.hpp"
#include "remote/ssh_version.hpp"

namespace lumelift {

std::string versions_json(const std::string& own) {
  const nlohmann::ordered_json out = {
      {"lumelift", own},
      {"compiler", __VERSION__},
      {"libraries",
       {{"CLI11", CLI11_VERSION},
        {"fmt", fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100)},
        {"libssh2", ssh_version()},
        {"nlohmann-json", fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH)},
        {"crypto", sys::crypto_version()},
        {"sqlite", sqlite_version()},
        {"yaml-cpp", LUMELIFT_YAML_VERSION}}},
  };
  return out.dump();
}

}  // namespace lumelift
