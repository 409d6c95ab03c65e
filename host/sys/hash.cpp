#include "host/sys/hash.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <vector>

#include "host/sys/crypto_version.hpp"
#include "host/sys/error.hpp"
#include "host/sys/fd.hpp"
#include "host/sys/time.hpp"

namespace lumelift::sys {

std::string crypto_version() {
  return OpenSSL_version(OPENSSL_VERSION);
}

struct Sha256::Context {
  EVP_MD_CTX* evp = EVP_MD_CTX_new();
  Context() {
    if (evp == nullptr) throw std::bad_alloc();
  }
  ~Context() { EVP_MD_CTX_free(evp); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
};

namespace {

void require(int result) {
  if (result != 1) throw Error(ErrorKind::failed, "hash-unavailable", "the crypto library refuses SHA-256");
}

[[noreturn]] void unreadable(const std::filesystem::path& path, const char* reason) {
  throw Error(ErrorKind::usage, "file-unreadable", fmt::format("cannot read {}: {}", path.string(), reason));
}

}  // namespace

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  require(EVP_DigestInit_ex(context_->evp, EVP_sha256(), nullptr));
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(std::span<const std::byte> bytes) {
  require(EVP_DigestUpdate(context_->evp, bytes.data(), bytes.size()));
}

void Sha256::update(std::string_view bytes) {
  update(std::as_bytes(std::span(bytes)));
}

std::string Sha256::hex() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  require(EVP_DigestFinal_ex(context_->evp, digest, &length));
  std::string text;
  text.reserve(2 * length);
  for (unsigned i = 0; i < length; ++i) fmt::format_to(std::back_inserter(text), "{:02x}", digest[i]);
  return text;
}

std::string sha256(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex();
}

std::string sha256_file(const std::filesystem::path& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) unreadable(path, std::strerror(errno));
  Sha256 hash;
  std::vector<char> block(1 << 20);
  for (;;) {
    check_interrupt();
    const auto got = ::read(fd.get(), block.data(), block.size());
    if (got == 0) return hash.hex();
    if (got > 0) {
      hash.update(std::string_view(block.data(), static_cast<std::size_t>(got)));
    } else if (errno != EINTR) {
      unreadable(path, std::strerror(errno));
    }
  }
}

}  // namespace lumelift::sys
