#include "shim/device.hpp"

namespace lumelift::shim {
namespace {

// Every kernel reads its input from a buffer, so that no compiler can know the answer.
constexpr char kSumSource[] = R"(
#include <metal_stdlib>
using namespace metal;
kernel void lumelift_simd_sum(device const float* in [[buffer(0)]], device float* out [[buffer(1)]],
                              uint i [[thread_position_in_grid]]) {
  const float total = simd_sum(in[i]);
  if (i == 0) out[0] = total;
}
)";
constexpr char kMatrixSource[] = R"(
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;
kernel void lumelift_matrix(device const float* in [[buffer(0)]], device float* out [[buffer(1)]]) {
  simdgroup_float8x8 a, b, c = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  simdgroup_load(a, in, 8);
  simdgroup_load(b, in, 8);
  simdgroup_multiply_accumulate(c, a, b, c);
  simdgroup_store(c, out, 8);
}
)";
constexpr char kBfloatSource[] = R"(
#include <metal_stdlib>
using namespace metal;
kernel void lumelift_bfloat(device const float* in [[buffer(0)]], device float* out [[buffer(1)]],
                            uint i [[thread_position_in_grid]]) {
  const bfloat x = bfloat(in[i]);
  out[i] = float(x * x + x);
}
)";

constexpr unsigned long kThreads = 32;  // one SIMD group
constexpr unsigned long kFloats = 64;
constexpr unsigned long kShared = 0;  // MTLResourceStorageModeShared
constexpr unsigned kDeadline = 60;    // seconds; a device that never finishes ends the process

struct Extent {
  unsigned long width, height, depth;
};

struct Kernel {
  const char* name;
  const char* function;
  const char* source;
  float (*input)(unsigned long index);
  unsigned long results;
  float (*expected)(unsigned long index);
};

// Small whole numbers: exact in float and in bfloat.
float one_up(unsigned long i) {
  return static_cast<float>(i + 1);
}
float small(unsigned long i) {
  return static_cast<float>(i % 8);
}
float simd_total(unsigned long) {
  return static_cast<float>(kThreads * (kThreads + 1) / 2);
}
float square_plus(unsigned long i) {
  return small(i) * small(i) + small(i);
}
float matrix_entry(unsigned long i) {
  return static_cast<float>(i / 8 * 3 % 5 + i % 8);
}
float matrix_product(unsigned long i) {
  float sum = 0;
  for (unsigned long k = 0; k < 8; ++k) sum += matrix_entry(i / 8 * 8 + k) * matrix_entry(k * 8 + i % 8);
  return sum;
}

constexpr Kernel kKernels[kCheckCount] = {
    {"simd_sum", "lumelift_simd_sum", kSumSource, one_up, 1, simd_total},
    {"simd_matrix", "lumelift_matrix", kMatrixSource, matrix_entry, 64, matrix_product},
    {"bfloat", "lumelift_bfloat", kBfloatSource, small, 32, square_plus},
};

void say(Check& check, Check::Result result, const char* text, const char* more = nullptr) {
  check.result = result;
  Text message(check.message, sizeof check.message - 1);
  message.put(text);
  if (more != nullptr) message.put(": ").put(more);
  check.message[message.size()] = '\0';
}

bool missing(Check& check, id object, const char* selector) {
  if (object != nullptr && responds(object, selector)) return false;
  say(check, Check::Result::unavailable, "the device does not offer", selector);
  return true;
}

id make_pipeline(Check& check, id device, const Kernel& kernel) {
  id error = nullptr;
  if (missing(check, device, "newLibraryWithSource:options:error:")) return nullptr;
  const id source = make_string(kernel.source);
  const id library = send<id>(device, "newLibraryWithSource:options:error:", source, static_cast<id>(nullptr), &error);
  if (library == nullptr) return say(check, Check::Result::fail, "does not compile", description_of(error)), nullptr;
  if (missing(check, library, "newFunctionWithName:")) return nullptr;
  const id function = send<id>(library, "newFunctionWithName:", make_string(kernel.function));
  if (function == nullptr) return say(check, Check::Result::fail, "the function is missing"), nullptr;
  if (missing(check, device, "newComputePipelineStateWithFunction:error:")) return nullptr;
  const id pipeline = send<id>(device, "newComputePipelineStateWithFunction:error:", function, &error);
  if (pipeline == nullptr) say(check, Check::Result::fail, "no pipeline", description_of(error));
  return pipeline;
}

bool run(Check& check, id device, id pipeline, id input, id output) {
  const id queue = send<id>(device, "newCommandQueue");
  const id commands = queue != nullptr ? send<id>(queue, "commandBuffer") : nullptr;
  const id encoder = commands != nullptr ? send<id>(commands, "computeCommandEncoder") : nullptr;
  if (encoder == nullptr) return say(check, Check::Result::fail, "no command encoder"), false;
  send<void>(encoder, "setComputePipelineState:", pipeline);
  send<void>(encoder, "setBuffer:offset:atIndex:", input, 0UL, 0UL);
  send<void>(encoder, "setBuffer:offset:atIndex:", output, 0UL, 1UL);
  send<void>(encoder, "dispatchThreadgroups:threadsPerThreadgroup:", Extent{1, 1, 1}, Extent{kThreads, 1, 1});
  send<void>(encoder, "endEncoding");
  send<void>(commands, "commit");
  send<void>(commands, "waitUntilCompleted");
  const id error = responds(commands, "error") ? send<id>(commands, "error") : nullptr;
  if (error != nullptr) return say(check, Check::Result::fail, "the device reports", description_of(error)), false;
  return true;
}

void run_check(Check& check, id device, const Kernel& kernel) {
  check.name = kernel.name;
  const id pipeline = make_pipeline(check, device, kernel);
  if (pipeline == nullptr) return;
  if (missing(check, device, "newBufferWithLength:options:") || missing(check, device, "newCommandQueue")) return;
  const unsigned long bytes = kFloats * sizeof(float);
  const id input = send<id>(device, "newBufferWithLength:options:", bytes, kShared);
  const id output = send<id>(device, "newBufferWithLength:options:", bytes, kShared);
  if (input == nullptr || output == nullptr) return say(check, Check::Result::fail, "no buffers");
  auto* in = static_cast<float*>(send<void*>(input, "contents"));
  auto* out = static_cast<float*>(send<void*>(output, "contents"));
  for (unsigned long i = 0; i < kFloats; ++i) in[i] = kernel.input(i), out[i] = -1.0F;
  if (!run(check, device, pipeline, input, output)) return;
  for (unsigned long i = 0; i < kernel.results; ++i)
    if (out[i] != kernel.expected(i)) return say(check, Check::Result::fail, "wrong result");
  say(check, Check::Result::pass, "");
}

}  // namespace

void run_checks(id device, Check (&checks)[kCheckCount]) {
  alarm(kDeadline);
  for (size_t i = 0; i < kCheckCount; ++i) run_check(checks[i], device, kKernels[i]);
  alarm(0);
}

}  // namespace lumelift::shim
