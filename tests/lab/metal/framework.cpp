// SIMULATION; see framework.hpp.
#include "metal/framework.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "metal/device.hpp"
#include "metal/scenario.hpp"

namespace lab::metal {
namespace {

Scenario current;
std::atomic<bool> loaded, core_graphics;

constexpr const char* kWords[] = {
    "no-class",
    "no-paravirt-class",
    "no-init-method",
    "no-family-method",
    "no-memory-method",
    "bad-encoding",
    "bad-encoding-init",
    "bad-encoding-memory",
    "own-methods",
    "middle-class",
    "sibling",
    "two-devices",
    "real-gpu",
    "no-default",
    "no-list",
    "empty-list",
    "no-device",
    "needs-coregraphics",
    "fresh-devices",
    "metal3",
    "broad",
    "hole",
    "kernels-fail",
    "kernels-wrong",
    "no-compiler",
    "fail-simd",
    "fail-matrix",
    "fail-bfloat",
    "residency",
    "residency-error",
};

[[noreturn]] void bad_word(const std::string& word) {
  std::fprintf(stderr, "LAB_METAL: unknown word '%s'\n", word.c_str());
  std::exit(2);
}

void read_word(const std::string& word) {
  const auto number = [&](size_t prefix) {
    char* end = nullptr;
    const unsigned long value = std::strtoul(word.c_str() + prefix, &end, 10);
    if (end == word.c_str() + prefix || *end) bad_word(word);
    return value;
  };
  if (word.rfind("ram-", 0) == 0) {
    current.ram_bytes = uint64_t{number(4)} << 30;
  } else if (word.rfind("memory-", 0) == 0) {
    current.threadgroup_bytes = number(7);
  } else {
    for (const char* known : kWords)
      if (word == known) {
        current.words.insert(word);
        return;
      }
    bad_word(word);
  }
}

id main_device() {
  return current.has("real-gpu") ? make_gpu_device() : make_paravirtual_device();
}

/// One object per physical device for the life of the process.
id cached_device() {
  static id device = main_device();
  return device;
}
id cached_second() {
  static id device = current.has("sibling") ? make_sibling_device() : make_paravirtual_device();
  return device;
}

std::atomic<bool> default_asked, default_spoiled;

id create_default_device() {
  default_asked = true;
  // A process that asks before CoreGraphics is there never gets one later either.
  if (current.has("needs-coregraphics") && !core_graphics) default_spoiled = true;
  if (current.has("no-device") || current.has("no-default") || default_spoiled) return nullptr;
  if (current.has("fresh-devices")) return main_device();
  retain(cached_device());
  return cached_device();
}

id copy_all_devices() {
  const bool empty = current.has("no-device") || current.has("empty-list") || (current.has("no-list") && !default_asked);
  if (empty) return make_array({});
  const bool fresh = current.has("fresh-devices");
  std::vector<id> members{fresh ? main_device() : cached_device()};
  if (current.has("sibling") || current.has("two-devices"))
    members.push_back(!fresh ? cached_second() : current.has("sibling") ? make_sibling_device() : make_paravirtual_device());
  for (id member : members) retain(member);
  return make_array(std::move(members));
}

}  // namespace

const Scenario& scenario() {
  return current;
}

void read_scenario(const std::string& words) {
  for (size_t at = 0; at < words.size();) {
    const size_t comma = std::min(words.find(',', at), words.size());
    if (comma > at) read_word(words.substr(at, comma - at));
    at = comma + 1;
  }
}

void load_framework() {
  static std::once_flag once;
  std::call_once(once, [] {
    define_foundation();
    define_compute_classes();
    define_device_classes();
    loaded = true;
  });
}

void note_core_graphics() {
  core_graphics = true;
}

void* framework_symbol(std::string_view name) {
  if (!loaded) return nullptr;
  if (name == "_MTLCreateSystemDefaultDevice") return reinterpret_cast<void*>(create_default_device);
  if (name == "_MTLCopyAllDevices") return reinterpret_cast<void*>(copy_all_devices);
  return nullptr;
}

}  // namespace lab::metal
