#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "cli/commands.hpp"

namespace lumelift {

/// Where a password may come from; never from the command line itself.
struct LoginSources {
  std::string user = "lume";
  int port = 22;
  std::optional<int> password_fd;
  std::optional<std::filesystem::path> password_file;
  std::optional<std::string> password_env;    ///< value of LUMELIFT_PASSWORD
  std::optional<std::string> passphrase_env;  ///< value of LUMELIFT_KEY_PASSPHRASE
  bool ask_password = false;
  bool may_ask = true;  ///< on the terminal, when there is nothing else to log in with
  std::optional<std::filesystem::path> key_file;
  bool use_agent = false;
  bool via_nc = false;
};

/// Reads the password from the descriptor, the file, the environment or a prompt on the terminal, in this order; one trailing
/// newline is not part of it. `own_key`, where it exists, is the first of the default keys. Blocks on a prompt. Throws Error
/// "password-unreadable", "password-file-open" (others may read the file); usage.
[[nodiscard]] LoginOptions resolve_login(const LoginSources& sources, const std::filesystem::path& home,
                                         const std::filesystem::path& own_key = {});

}  // namespace lumelift
