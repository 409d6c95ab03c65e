#pragma once

// SIMULATION; see framework.hpp.

#include <cstdint>
#include <set>
#include <string>

namespace lab::metal {

/// The words of LAB_METAL. They describe the simulated device as it is before anybody changes its answers.
///
///   no-class             neither `_MTLDevice` nor `AppleParavirtDevice` exist: the classes have other names
///   no-paravirt-class    `_MTLDevice` is there, the concrete class has another name
///   no-init-method       `initGPUFamilySupport` has another name
///   no-family-method     `supportsFamily:` has another name
///   no-memory-method     `maxThreadgroupMemoryLength` has another name
///   bad-encoding         `supportsFamily:` is declared with other types; also bad-encoding-init, bad-encoding-memory
///   own-methods          the concrete class declares `supportsFamily:` and `maxThreadgroupMemoryLength` itself
///   middle-class         a class stands between `_MTLDevice` and the concrete one
///   sibling              a device of another class below `_MTLDevice` is second in the list
///   two-devices          two paravirtual devices
///   real-gpu             the device is a real GPU's class
///   no-default           the default device is nil, the list has one
///   no-list              the list is empty until the default device was asked for; empty-list: it stays empty
///   no-device            neither
///   needs-coregraphics   no default device for the whole process unless CoreGraphics was loaded first
///   fresh-devices        every call makes new device objects, from any thread
///   metal3, broad, hole  more than a stock guest: Metal3; Apple21 and Metal3; Apple7 without Apple6
///   kernels-fail         pipelines are refused; kernels-wrong: they compute something else; no-compiler: no library
///   fail-simd, fail-matrix, fail-bfloat   only that kind is refused
///   residency            residency sets work; residency-error: their creation gives an error object
///   ram-N, memory-N      N GiB of memory; N bytes of threadgroup memory
struct Scenario {
  std::set<std::string> words;
  uint64_t ram_bytes = uint64_t{16} << 30;
  unsigned long threadgroup_bytes = 32768;

  [[nodiscard]] bool has(const char* word) const { return words.count(word) != 0; }
};

[[nodiscard]] const Scenario& scenario();

}  // namespace lab::metal
