#pragma once

// SIMULATION; see framework.hpp. There is no shader compiler here: a kernel is *recognised* by the shape of its text
// and computed on the CPU. Text of any other shape is refused, never guessed.

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lab::metal {

enum class KernelKind { simd_sum, matrix, bfloat };

struct Buffers {
  std::map<unsigned long, float*> at;            // by index, already offset
  std::map<unsigned long, unsigned long> bytes;  // room behind each pointer
};

struct Kernel {
  std::string name;
  KernelKind kind = KernelKind::simd_sum;
  std::vector<unsigned long> inputs;  // buffer indices
  unsigned long output = 0;
  /// Computes a dispatch of `threads` threads; false if a buffer is missing or too small.
  std::function<bool(const Buffers&, unsigned long threads)> run;
};

/// The kernels of a source text. On failure `problem` holds what a compiler would say.
[[nodiscard]] std::vector<Kernel> compile(const std::string& source, std::string& problem);

}  // namespace lab::metal
