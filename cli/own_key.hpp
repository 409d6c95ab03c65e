#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace lumelift {

/// Where lumelift's own private key is, once it is made.
[[nodiscard]] std::filesystem::path own_key_file(const std::filesystem::path& state_dir);

/// The line for authorized_keys that belongs to a private key file; nothing when there is no such file. Throws Error
/// "own-key-unusable".
[[nodiscard]] std::optional<std::string> public_key(const std::filesystem::path& file);

/// Makes the key with ssh-keygen unless it is there (ed25519, mode 0600, no passphrase: who can read the state folder can use
/// it), and returns its public line. Two processes at once get the same key. Throws Error "own-key-unusable", "lock-held".
[[nodiscard]] std::string make_own_key(const std::filesystem::path& state_dir);

}  // namespace lumelift
