/// The injected library. Reads its configuration once, in its constructor, and does nothing more unless that asks for
/// it: not even Metal is loaded. Otherwise it waits, at `-[_MTLDevice initGPUFamilySupport]`, for the first device of
/// the paravirtual class and overrides two or three answers of that very class. Its parent and sibling classes, and
/// any other GPU, keep theirs. If anything is missing or unlike what is expected, everything is put back.
///
/// The environment of children. A receipt or trace file named without "%p" belongs to the first process that reads the
/// name: it takes the variable out of its environment, so that no child can write over the file. With "%p" in the name
/// the variable stays and every process writes a file of its own. A program that LUMELIFT_ONLY leaves out writes its
/// receipt only where there is none yet, and leaves the variable to the program that is meant. With LUMELIFT_INHERIT=0
/// the whole configuration and the library itself leave the environment as soon as the hook is in place.

#include "shim/policy.hpp"
#include "shim/receipt.hpp"
#include "shim/sdk/darwin.hpp"
#include "shim/trace.hpp"

namespace lumelift::shim {
namespace {

constexpr char kInsertVariable[] = "DYLD_INSERT_LIBRARIES";
constexpr char kMetal[] = "/System/Library/Frameworks/Metal.framework/Metal";
constexpr char kBaseClass[] = "_MTLDevice";
constexpr char kDeviceClass[] = "AppleParavirtDevice";
constexpr char kInitSelector[] = "initGPUFamilySupport";
constexpr int kLazy = 1;  // RTLD_LAZY

using Init = void (*)(id, SEL);
using Family = BOOL (*)(id, SEL, long);
using Size = unsigned long (*)(id, SEL);

/// One method of the device class: what stands there now and what shall.
struct Override {
  Query query;
  const char* types;
  IMP replacement;
  Cell<IMP> original{};  // stored before the replacement can be called
  bool wanted = false;
  bool installed = false;
};

enum class Phase : int { waiting, installing, done };

BOOL supports_family(id self, SEL command, long value);
unsigned long threadgroup_memory(id self, SEL command);
unsigned long working_set(id self, SEL command);

// State of the process. Everything but the cells is written in the constructor or by the one installing thread.
Process process;
Policy policy;
Receipt receipt;
Trace trace;
Publisher receipt_publisher;
Publisher trace_publisher;
char receipt_path[1024];
char trace_path[1024];
IfPresent receipt_mode = IfPresent::replace;
Cell<Init> original_init;
Cell<Class> device_class;
Cell<Phase> phase;
Cell<int> tracing;
Cell<int> exiting;

// Sizes first: programs read them after they saw a family.
Override overrides[] = {
    {Query::threadgroup_memory, "Q@:", reinterpret_cast<IMP>(&threadgroup_memory)},
    {Query::working_set, "Q@:", reinterpret_cast<IMP>(&working_set)},
    {Query::supports_family, "B@:q", reinterpret_cast<IMP>(&supports_family)},
};
Override& override_of(Query query) {
  return overrides[query == Query::supports_family ? 2 : query == Query::working_set ? 1 : 0];
}

void write_receipt() {
  char buffer[4096];
  Text json(buffer);
  receipt.describe(json);
  write_whole(receipt_path, json, receipt_mode);
}

void write_trace() {
  static char buffer[16384];  // one writer at a time, by the publisher
  Text json(buffer);
  json.put('{').key("schema").put('1').key("library").quoted(LUMELIFT_VERSION);
  process.describe(json);
  json.key("ceiling").signed_number(policy.ceiling).key("complete").boolean(exiting.load() != 0);
  trace.describe(json);
  json.put("}\n");
  write_whole(trace_path, json, IfPresent::replace);
}

/// After a fork the child has our memory but is another process: the files are not its own.
bool own_process() {
  return getpid() == process.pid;
}

void publish_receipt() {
  if (receipt_path[0] != '\0' && own_process()) receipt_publisher.publish(write_receipt);
}

void publish_trace() {
  if (trace_path[0] != '\0' && own_process()) trace_publisher.publish(write_trace);
}

void announce() {
  publish_receipt();
  if (!policy.verbose || policy.reason == Reason::program_not_listed) return;
  char buffer[512];
  Text line(buffer);
  receipt.summarize(line);
  if (write(2, line.data(), line.size()) < 0) return;
}

const void* image_of(const void* address) {
  Dl_info info;
  return dladdr(address, &info) != 0 ? info.dli_fbase : nullptr;
}

/// Metal asks families itself while it initialises a device; a trace is about what the program asked.
bool asked_by_metal(const Override& item, const void* caller) {
  const void* image = image_of(caller);
  return image == image_of(reinterpret_cast<const void*>(original_init.load_acquire())) ||
         image == image_of(reinterpret_cast<const void*>(item.original.load_acquire()));
}

void note(Query query, int64_t argument, uint64_t stock, uint64_t given, const void* caller) {
  if (tracing.load_acquire() == 0 || asked_by_metal(override_of(query), caller)) return;
  if (trace.record(query, argument, stock, given)) publish_trace();
}

// The answers. No locks; anything but the very class gets what the original says.

/// Kept out of line: its registers would have to be saved on every query.
[[gnu::noinline]] BOOL traced_family(id self, SEL command, long value, const void* caller) {
  const auto original = reinterpret_cast<Family>(override_of(Query::supports_family).original.load_acquire());
  const bool stock = original(self, command, value) != 0;
  if (object_getClass(self) != device_class.load_acquire()) return static_cast<BOOL>(stock);
  const bool given = policy.family(value, stock);
  note(Query::supports_family, value, stock, given, caller);
  return static_cast<BOOL>(given);
}

/// Asked often, so the shortest way comes first: a raised family needs no second opinion, any other is the original's.
BOOL supports_family(id self, SEL command, long value) {
  if (tracing.load_acquire() != 0) return traced_family(self, command, value, __builtin_return_address(0));
  if (policy.family(value, false) && object_getClass(self) == device_class.load_acquire()) return static_cast<BOOL>(true);
  return reinterpret_cast<Family>(override_of(Query::supports_family).original.load_acquire())(self, command, value);
}

unsigned long threadgroup_memory(id self, SEL command) {
  const auto original = reinterpret_cast<Size>(override_of(Query::threadgroup_memory).original.load_acquire());
  const unsigned long stock = original(self, command);
  if (object_getClass(self) != device_class.load_acquire()) return stock;
  const uint64_t given = policy.threadgroup(stock);
  if (receipt.saw_threadgroup_memory(stock, given)) publish_receipt();
  note(Query::threadgroup_memory, 0, stock, given, __builtin_return_address(0));
  return given;
}

unsigned long working_set(id self, SEL command) {
  const auto original = reinterpret_cast<Size>(override_of(Query::working_set).original.load_acquire());
  const unsigned long stock = original(self, command);
  if (object_getClass(self) != device_class.load_acquire()) return stock;
  const uint64_t given = policy.working(stock);
  if (receipt.saw_working_set(stock, given)) publish_receipt();
  note(Query::working_set, 0, stock, given, __builtin_return_address(0));
  return given;
}

// Installing.

/// Looks at the class alone, not at its ancestors. Methods are opaque signed pointers on arm64e: names are compared.
bool declares(Class cls, const char* selector) {
  unsigned count = 0;
  Method* methods = class_copyMethodList(cls, &count);
  bool found = false;
  for (unsigned i = 0; i < count && !found; ++i) found = strcmp(sel_getName(method_getName(methods[i])), selector) == 0;
  free(methods);
  return found;
}

/// Adding to the concrete class where the method is inherited is what leaves sibling classes alone.
bool install(Class cls, Override& item) {
  const char* name = selector_of(item.query);
  const SEL selector = sel_registerName(name);
  const Method method = class_getInstanceMethod(cls, selector);
  if (declares(cls, name))
    method_setImplementation(method, item.replacement);
  else if (class_addMethod(cls, selector, item.replacement, method_getTypeEncoding(method)) == 0)
    return false;
  item.installed = true;
  return class_getMethodImplementation(cls, selector) == item.replacement;
}

/// An added method cannot be taken away again; calling the inherited implementation is the same answer.
void restore(Class cls) {
  for (Override& item : overrides) {
    if (!item.installed) continue;
    const Method method = class_getInstanceMethod(cls, sel_registerName(selector_of(item.query)));
    method_setImplementation(method, item.original.load());
    item.installed = false;
  }
}

uint32_t ask_families(id device, IMP implementation) {
  const SEL selector = sel_registerName(selector_of(Query::supports_family));
  uint32_t answers = 0;
  for (size_t i = 0; i < kFamilyCount; ++i)
    if (reinterpret_cast<Family>(implementation)(device, selector, static_cast<long>(kFamilies[i])) != 0) answers |= uint32_t{1} << i;
  return answers;
}

bool as_promised(uint32_t before, uint32_t after) {
  for (size_t i = 0; i < kFamilyCount; ++i)
    if ((after >> i & 1) != policy.family(kFamilies[i], (before >> i & 1) != 0)) return false;
  return true;
}

struct Failure {
  Reason reason = Reason::none;
  const char* selector = nullptr;
};

Failure install_all(id device, Class cls) {
  for (Override& item : overrides) {
    if (!item.wanted) continue;
    const char* name = selector_of(item.query);
    const Method method = class_getInstanceMethod(cls, sel_registerName(name));
    if (method == nullptr) return {Reason::method_missing, name};
    if (!same_types(method_getTypeEncoding(method), item.types)) return {Reason::method_encoding, name};
    item.original.store_release(method_getImplementation(method));
  }
  const uint32_t before = ask_families(device, override_of(Query::supports_family).original.load());
  device_class.store_release(cls);
  for (Override& item : overrides)
    if (item.wanted && !install(cls, item)) return restore(cls), Failure{Reason::install_failed, selector_of(item.query)};
  const SEL selector = sel_registerName(selector_of(Query::supports_family));
  const uint32_t after = ask_families(device, class_getMethodImplementation(cls, selector));
  if (!as_promised(before, after)) return restore(cls), Failure{Reason::self_check_failed, nullptr};
  receipt.active(class_getName(cls), before, after);
  return {};
}

/// Once per process. Threads that initialise devices meanwhile wait, so none of them hands out a stock device.
void consider(id device) {
  if (phase.load_acquire() == Phase::done) return;
  const Class cls = object_getClass(device);
  if (strcmp(class_getName(cls), kDeviceClass) != 0) {
    if (phase.load_acquire() != Phase::waiting) return;
    if (receipt.stock(Reason::device_not_paravirtual, nullptr, class_getName(cls))) announce();
    return;
  }
  if (!phase.replace(Phase::waiting, Phase::installing)) {
    while (phase.load_acquire() != Phase::done) sched_yield();
    return;
  }
  const Failure failure = install_all(device, cls);
  if (failure.reason != Reason::none) receipt.stock(failure.reason, failure.selector, class_getName(cls));
  tracing.store(failure.reason == Reason::none && policy.trace ? 1 : 0);
  phase.store_release(Phase::done);
  announce();
}

void init_families(id self, SEL command) {
  original_init.load_acquire()(self, command);
  consider(self);
}

/// Hooks the place where a device learns its families.
Failure arm() {
  if (dlopen(kMetal, kLazy) == nullptr) return {Reason::metal_missing, nullptr};
  const Class base = objc_lookUpClass(kBaseClass);
  if (base == nullptr) return {Reason::base_class_missing, kBaseClass};
  const Method method = class_getInstanceMethod(base, sel_registerName(kInitSelector));
  if (method == nullptr) return {Reason::init_method_missing, kInitSelector};
  if (!declares(base, kInitSelector)) return {Reason::init_method_inherited, kInitSelector};
  if (!same_types(method_getTypeEncoding(method), "v@:")) return {Reason::init_method_encoding, kInitSelector};
  original_init.store_release(reinterpret_cast<Init>(method_getImplementation(method)));
  method_setImplementation(method, reinterpret_cast<IMP>(&init_families));
  return {};
}

// The environment.

/// The file's own name, whatever it was copied to.
const char* library_name() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&library_name), &info) == 0 || info.dli_fname == nullptr) return "";
  return last_component(info.dli_fname);
}

