// The Objective-C runtime of macOS by that of GNU: the functions are mostly the same, messages are sent otherwise.
#include <objc/message.h>
#include <objc/objc-sync.h>
#include <objc/runtime.h>

#include <cstdio>
#include <cstring>

#include "machrun/dyld.hpp"
#include "machrun/symbol_tables.hpp"

extern "C" void lab_objc_msgSend();

/// Called by the trampoline for every message to an object that is not nil.
extern "C" IMP lab_objc_lookup(id receiver, SEL selector) {
  // Selectors of loaded code are untyped; GNU finds a method by name alone then.
  const Class type = object_getClass(receiver);
  if (__builtin_expect(!class_respondsToSelector(type, selector), 0)) {
    std::fprintf(stderr,
                 "*** Terminating app due to uncaught exception 'NSInvalidArgumentException', reason: '%c[%s %s]: "
                 "unrecognized selector sent to instance %p'\n",
                 class_isMetaClass(type) ? '+' : '-', class_getName(type), sel_getName(selector), static_cast<void*>(receiver));
    lab::dyld_death("abort() called: unrecognized selector");
  }
  return objc_msg_lookup(receiver, selector);
}

namespace lab {
namespace {

// A method keeps its name with the types here; on macOS one name is one pointer.
SEL method_name(Method method) {
  return method ? sel_registerName(sel_getName(method_getName(method))) : nullptr;
}

const char* class_image(Class) {
  return "/System/Library/Frameworks/Metal.framework/Versions/A/Metal";
}

id send(id object, const char* name) {
  const SEL selector = sel_registerName(name);
  if (!object || !class_respondsToSelector(object_getClass(object), selector)) return object;
  return reinterpret_cast<id (*)(id, SEL)>(objc_msg_lookup(object, selector))(object, selector);
}

id retain(id object) {
  return send(object, "retain");
}
void release(id object) {
  send(object, "release");
}
id autorelease(id object) {
  return object;
}  // pools are never drained: loaded programs are short-lived

void* pool_push() {
  static char pool;
  return &pool;
}
void pool_pop(void*) {}

id opt_class(id object) {
  return reinterpret_cast<id>(object_getClass(object));
}
BOOL responds(id object, SEL selector) {
  return object && class_respondsToSelector(object_getClass(object), selector);
}

}  // namespace

SymbolTable objc_symbols() {
  static const SystemSymbol table[] = {
      {"_objc_msgSend", as_address(lab_objc_msgSend)},
      {"_objc_getClass", as_address(objc_getClass)},
      {"_objc_lookUpClass", as_address(objc_lookUpClass)},
      {"_objc_getMetaClass", as_address(objc_getMetaClass)},
      {"_objc_getRequiredClass", as_address(objc_getRequiredClass)},
      {"_objc_getClassList", as_address(objc_getClassList)},
      {"_objc_allocateClassPair", as_address(objc_allocateClassPair)},
      {"_objc_registerClassPair", as_address(objc_registerClassPair)},
      {"_objc_autoreleasePoolPush", as_address(pool_push)},
      {"_objc_autoreleasePoolPop", as_address(pool_pop)},
      {"_objc_retain", as_address(retain)},
      {"_objc_release", as_address(release)},
      {"_objc_autorelease", as_address(autorelease)},
      {"_objc_retainAutoreleasedReturnValue", as_address(retain)},
      {"_objc_opt_class", as_address(opt_class)},
      {"_objc_opt_respondsToSelector", as_address(responds)},
      {"_objc_sync_enter", as_address(objc_sync_enter)},
      {"_objc_sync_exit", as_address(objc_sync_exit)},
      {"_object_getClass", as_address(object_getClass)},
      {"_object_getClassName", as_address(object_getClassName)},
      {"_class_getName", as_address(class_getName)},
      {"_class_getSuperclass", as_address(class_getSuperclass)},
      {"_class_isMetaClass", as_address(class_isMetaClass)},
      {"_class_getInstanceMethod", as_address(class_getInstanceMethod)},
      {"_class_getClassMethod", as_address(class_getClassMethod)},
      {"_class_getMethodImplementation", as_address(class_getMethodImplementation)},
      {"_class_getInstanceSize", as_address(class_getInstanceSize)},
      {"_class_getImageName", as_address(class_image)},
      {"_class_respondsToSelector", as_address(class_respondsToSelector)},
      {"_class_copyMethodList", as_address(class_copyMethodList)},
      {"_class_addMethod", as_address(class_addMethod)},
      {"_class_replaceMethod", as_address(class_replaceMethod)},
      {"_class_addIvar", as_address(class_addIvar)},
      {"_class_createInstance", as_address(class_createInstance)},
      {"_method_getName", as_address(method_name)},
      {"_method_getTypeEncoding", as_address(method_getTypeEncoding)},
      {"_method_getImplementation", as_address(method_getImplementation)},
      {"_method_setImplementation", as_address(method_setImplementation)},
      {"_method_exchangeImplementations", as_address(method_exchangeImplementations)},
      {"_sel_registerName", as_address(sel_registerName)},
      {"_sel_getUid", as_address(sel_registerName)},
      {"_sel_getName", as_address(sel_getName)},
      {"_sel_isEqual", as_address(sel_isEqual)},
  };
  return table;
}

}  // namespace lab
