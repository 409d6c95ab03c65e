/// A Mach-O program for the tests of the injected library: asks devices questions in the ways that programs do, and
/// prints one line per answer.
///
///   ask [COUNT]        the default device: every family, then sizes, COUNT times
///   list               every device of the list: class and answers
///   threads COUNT      that many threads make a device and ask at once
///   metal              whether Metal's classes exist in this process, without loading it
///   fork               asks, then asks often in a child made by fork; the parent ends without running exit handlers
///   subclass           asks, then again as an object of a class below the device's own
///   owners             for each device of the list, who implements supportsFamily: in its class and those above
///   run PROGRAM ARG... asks, then runs a program in a child with the environment as it is
///   environment NAME…  prints variables
///   repeat COUNT FAMILY  makes a device and asks that often; prints nothing
///   wait MILLISECONDS  asks, then sleeps and ends without running exit handlers

#include "shim/device.hpp"
#include "shim/process.hpp"

extern "C" {
int fork(void);
int execv(const char* path, char* const* arguments);
int waitpid(int pid, int* status, int options);
void _exit(int status);
int pthread_create(void** thread, const void* attributes, void* (*function)(void*), void* argument);
int pthread_join(void* thread, void** result);
int usleep(unsigned microseconds);
Class objc_allocateClassPair(Class parent, const char* name, size_t extra);
void objc_registerClassPair(Class cls);
}

