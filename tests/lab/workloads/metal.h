#pragma once

// What a program that uses Metal asks its device.

#include "darwin.h"

#define SEND(type, ...) ((type (*)(id, SEL, ##__VA_ARGS__))objc_msgSend)

static void* metal_framework(void) {
  static void* handle;
  if (!handle) {
    dlopen("/System/Library/Frameworks/CoreGraphics.framework/CoreGraphics", 1);
    handle = dlopen("/System/Library/Frameworks/Metal.framework/Metal", 1);
  }
  return handle;
}

__attribute__((unused)) static id default_device(void) {
  void* metal = metal_framework();
  id (*create)(void) = metal ? (id(*)(void))dlsym(metal, "MTLCreateSystemDefaultDevice") : NULL;
  return create ? create() : NULL;
}

static id device_list(void) {
  void* metal = metal_framework();
  id (*copy)(void) = metal ? (id(*)(void))dlsym(metal, "MTLCopyAllDevices") : NULL;
  return copy ? copy() : NULL;
}

__attribute__((unused)) static unsigned long device_count(void) {
  id list = device_list();
  return list ? SEND(unsigned long)(list, sel_registerName("count")) : 0;
}

__attribute__((unused)) static id device_at(unsigned long index) {
  return SEND(id, unsigned long)(device_list(), sel_registerName("objectAtIndex:"), index);
}

__attribute__((unused)) static bool supports(id device, long family) {
  return device && SEND(BOOL, long)(device, sel_registerName("supportsFamily:"), family);
}

__attribute__((unused)) static unsigned long size_of(id device, const char* question) {
  return device ? SEND(unsigned long)(device, sel_registerName(question)) : 0;
}

__attribute__((unused)) static const char* device_name(id device) {
  id name = device ? SEND(id)(device, sel_registerName("name")) : NULL;
  return name ? SEND(const char*)(name, sel_registerName("UTF8String")) : "none";
}

// Runs a SIMD-group sum of 1..32 on the device; 528 where it computes right, 0 where it refuses.
__attribute__((unused)) static float device_sum(id device) {
  static const char source[] =
      "#include <metal_stdlib>\nusing namespace metal;\n"
      "kernel void lab_sum(device const float* in [[buffer(0)]], device float* out [[buffer(1)]],\n"
      "                    uint i [[thread_position_in_grid]]) { out[i] = simd_sum(in[i]); }\n";
  struct {
    unsigned long width, height, depth;
  } one = {1, 1, 1}, group = {32, 1, 1};
  typeof(one) threads = {group.width, 1, 1};
  id string = (id)objc_lookUpClass("NSString"), error = NULL;
  SEL make = sel_registerName("stringWithUTF8String:");
  id library = SEND(id, id, id, id*)(device, sel_registerName("newLibraryWithSource:options:error:"),
                                     SEND(id, const char*)(string, make, source), NULL, &error);
  id function = library ? SEND(id, id)(library, sel_registerName("newFunctionWithName:"),
                                       SEND(id, const char*)(string, make, "lab_sum")) : NULL;
  id pipeline = function ? SEND(id, id, id*)(device, sel_registerName("newComputePipelineStateWithFunction:error:"),
                                             function, &error) : NULL;
  if (!pipeline) return 0;
  SEL new_buffer = sel_registerName("newBufferWithLength:options:"), contents = sel_registerName("contents");
  id in = SEND(id, unsigned long, unsigned long)(device, new_buffer, 128, 0);
  id out = SEND(id, unsigned long, unsigned long)(device, new_buffer, 128, 0);
  for (int i = 0; i < 32; ++i) SEND(float*)(in, contents)[i] = (float)(i + 1);
  id queue = SEND(id)(device, sel_registerName("newCommandQueue"));
  id commands = SEND(id)(queue, sel_registerName("commandBuffer"));
  id encoder = SEND(id)(commands, sel_registerName("computeCommandEncoder"));
  SEL set_buffer = sel_registerName("setBuffer:offset:atIndex:");
  SEND(void, id)(encoder, sel_registerName("setComputePipelineState:"), pipeline);
  SEND(void, id, unsigned long, unsigned long)(encoder, set_buffer, in, 0, 0);
  SEND(void, id, unsigned long, unsigned long)(encoder, set_buffer, out, 0, 1);
  SEND(void, typeof(one), typeof(one))
  (encoder, sel_registerName("dispatchThreadgroups:threadsPerThreadgroup:"), one, threads);
  SEND(void)(encoder, sel_registerName("endEncoding"));
  SEND(void)(commands, sel_registerName("commit"));
  SEND(void)(commands, sel_registerName("waitUntilCompleted"));
  return SEND(float*)(out, contents)[0];
}
