#include "host/sys/secret.hpp"

#include <doctest/doctest.h>

#include <string>
#include <utility>

using namespace lumelift;

TEST_CASE("a secret keeps its value, copies it, and leaves nothing behind when moved from") {
  sys::Secret first{std::string("hunter2")};
  const sys::Secret copy = first;
  const sys::Secret moved = std::move(first);
  CHECK(moved.reveal() == "hunter2");
  CHECK(copy.reveal() == "hunter2");
  CHECK(first.reveal().empty());  // NOLINT(bugprone-use-after-move): that is the promise
}

TEST_CASE("R131: the bytes of a secret are overwritten when it is replaced") {
  sys::Secret secret{std::string("short")};  // short enough to live inside the object, where looking is allowed
  const char* bytes = secret.reveal().data();
  secret = sys::Secret();
  CHECK(std::string(bytes, 5) == std::string(5, '\0'));
}
