// SIMULATION; see framework.hpp. Libraries, pipelines, buffers, queues: enough for tiny compute dispatches.
#include <cstring>

#include "metal/device.hpp"
#include "metal/kernels.hpp"
#include "metal/scenario.hpp"

namespace lab::metal {
namespace {

struct Size {
  unsigned long width, height, depth;
};

struct LibraryBody : Body {
  std::vector<Kernel> kernels;
};
struct KernelBody : Body {  // of a function and of a pipeline
  Kernel kernel;
};
struct BufferBody : Body {
  std::vector<char> bytes;
};
struct CommandBody : Body {
  std::vector<std::function<bool()>> work;
  long status = 0;  // MTLCommandBufferStatusNotEnqueued
  id error = nullptr;
};
struct EncoderBody : Body {
  id commands = nullptr;
  id pipeline = nullptr;
  std::map<unsigned long, std::pair<id, unsigned long>> buffers;
  std::map<unsigned long, std::vector<char>> bytes;
};

Class library_class, function_class, pipeline_class, buffer_class, queue_class, command_class, encoder_class;

void set_error(id* error, id value) {
  if (error) *error = value;
}

// -- the device's part --

id new_library(id, SEL, id source, id, id* error) {
  std::string problem = scenario().has("no-compiler") ? "Compiler service is not available" : "";
  auto fresh = std::make_unique<LibraryBody>();
  if (problem.empty()) fresh->kernels = compile(text_of(source), problem);
  set_error(error, problem.empty() ? nullptr : make_error(problem));
  return problem.empty() ? make_object(library_class, std::move(fresh)) : nullptr;
}

bool refused(KernelKind kind) {
  const Scenario& s = scenario();
  return s.has("kernels-fail") || (kind == KernelKind::simd_sum && s.has("fail-simd")) ||
         (kind == KernelKind::matrix && s.has("fail-matrix")) || (kind == KernelKind::bfloat && s.has("fail-bfloat"));
}

// The physical GPU runs what the stock guest denies, so refusal is a matter of the scenario and not of the families.
id new_pipeline(id, SEL, id function, id* error) {
  set_error(error, nullptr);
  const Kernel& kernel = body<KernelBody>(function).kernel;
  if (refused(kernel.kind)) {
    set_error(error, make_error("Compute function " + kernel.name + " uses instructions that this device lacks"));
    return nullptr;
  }
  auto fresh = std::make_unique<KernelBody>();
  fresh->kernel = kernel;
  return make_object(pipeline_class, std::move(fresh));
}

id new_buffer(id, SEL, unsigned long length, unsigned long) {
  if (length == 0 || length > scenario().ram_bytes / 2) return nullptr;
  auto fresh = std::make_unique<BufferBody>();
  fresh->bytes.resize(length);
  return make_object(buffer_class, std::move(fresh));
}
id new_buffer_with_bytes(id self, SEL selector, const void* bytes, unsigned long length, unsigned long options) {
  id buffer = new_buffer(self, selector, length, options);
  if (buffer) std::memcpy(body<BufferBody>(buffer).bytes.data(), bytes, length);
  return buffer;
}
id new_queue(id, SEL) {
  return make_object(queue_class, std::make_unique<Body>());
}

// -- library, function, pipeline, buffer --

id function_with_name(id self, SEL, id name) {
  for (const Kernel& kernel : body<LibraryBody>(self).kernels) {
    if (kernel.name != text_of(name)) continue;
    auto fresh = std::make_unique<KernelBody>();
    fresh->kernel = kernel;
    return make_object(function_class, std::move(fresh));
  }
  return nullptr;
}
id kernel_name(id self, SEL) {
  return make_string(body<KernelBody>(self).kernel.name);
}
unsigned long thread_width(id, SEL) {
  return 32;
}
unsigned long most_threads(id, SEL) {
  return 1024;
}
void* buffer_contents(id self, SEL) {
  return body<BufferBody>(self).bytes.data();
}
unsigned long buffer_size(id self, SEL) {
  return body<BufferBody>(self).bytes.size();
}

// -- commands --

id command_buffer(id, SEL) {
  return make_object(command_class, std::make_unique<CommandBody>());
}
id compute_encoder(id self, SEL) {
  auto fresh = std::make_unique<EncoderBody>();
  fresh->commands = self;
  return make_object(encoder_class, std::move(fresh));
}
void set_pipeline(id self, SEL, id pipeline) {
  body<EncoderBody>(self).pipeline = pipeline;
}
void set_buffer(id self, SEL, id buffer, unsigned long offset, unsigned long index) {
  body<EncoderBody>(self).buffers[index] = {buffer, offset};
}
void set_bytes(id self, SEL, const void* bytes, unsigned long length, unsigned long index) {
  const auto* first = static_cast<const char*>(bytes);
  body<EncoderBody>(self).bytes[index].assign(first, first + length);
}

void record(id self, unsigned long threads) {
  auto& encoder = body<EncoderBody>(self);
  id pipeline = encoder.pipeline;
  auto buffers = encoder.buffers;
  auto constants = encoder.bytes;
  body<CommandBody>(encoder.commands).work.push_back([=]() mutable {
    if (!pipeline) return false;
    Buffers bound;
    for (auto& [index, place] : buffers) {
      auto& bytes = body<BufferBody>(place.first).bytes;
      if (place.second > bytes.size()) return false;
      bound.at[index] = reinterpret_cast<float*>(bytes.data() + place.second);
      bound.bytes[index] = bytes.size() - place.second;
    }
    for (auto& [index, bytes] : constants) {
      bound.at[index] = reinterpret_cast<float*>(bytes.data());
      bound.bytes[index] = bytes.size();
    }
    const Kernel& kernel = body<KernelBody>(pipeline).kernel;
    if (!kernel.run(bound, threads)) return false;
    if (scenario().has("kernels-wrong")) bound.at.at(kernel.output)[0] += 1.0F;
    return true;
  });
}
void dispatch_groups(id self, SEL, Size groups, Size threads) {
  record(self, groups.width * groups.height * groups.depth * threads.width * threads.height * threads.depth);
}
void dispatch_threads(id self, SEL, Size grid, Size) {
  record(self, grid.width * grid.height * grid.depth);
}
void end_encoding(id, SEL) {}

void commit(id self, SEL) {
  auto& commands = body<CommandBody>(self);
  commands.status = 4;  // MTLCommandBufferStatusCompleted
  for (auto& work : commands.work) {
    if (work()) continue;
    commands.status = 5;  // MTLCommandBufferStatusError
    commands.error = make_error("Caused GPU Address Fault Error");
    break;
  }
}
void wait_until_completed(id, SEL) {}  // commit runs the work before it returns
long command_status(id self, SEL) {
  return body<CommandBody>(self).status;
}
id command_error(id self, SEL) {
  return body<CommandBody>(self).error;
}

}  // namespace

const std::vector<MethodSpec>& compute_methods() {
  static const std::vector<MethodSpec> methods = {
      {"newLibraryWithSource:options:error:", "@40@0:8@16@24^@32", as_imp(new_library)},
      {"newComputePipelineStateWithFunction:error:", "@32@0:8@16^@24", as_imp(new_pipeline)},
      {"newBufferWithLength:options:", "@32@0:8Q16Q24", as_imp(new_buffer)},
      {"newBufferWithBytes:length:options:", "@40@0:8r^v16Q24Q32", as_imp(new_buffer_with_bytes)},
      {"newCommandQueue", "@16@0:8", as_imp(new_queue)},
  };
  return methods;
}

void define_compute_classes() {
  const Class root = root_class();
  library_class = define_class("LabMetalLibrary", root, {{"newFunctionWithName:", "@24@0:8@16", as_imp(function_with_name)}});
  function_class = define_class("LabMetalFunction", root, {{"name", "@16@0:8", as_imp(kernel_name)}});
  pipeline_class = define_class(
      "LabMetalPipeline", root,
      {{"threadExecutionWidth", "Q16@0:8", as_imp(thread_width)}, {"maxTotalThreadsPerThreadgroup", "Q16@0:8", as_imp(most_threads)}});
  buffer_class =
      define_class("LabMetalBuffer", root, {{"contents", "^v16@0:8", as_imp(buffer_contents)}, {"length", "Q16@0:8", as_imp(buffer_size)}});
  queue_class = define_class("LabMetalQueue", root, {{"commandBuffer", "@16@0:8", as_imp(command_buffer)}});
  command_class = define_class("LabMetalCommands", root,
                               {{"computeCommandEncoder", "@16@0:8", as_imp(compute_encoder)},
                                {"commit", "v16@0:8", as_imp(commit)},
                                {"waitUntilCompleted", "v16@0:8", as_imp(wait_until_completed)},
                                {"status", "Q16@0:8", as_imp(command_status)},
                                {"error", "@16@0:8", as_imp(command_error)}});
  encoder_class =
      define_class("LabMetalEncoder", root,
                   {{"setComputePipelineState:", "v24@0:8@16", as_imp(set_pipeline)},
                    {"setBuffer:offset:atIndex:", "v40@0:8@16Q24Q32", as_imp(set_buffer)},
                    {"setBytes:length:atIndex:", "v40@0:8r^v16Q24Q32", as_imp(set_bytes)},
                    {"dispatchThreadgroups:threadsPerThreadgroup:", "v64@0:8{MTLSize=QQQ}16{MTLSize=QQQ}40", as_imp(dispatch_groups)},
                    {"dispatchThreads:threadsPerThreadgroup:", "v64@0:8{MTLSize=QQQ}16{MTLSize=QQQ}40", as_imp(dispatch_threads)},
                    {"endEncoding", "v16@0:8", as_imp(end_encoding)}});
}

}  // namespace lab::metal
