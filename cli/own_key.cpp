#include "cli/own_key.hpp"

#include <fmt/format.h>

#include "host/sys/error.hpp"
#include "host/sys/file.hpp"
#include "host/sys/process.hpp"

namespace lumelift {
namespace {

namespace fs = std::filesystem;
using sys::Deadline;
using sys::Milliseconds;

constexpr Milliseconds tool{10'000};

std::string keygen(const std::vector<std::string>& arguments, const fs::path& file) {
  std::vector<std::string> argv{"ssh-keygen"};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  argv.insert(argv.end(), {"-f", file.string()});
  const auto outcome = sys::run({.argv = argv}, Deadline::in(tool));
  if (outcome.ok()) {
    return outcome.out;
  }
  throw Error(ErrorKind::failed, "own-key-unusable", fmt::format("ssh-keygen cannot work with {}: {}", file.string(), outcome.ending()))
      .note(outcome.err.substr(0, 400))
      .fix(fmt::format("move {} away; the next --install-key makes another", file.string()));
}

}  // namespace

fs::path own_key_file(const fs::path& state_dir) {
  return state_dir / "id_ed25519";
}

std::optional<std::string> public_key(const fs::path& file) {
  std::error_code fault;
  if (!fs::exists(file, fault)) {
    return std::nullopt;
  }
  // An empty passphrase, lest ssh-keygen asks the terminal.
  const std::string line = keygen({"-y", "-P", ""}, file);
  // Kind and key; whether a comment follows depends on the version of ssh-keygen.
  const auto end = line.find_first_of(" \n", line.find(' ') + 1);
  return line.substr(0, end) + " lumelift";
}

std::string make_own_key(const fs::path& state_dir) {
  const fs::path file = own_key_file(state_dir);
  const sys::FileLock lock(state_dir / "key.lock", "make a key", Deadline::in(tool));
  if (auto line = public_key(file)) {
    return *line;
  }
  const fs::path fresh = state_dir / "id_ed25519.new", half = state_dir / "id_ed25519.new.pub";
  std::error_code ignored;
  fs::remove(fresh, ignored);
  (void)keygen({"-q", "-t", "ed25519", "-N", "", "-C", "lumelift"}, fresh);
  fs::remove(half, ignored);
  fs::rename(fresh, file);
  return public_key(file).value();
}

}  // namespace lumelift
