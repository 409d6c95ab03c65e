#pragma once

// SIMULATION; see framework.hpp.

#include <objc/message.h>
#include <objc/runtime.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

namespace lab::metal {

// BOOL results and NSInteger arguments as the two slices of macOS encode them.
#if defined(__aarch64__)
#define LAB_BOOL "B"
#else
#define LAB_BOOL "c"
#endif
using Bool = long;  // a whole register, so that both ABIs read the same value from its low byte

struct MethodSpec {
  const char* name;
  const char* types;
  IMP implementation;
};

template <typename Function>
IMP as_imp(Function* function) {
  return reinterpret_cast<IMP>(function);
}

/// Makes and registers a class. `class_methods` go to its metaclass.
Class define_class(const char* name, Class superclass, const std::vector<MethodSpec>& methods,
                   const std::vector<MethodSpec>& class_methods = {});

/// The C++ side of an object. One NSObject owns one Body and deletes it with its last reference.
struct Body {
  virtual ~Body() = default;
  std::atomic<long> references{1};
};

id make_object(Class type, std::unique_ptr<Body> body);
[[nodiscard]] Body* body_of(id object);
template <typename T>
[[nodiscard]] T& body(id object) {
  return static_cast<T&>(*body_of(object));
}

/// NSObject, NSString, NSArray, NSError: as much of them as a program needs that only asks a device.
void define_foundation();
[[nodiscard]] Class root_class();
[[nodiscard]] id make_string(const std::string& text);
[[nodiscard]] std::string text_of(id string);
[[nodiscard]] id make_array(std::vector<id> members);
[[nodiscard]] id make_error(const std::string& description);
void retain(id object);

}  // namespace lab::metal