namespace lumelift::shim {
namespace {

using Make = id (*)();

void print(Text& text) {
  text.put('\n');
  if (write(1, text.data(), text.size()) < 0) _exit(99);
}

Make metal_function(const char* name) {
  void* metal = dlopen("/System/Library/Frameworks/Metal.framework/Metal", 1);
  return metal == nullptr ? nullptr : reinterpret_cast<Make>(dlsym(metal, name));
}

id default_device() {
  const Make make = metal_function("MTLCreateSystemDefaultDevice");
  return make == nullptr ? nullptr : make();
}

bool family(id device, int64_t value) {
  return send<BOOL>(device, "supportsFamily:", static_cast<long>(value)) != 0;
}
uint64_t size(id device, const char* selector) {
  return responds(device, selector) ? send<unsigned long>(device, selector) : 0;
}

void print_answers(id device) {
  char buffer[1024];
  Text line(buffer);
  line.put(class_getName(object_getClass(device))).put(':');
  for (const int64_t value : kFamilies)
    if (family(device, value)) line.put(' ').signed_number(value);
  for (const int64_t value : kBeyond)
    if (family(device, value)) line.put(' ').signed_number(value);
  line.put(" memory ").number(size(device, "maxThreadgroupMemoryLength"));
  line.put(" set ").number(size(device, "recommendedMaxWorkingSetSize"));
  print(line);
}

int ask_default(uint64_t count) {
  const id device = default_device();
  if (device == nullptr) return 1;
  for (uint64_t i = 0; i < count; ++i) print_answers(device);
  return 0;
}

int list_devices() {
  const Make copy = metal_function("MTLCopyAllDevices");
  const id list = copy == nullptr ? nullptr : copy();
  if (list == nullptr) return 1;
  const auto count = send<unsigned long>(list, "count");
  for (unsigned long i = 0; i < count; ++i) print_answers(send<id>(list, "objectAtIndex:", i));
  return 0;
}

struct Crowd {
  Cell<int> ready{}, go{}, stock{}, raised{}, torn{};
};

void* one_of_many(void* argument) {
  auto& crowd = *static_cast<Crowd*>(argument);
  crowd.ready.add(1);
  while (crowd.go.load() == 0) sched_yield();
  const id device = default_device();
  const bool raised = family(device, 1009);
  const bool memory = size(device, "maxThreadgroupMemoryLength") == 65536;
  (raised != memory ? crowd.torn : raised ? crowd.raised : crowd.stock).add(1);
  return nullptr;
}

int ask_in_threads(int count) {
  static Crowd crowd;
  void* threads[64];
  count = count > 64 ? 64 : count;
  for (int i = 0; i < count; ++i)
    if (pthread_create(&threads[i], nullptr, one_of_many, &crowd) != 0) return 1;
  while (crowd.ready.load() < count) sched_yield();
  crowd.go.store(1);
  for (int i = 0; i < count; ++i) pthread_join(threads[i], nullptr);
  char buffer[128];
  Text line(buffer);
  line.put("raised ").signed_number(crowd.raised.load()).put(" stock ").signed_number(crowd.stock.load());
  line.put(" torn ").signed_number(crowd.torn.load());
  print(line);
  return 0;
}

int finish(int child) {
  int status = 0;
  waitpid(child, &status, 0);
  return (status & 0x7f) != 0 ? 128 + (status & 0x7f) : status >> 8 & 0xff;
}

int ask_after_fork() {
  if (ask_default(1) != 0) return 1;
  const int child = fork();
  if (child == 0) return ask_default(100);
  _exit(finish(child));
  return 1;
}

int ask_as_subclass() {
  const id device = default_device();
  if (device == nullptr) return 1;
  print_answers(device);
  const Class below = objc_allocateClassPair(object_getClass(device), "SubclassOfTheTest", 0);
  if (below == nullptr) return 1;
  objc_registerClassPair(below);
  *reinterpret_cast<Class*>(device) = below;  // what KVO and proxies do
  print_answers(device);
  return 0;
}

int print_owners() {
  const Make copy = metal_function("MTLCopyAllDevices");
  const id list = copy == nullptr ? nullptr : copy();
  if (list == nullptr) return 1;
  const SEL selector = sel_registerName("supportsFamily:");
  const auto count = send<unsigned long>(list, "count");
  for (unsigned long i = 0; i < count; ++i) {
    for (Class c = object_getClass(send<id>(list, "objectAtIndex:", i)); c != nullptr; c = class_getSuperclass(c)) {
      const Method method = class_getInstanceMethod(c, selector);
      if (method == nullptr) continue;
      Dl_info info;
      const bool ours = dladdr(reinterpret_cast<const void*>(method_getImplementation(method)), &info) != 0;
      char buffer[512];
      Text line(buffer);
      line.put(class_getName(c)).put(' ').put(ours && info.dli_fname != nullptr ? last_component(info.dli_fname) : "Metal");
      print(line);
    }
  }
  return 0;
}

int run_program(char** arguments) {
  if (ask_default(1) != 0) return 1;
  const int child = fork();
  if (child == 0) {
    execv(arguments[0], arguments);
    _exit(127);
  }
  return finish(child);
}

int print_environment(char** names) {
  for (; *names != nullptr; ++names) {
    char buffer[2048];
    Text line(buffer);
    const char* value = getenv(*names);
    line.put(*names).put('=').put(value == nullptr ? "(absent)" : value);
    print(line);
  }
  return 0;
}

int repeat(uint64_t count, const char* family_text) {
  uint64_t value = 0;
  if (family_text == nullptr || !parse_decimal(family_text, value)) return 2;
  const id device = default_device();
  if (device == nullptr) return 1;
  const auto ask = reinterpret_cast<BOOL (*)(id, SEL, long)>(&objc_msgSend);
  const SEL selector = sel_registerName("supportsFamily:");
  uint64_t yes = 0;
  for (uint64_t i = 0; i < count; ++i) yes += ask(device, selector, static_cast<long>(value)) != 0 ? 1 : 0;
  return yes == count || yes == 0 ? 0 : 1;
}

int report_metal() {
  char buffer[64];
  Text line(buffer);
  line.put(objc_lookUpClass("_MTLDevice") == nullptr ? "absent" : "present");
  print(line);
  return 0;
}

int dispatch(int argc, char** argv) {
  if (argc < 2) return 2;
  const char* command = argv[1];
  uint64_t number = 1;
  if (argc > 2 && !parse_decimal(argv[2], number)) number = 1;
  if (strcmp(command, "ask") == 0) return ask_default(number);
  if (strcmp(command, "list") == 0) return list_devices();
  if (strcmp(command, "threads") == 0) return ask_in_threads(static_cast<int>(number));
  if (strcmp(command, "repeat") == 0) return repeat(number, argc > 3 ? argv[3] : nullptr);
  if (strcmp(command, "metal") == 0) return report_metal();
  if (strcmp(command, "fork") == 0) return ask_after_fork();
  if (strcmp(command, "subclass") == 0) return ask_as_subclass();
  if (strcmp(command, "owners") == 0) return print_owners();
  if (strcmp(command, "run") == 0 && argc > 2) return run_program(argv + 2);
  if (strcmp(command, "environment") == 0) return print_environment(argv + 2);
  if (strcmp(command, "wait") != 0 || ask_default(1) != 0) return 2;
  usleep(static_cast<unsigned>(number) * 1000);
  _exit(0);
  return 0;
}

}  // namespace
}  // namespace lumelift::shim

extern "C" int main(int argc, char** argv) {
  return lumelift::shim::dispatch(argc, argv);
}
