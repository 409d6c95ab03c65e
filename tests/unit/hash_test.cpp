#include "host/sys/hash.hpp"

#include <doctest/doctest.h>

#include <string>

#include "host/sys/error.hpp"
#include "tests/unit/scratch.hpp"

using namespace lumelift;

TEST_CASE("SHA-256 of the published vectors") {
  CHECK(sys::sha256("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sys::sha256("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sys::sha256(std::string(1'000'000, 'a')) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("a running hash equals the hash of the whole") {
  sys::Sha256 hash;
  hash.update(std::string_view("a"));
  hash.update(std::string_view("bc"));
  CHECK(hash.hex() == sys::sha256("abc"));
}

TEST_CASE("a file's hash covers all blocks and bytes of any value") {
  const test::Scratch scratch;
  std::string content;
  for (int i = 0; i < 2'500'000; ++i) content += static_cast<char>(i * 7);
  CHECK(sys::sha256_file(scratch.write("big", content)) == sys::sha256(content));
  CHECK(sys::sha256_file(scratch.write("empty", "")) == sys::sha256(""));
}

TEST_CASE("a file that cannot be hashed is named") {
  const test::Scratch scratch;
  for (const auto& path : {scratch.path() / "missing", scratch.path()}) {
    try {
      (void)sys::sha256_file(path);
      FAIL("no error for " << path);
    } catch (const Error& error) {
      CHECK(error.id() == "file-unreadable");
      CHECK(error.message().find(path.string()) != std::string::npos);
    }
  }
}
