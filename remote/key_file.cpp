#include "remote/key_file.hpp"

#include <array>

namespace lumelift {
namespace {

constexpr char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The first bytes of what stands between the head and tail lines, decoded.
std::string decoded_body(std::string_view text, std::size_t cap) {
  std::string bytes;
  unsigned value = 0;
  int bits = 0;
  for (const char letter : text.substr(std::min(text.find('\n'), text.size()))) {
    if (letter == '-' || bytes.size() >= cap) {
      break;
    }
    const auto digit = std::string_view(digits).find(letter);
    if (digit == std::string_view::npos) {
      continue;
    }
    value = (value << 6) | static_cast<unsigned>(digit);
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      bytes += static_cast<char>((value >> bits) & 0xff);
    }
  }
  return bytes;
}

/// "openssh-key-v1\0", then cipher name, key derivation name and options, count, public key: each with a length in front.
void look_at_openssh(std::string_view text, KeyText& key) {
  const auto bytes = decoded_body(text, 512);
  constexpr std::size_t magic = 15;
  const std::string_view head(bytes);
  if (head.size() < magic + 8) {
    return;
  }
  key.encrypted = head.substr(magic + 4, 4) != "none";
  key.security_key = head.find("sk-ssh-") != std::string_view::npos || head.find("sk-ecdsa-") != std::string_view::npos;
  key.rsa = head.find(std::string_view("\0\0\0\7ssh-rsa", 11)) != std::string_view::npos;
}

}  // namespace

KeyText look_at_key(std::string_view text) {
  KeyText key;
  while (!text.empty() && (text.front() == '\n' || text.front() == '\r' || text.front() == ' ')) {
    text.remove_prefix(1);
  }
  const auto has = [&](std::string_view mark) { return text.find(mark) != std::string_view::npos; };
  if (text.starts_with("PuTTY-User-Key-File")) {
    key.kind = KeyText::Kind::putty;
  } else if (text.starts_with("ssh-") || text.starts_with("ecdsa-") || text.starts_with("sk-") || has("BEGIN SSH2 PUBLIC KEY") ||
             has("BEGIN PUBLIC KEY")) {
    key.kind = KeyText::Kind::public_key;
  } else if (has("BEGIN OPENSSH PRIVATE KEY")) {
    key.kind = KeyText::Kind::private_key;
    look_at_openssh(text, key);
  } else if (has("PRIVATE KEY-----")) {
    key.kind = KeyText::Kind::private_key;
    key.encrypted = has("ENCRYPTED");
    key.rsa = has("BEGIN RSA");
  }
  return key;
}

std::string base64(std::string_view bytes) {
  std::string text;
  unsigned value = 0;
  int bits = 0;
  for (const char byte : bytes) {
    value = (value << 8) | static_cast<unsigned char>(byte);
    for (bits += 8; bits >= 6; bits -= 6) {
      text += digits[(value >> (bits - 6)) & 63];
    }
  }
  if (bits > 0) {
    text += digits[(value << (6 - bits)) & 63];
  }
  return text;
}

}  // namespace lumelift
