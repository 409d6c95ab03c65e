#include "shim/device.hpp"

namespace lumelift::shim {
namespace {

constexpr char kMetal[] = "/System/Library/Frameworks/Metal.framework/Metal";
// Without it, the default device of a minimal process can be missing for good.
constexpr char kCoreGraphics[] = "/System/Library/Frameworks/CoreGraphics.framework/CoreGraphics";
constexpr int kLazy = 1;  // RTLD_LAZY

bool contains(const char* text, const char* part) {
  for (; *text != '\0'; ++text) {
    size_t i = 0;
    while (part[i] != '\0' && text[i] == part[i]) ++i;
    if (part[i] == '\0') return true;
  }
  return false;
}

const char* name_of(id device) {
  return responds(device, "name") ? utf8(send<id>(device, "name")) : nullptr;
}

void put_number(Text& json, id device, const char* selector, uint64_t add = 0) {
  if (responds(device, selector))
    json.number(send<unsigned long>(device, selector) + add);
  else
    json.put("null");
}

void put_boolean(Text& json, id device, const char* selector) {
  if (responds(device, selector))
    json.boolean(send<BOOL>(device, selector) != 0);
  else
    json.put("null");
}

void put_architecture(Text& json, id device) {
  const id architecture = responds(device, "architecture") ? send<id>(device, "architecture") : nullptr;
  const bool named = architecture != nullptr && responds(architecture, "name");
  json.quoted(named ? utf8(send<id>(architecture, "name")) : nullptr);
}

/// The promise that breaks programs: a guest answers with nothing, and often without an error.
void put_residency(Text& json, id device) {
  const Class type = objc_lookUpClass("MTLResidencySetDescriptor");
  json.key("residency_set");
  if (type == nullptr || !responds(device, "newResidencySetWithDescriptor:error:")) {
    json.quoted("unavailable").key("residency_error").put("null");
    return;
  }
  const id descriptor = send<id>(send<id>(reinterpret_cast<id>(type), "alloc"), "init");
  id error = nullptr;
  const id set = send<id>(device, "newResidencySetWithDescriptor:error:", descriptor, &error);
  json.quoted(set != nullptr ? "object" : error != nullptr ? "error" : "nil");
  json.key("residency_error").quoted(set == nullptr && error != nullptr ? description_of(error) : nullptr);
}

void put_families(Text& json, const Answers& answers) {
  json.key("families").put('{');
  for (size_t i = 0; i < kFamilyCount; ++i) {
    char name[8];
    Text key(name);
    key.signed_number(kFamilies[i]).c_str();
    json.key(name).boolean((answers.families >> i & 1) != 0);
  }
  json.put('}').key("families_beyond").put('[');
  for (size_t i = 0; i < kBeyondCount; ++i)
    if ((answers.beyond >> i & 1) != 0) json.element().signed_number(kBeyond[i]);
  json.put(']').key("highest_apple_family").signed_number(answers.highest_apple());
}

}  // namespace

bool responds(id object, const char* selector) {
  const Class type = object_getClass(object);
  const SEL wanted = sel_registerName(selector);
  if (class_respondsToSelector(type, wanted) != 0) return true;
  const SEL question = sel_registerName("respondsToSelector:");
  return class_respondsToSelector(type, question) != 0 && send<BOOL>(object, "respondsToSelector:", wanted) != 0;
}

const char* utf8(id string) {
  return string != nullptr && responds(string, "UTF8String") ? send<const char*>(string, "UTF8String") : nullptr;
}

id make_string(const char* text) {
  const Class type = objc_lookUpClass("NSString");
  return type != nullptr ? send<id>(reinterpret_cast<id>(type), "stringWithUTF8String:", text) : nullptr;
}

const char* description_of(id error) {
  if (error == nullptr || !responds(error, "localizedDescription")) return nullptr;
  return utf8(send<id>(error, "localizedDescription"));
}

void Devices::find() {
  dlopen(kCoreGraphics, kLazy);
  void* metal = dlopen(kMetal, kLazy);
  metal_ = metal != nullptr;
  if (!metal_) return;
  using Make = id (*)();
  if (const auto make = reinterpret_cast<Make>(dlsym(metal, "MTLCreateSystemDefaultDevice"))) default_ = make();
  if (default_ != nullptr) devices_[count_++] = default_;
  const auto copy = reinterpret_cast<Make>(dlsym(metal, "MTLCopyAllDevices"));
  const id list = copy != nullptr ? copy() : nullptr;
  if (copy != nullptr) listed_ = 0;
  if (list == nullptr || !responds(list, "count") || !responds(list, "objectAtIndex:")) return;
  const auto size = send<unsigned long>(list, "count");
  listed_ = static_cast<int64_t>(size);
  for (unsigned long i = 0; i < size && count_ < kMost; ++i) {
    const id device = send<id>(list, "objectAtIndex:", i);
    if (device != nullptr && device != default_) devices_[count_++] = device;
  }
}

Answers ask(id device) {
  Answers answers;
  if (device == nullptr) return answers;
  answers.device = true;
  const char* name = name_of(device);
  answers.paravirtual =
      (name != nullptr && contains(name, "Paravirtual")) || strcmp(class_getName(object_getClass(device)), "AppleParavirtDevice") == 0;
  if (responds(device, "supportsFamily:")) {
    for (size_t i = 0; i < kFamilyCount; ++i)
      if (send<BOOL>(device, "supportsFamily:", static_cast<long>(kFamilies[i])) != 0) answers.families |= 1U << i;
    for (size_t i = 0; i < kBeyondCount; ++i)
      if (send<BOOL>(device, "supportsFamily:", static_cast<long>(kBeyond[i])) != 0) answers.beyond |= 1U << i;
  }
  if (responds(device, "maxThreadgroupMemoryLength"))
    answers.threadgroup_memory = send<unsigned long>(device, "maxThreadgroupMemoryLength");
  return answers;
}

void describe_device(id device, const Answers& answers, Text& json) {
  json.key("name").quoted(name_of(device)).key("class").put('[');
  for (Class type = object_getClass(device); type != nullptr; type = class_getSuperclass(type)) json.element().quoted(class_getName(type));
  json.put(']').key("architecture");
  put_architecture(json, device);
  json.key("paravirtual").boolean(answers.paravirtual);
  put_families(json, answers);
  json.key("max_threadgroup_memory");
  put_number(json, device, "maxThreadgroupMemoryLength");
  json.key("max_buffer_length");
  put_number(json, device, "maxBufferLength");
  json.key("recommended_working_set");
  put_number(json, device, "recommendedMaxWorkingSetSize");
  json.key("unified_memory");
  put_boolean(json, device, "hasUnifiedMemory");
  json.key("argument_tier");
  put_number(json, device, "argumentBuffersSupport", 1);  // MTLArgumentBuffersTier1 is 0
  json.key("raytracing");
  put_boolean(json, device, "supportsRaytracing");
  json.key("function_pointers");
  put_boolean(json, device, "supportsFunctionPointers");
  json.key("dynamic_libraries");
  put_boolean(json, device, "supportsDynamicLibraries");
  put_residency(json, device);
}

}  // namespace lumelift::shim
