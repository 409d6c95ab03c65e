// SIMULATION; see framework.hpp. The classes that answer for a device.
#include "metal/device.hpp"

#include <algorithm>
#include <mutex>

#include "metal/scenario.hpp"

namespace lab::metal {
namespace {

constexpr long kMetal3 = 5001, kMetal4 = 5002, kMac1 = 2001, kMac2 = 2002;

/// What the concrete class passes to the base class when it is initialised.
struct DeviceBody : Body {
  std::vector<long> families;  // filled by -initGPUFamilySupport, searched by -supportsFamily:
  id name = nullptr;
  id architecture = nullptr;
  unsigned long registry = 0;
  bool real = false;
};

struct NamedBody : Body {
  id name = nullptr;
};

Class base_class, architecture_class, residency_class;

void add_range(std::vector<long>& out, long first, long last) {
  for (long value = first; value <= last; ++value) out.push_back(value);
}

// The constant features of a profile, as the base class derives them from -featureProfile.
std::vector<long> families_of_profile(long profile) {
  std::vector<long> out;
  const Scenario& s = scenario();
  if (profile >= 10000) {  // paravirtual
    add_range(out, 1001, s.has("broad") ? 1021 : 1005);
    if (s.has("hole")) out.push_back(1007);
    add_range(out, 3001, 3003);
    out.push_back(kMac2);
    if (s.has("metal3") || s.has("broad")) out.push_back(kMetal3);
    if (s.has("broad")) add_range(out, kMetal4, kMetal4);
  } else {  // a real Apple7 chip
    add_range(out, 1001, 1007);
    add_range(out, 3001, 3003);
    add_range(out, kMac1, kMac2);
    add_range(out, kMetal3, kMetal4);
  }
  return out;
}

long feature_profile_paravirtual(id, SEL) {
#if defined(__aarch64__)
  return 10001;
#else
  return 10000;
#endif
}
long feature_profile_gpu(id, SEL) {
  return 7;
}

void init_family_support(id self, SEL) {
  const SEL question = sel_registerName("featureProfile");
  const long profile = reinterpret_cast<long (*)(id, SEL)>(objc_msg_lookup(self, question))(self, question);
  body<DeviceBody>(self).families = families_of_profile(profile);
}

Bool supports_family(id self, SEL, long family) {
  const auto& families = body<DeviceBody>(self).families;
  return std::find(families.begin(), families.end(), family) != families.end();
}
unsigned long threadgroup_memory(id, SEL) {
  return scenario().threadgroup_bytes;
}
unsigned long working_set(id, SEL) {
  return scenario().ram_bytes / 3 * 2;
}
unsigned long buffer_length(id, SEL) {
  return scenario().ram_bytes / 2;
}
unsigned long allocated_size(id, SEL) {
  return 0;
}
unsigned long registry_id(id self, SEL) {
  return body<DeviceBody>(self).registry;
}
unsigned long argument_tier(id, SEL) {
  return 1;
}  // MTLArgumentBuffersTier2
Bool yes(id, SEL) {
  return 1;
}
Bool no(id, SEL) {
  return 0;
}
Bool only_real(id self, SEL) {
  return body<DeviceBody>(self).real;
}
id device_name(id self, SEL) {
  return body<DeviceBody>(self).name;
}
id device_architecture(id self, SEL) {
  return body<DeviceBody>(self).architecture;
}
id named_name(id self, SEL) {
  return body<NamedBody>(self).name;
}

id named_object(Class type, const std::string& name) {
  auto fresh = std::make_unique<NamedBody>();
  fresh->name = make_string(name);
  return make_object(type, std::move(fresh));
}

// A guest answers with nil and sets no error.
id new_residency_set(id self, SEL, id, id* error) {
  if (error) *error = scenario().has("residency-error") ? make_error("Unable to construct residency set.") : nullptr;
  if (body<DeviceBody>(self).real || scenario().has("residency")) return named_object(residency_class, "set");
  return nullptr;
}

const char* renamed(const char* word, const char* usual, const char* other) {
  return scenario().has(word) ? other : usual;
}

MethodSpec family_method() {
  const bool bad = scenario().has("bad-encoding");
  return {renamed("no-family-method", "supportsFamily:", "supportsFamilyV2:"), bad ? "B20@0:8i16" : LAB_BOOL "24@0:8q16",
          as_imp(supports_family)};
}
MethodSpec memory_method() {
  return {renamed("no-memory-method", "maxThreadgroupMemoryLength", "maxThreadgroupMemoryLengthV2"),
          scenario().has("bad-encoding-memory") ? "I16@0:8" : "Q16@0:8", as_imp(threadgroup_memory)};
}

id make_device(Class type, const std::string& name, const std::string& architecture, bool real) {
  static std::atomic<unsigned long> next_registry{4294967800};
  auto fresh = std::make_unique<DeviceBody>();
  fresh->name = make_string(name);
  fresh->architecture = named_object(architecture_class, architecture);
  fresh->registry = next_registry++;
  fresh->real = real;
  id device = make_object(type, std::move(fresh));
  const SEL init = sel_registerName("initFeatureQueries");
  reinterpret_cast<void (*)(id, SEL)>(objc_msg_lookup(device, init))(device, init);
  return device;
}

// The base class initialises families first, then builds its private feature query, which asks a few families itself.
void init_feature_queries(id self, SEL) {
  const SEL init = sel_registerName(renamed("no-init-method", "initGPUFamilySupport", "initGPUFamilySupportV2"));
  reinterpret_cast<void (*)(id, SEL)>(objc_msg_lookup(self, init))(self, init);
  const SEL question = sel_registerName(family_method().name);
  for (long family : {1003L, 1005L, 1006L, 1008L})
    reinterpret_cast<Bool (*)(id, SEL, long)>(objc_msg_lookup(self, question))(self, question, family);
}

}  // namespace

void define_device_classes() {
  const MethodSpec init{renamed("no-init-method", "initGPUFamilySupport", "initGPUFamilySupportV2"),
                        scenario().has("bad-encoding-init") ? "v20@0:8i16" : "v16@0:8", as_imp(init_family_support)};
  std::vector<MethodSpec> methods = {
      init,
      family_method(),
      memory_method(),
      {"initFeatureQueries", "v16@0:8", as_imp(init_feature_queries)},
      {"recommendedMaxWorkingSetSize", "Q16@0:8", as_imp(working_set)},
      {"maxBufferLength", "Q16@0:8", as_imp(buffer_length)},
      {"currentAllocatedSize", "Q16@0:8", as_imp(allocated_size)},
      {"registryID", "Q16@0:8", as_imp(registry_id)},
      {"argumentBuffersSupport", "Q16@0:8", as_imp(argument_tier)},
      {"hasUnifiedMemory", LAB_BOOL "16@0:8", as_imp(yes)},
      {"isLowPower", LAB_BOOL "16@0:8", as_imp(no)},
      {"isHeadless", LAB_BOOL "16@0:8", as_imp(no)},
      {"isRemovable", LAB_BOOL "16@0:8", as_imp(no)},
      {"supportsRaytracing", LAB_BOOL "16@0:8", as_imp(only_real)},
      {"supportsDynamicLibraries", LAB_BOOL "16@0:8", as_imp(only_real)},
      {"supportsFunctionPointers", LAB_BOOL "16@0:8", as_imp(only_real)},
      {"name", "@16@0:8", as_imp(device_name)},
      {"architecture", "@16@0:8", as_imp(device_architecture)},
      {"newResidencySetWithDescriptor:error:", "@32@0:8@16^@24", as_imp(new_residency_set)},
  };
  for (const auto& method : compute_methods()) methods.push_back(method);
  base_class = define_class(renamed("no-class", "_MTLDevice", "_MTLDeviceV2"), root_class(), methods);
  architecture_class = define_class("MTLArchitecture", root_class(), {{"name", "@16@0:8", as_imp(named_name)}});
  residency_class = define_class("MTLSimulatedResidencySet", root_class(), {});
  define_class("MTLResidencySetDescriptor", root_class(), {});
}

id make_paravirtual_device() {
  static std::once_flag once;
  static Class type;
  std::call_once(once, [] {
    Class parent = base_class;
    if (scenario().has("middle-class")) parent = define_class("IOGPUMetalDevice", base_class, {});
    std::vector<MethodSpec> methods = {{"featureProfile", "q16@0:8", as_imp(feature_profile_paravirtual)}};
    if (scenario().has("own-methods")) {
      methods.push_back(family_method());
      methods.push_back(memory_method());
    }
    const bool other_name = scenario().has("no-class") || scenario().has("no-paravirt-class");
    type = define_class(other_name ? "AppleParavirtDeviceV2" : "AppleParavirtDevice", parent, methods);
  });
  return make_device(type, "Apple Paravirtual device", "air64_v27", false);
}

id make_sibling_device() {
  static std::once_flag once;
  static Class type;
  std::call_once(once, [] {
    type = define_class("LabSiblingDevice", base_class, {{"featureProfile", "q16@0:8", as_imp(feature_profile_paravirtual)}});
  });
  return make_device(type, "Lab sibling device", "lab_sibling", false);
}

id make_gpu_device() {
  static std::once_flag once;
  static Class type;
  std::call_once(once, [] {
    Class family = define_class("AGXG13XFamilyDevice", base_class, {});
    type = define_class("AGXG13XDevice", family, {{"featureProfile", "q16@0:8", as_imp(feature_profile_gpu)}});
  });
  return make_device(type, "Apple M1 Ultra", "applegpu_g13d", true);
}

}  // namespace lab::metal