void leave_environment() {
  if (char* list = getenv(kInsertVariable)) {
    static char rest[8192];
    Text copy(rest);
    copy.put(list).c_str();
    if (copy.complete() && remove_entries(rest, library_name()) > 0) {
      if (rest[0] == '\0')
        unsetenv(kInsertVariable);
      else
        setenv(kInsertVariable, rest, 1);
    }
  }
  for (const char* name : kVariables) unsetenv(name);
}

/// The path behind a variable, or "" where there is none. False when it does not fit.
bool claim_path(const char* pattern, const char* variable, char* path, size_t size) {
  bool per_process = false;
  if (pattern == nullptr || pattern[0] == '\0') return true;
  if (!expand_path(pattern, process.pid, path, size, per_process)) {
    path[0] = '\0';
    return false;
  }
  if (!per_process && policy.reason != Reason::program_not_listed) unsetenv(variable);
  return true;
}

void at_exit(void*) {
  exiting.store(1);
  publish_trace();
}

void refuse(Reason reason) {
  const bool verbose = policy.verbose;
  policy = Policy{};
  policy.reason = reason;
  policy.verbose = verbose;
}

__attribute__((constructor)) void load() {
  Settings settings;
  settings.ceiling = getenv(kCeilingVariable);
  settings.threadgroup_memory = getenv(kThreadgroupVariable);
  settings.working_set = getenv(kWorkingSetVariable);
  settings.only = getenv(kOnlyVariable);
  settings.inherit = getenv(kInheritVariable);
  settings.receipt = getenv(kReceiptVariable);
  settings.trace = getenv(kTraceVariable);
  settings.verbose = getenv(kVerboseVariable);

  if (!settings.any()) return;
  process.read();
  settings.program = last_component(process.executable);
  policy = read_policy(settings);
  if (!claim_path(settings.receipt, kReceiptVariable, receipt_path, sizeof receipt_path)) refuse(Reason::receipt_malformed);
  if (policy.trace && !claim_path(settings.trace, kTraceVariable, trace_path, sizeof trace_path)) refuse(Reason::trace_malformed);
  if (policy.reason == Reason::program_not_listed) receipt_mode = IfPresent::keep;
  receipt.start(process, policy);

  if (policy.needs_hooks()) {
    override_of(Query::supports_family).wanted = true;
    override_of(Query::threadgroup_memory).wanted = policy.threadgroup_memory != 0 || policy.trace;
    override_of(Query::working_set).wanted = policy.working_set != 0 || policy.trace;
    if (const Failure failure = arm(); failure.reason != Reason::none) {
      receipt.stock(failure.reason, failure.selector, nullptr);
    } else {
      if (policy.trace) __cxa_atexit(at_exit, nullptr, nullptr);
      if (!policy.inherit) leave_environment();
    }
  }
  announce();
}

}  // namespace
}  // namespace lumelift::shim
