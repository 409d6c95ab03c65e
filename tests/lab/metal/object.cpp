// SIMULATION; see framework.hpp.
#include "metal/object.hpp"

#include <cstring>

namespace lab::metal {
namespace {

Class ns_object, ns_string, ns_array, ns_error;

Body*& body_slot(id object) {
  return *reinterpret_cast<Body**>(reinterpret_cast<char*>(object) + sizeof(void*));
}

struct StringBody : Body {
  std::string text;
};
struct ArrayBody : Body {
  std::vector<id> members;
};
struct ErrorBody : Body {
  id description = nullptr;
};

id object_retain(id self, SEL) {
  if (Body* body = body_of(self)) body->references.fetch_add(1);
  return self;
}
void object_release(id self, SEL) {
  Body* body = body_of(self);
  if (!body || body->references.fetch_sub(1) != 1) return;
  delete body;
  object_dispose(self);
}
id object_self(id self, SEL) {
  return self;
}
id object_class(id self, SEL) {
  return reinterpret_cast<id>(object_getClass(self));
}
id object_superclass(id self, SEL) {
  return reinterpret_cast<id>(class_getSuperclass(object_getClass(self)));
}
Bool object_responds(id self, SEL, SEL selector) {
  return class_respondsToSelector(object_getClass(self), selector);
}
Bool object_is_kind(id self, SEL, Class wanted) {
  for (Class type = object_getClass(self); type; type = class_getSuperclass(type))
    if (type == wanted) return 1;
  return 0;
}
Bool object_is_equal(id self, SEL, id other) {
  return self == other;
}
unsigned long object_hash(id self, SEL) {
  return reinterpret_cast<unsigned long>(self) >> 4;
}
id object_description(id self, SEL) {
  return make_string(std::string("<") + object_getClassName(self) + ">");
}
id class_alloc(id self, SEL) {
  return make_object(reinterpret_cast<Class>(self), std::make_unique<Body>());
}
id class_new(id self, SEL selector) {
  return class_alloc(self, selector);
}
id class_itself(id self, SEL) {
  return self;
}

id string_with_utf8(id, SEL, const char* text) {
  return text ? make_string(text) : nullptr;
}
const char* string_utf8(id self, SEL) {
  return body<StringBody>(self).text.c_str();
}
unsigned long string_length(id self, SEL) {
  return body<StringBody>(self).text.size();
}
Bool string_equal(id self, SEL, id other) {
  return other && text_of(self) == text_of(other);
}

unsigned long array_count(id self, SEL) {
  return body<ArrayBody>(self).members.size();
}
id array_at(id self, SEL, unsigned long index) {
  return body<ArrayBody>(self).members.at(index);
}
id array_first(id self, SEL) {
  const auto& members = body<ArrayBody>(self).members;
  return members.empty() ? nullptr : members.front();
}

id error_description(id self, SEL) {
  return body<ErrorBody>(self).description;
}
long error_code(id, SEL) {
  return 1;
}
id error_domain(id, SEL) {
  return make_string("LabSimulatedMetalError");
}

}  // namespace

Class define_class(const char* name, Class superclass, const std::vector<MethodSpec>& methods,
                   const std::vector<MethodSpec>& class_methods) {
  Class type = objc_allocateClassPair(superclass, name, 0);
  if (!superclass) {  // a root holds its class and its body
    class_addIvar(type, "isa", sizeof(Class), 3, "#");
    class_addIvar(type, "body", sizeof(void*), 3, "^v");
  }
  for (const auto& method : methods) class_addMethod(type, sel_registerName(method.name), method.implementation, method.types);
  for (const auto& method : class_methods)
    class_addMethod(object_getClass(reinterpret_cast<id>(type)), sel_registerName(method.name), method.implementation, method.types);
  objc_registerClassPair(type);
  return type;
}

id make_object(Class type, std::unique_ptr<Body> body) {
  id object = class_createInstance(type, 0);
  body_slot(object) = body.release();
  return object;
}

Body* body_of(id object) {
  return class_isMetaClass(object_getClass(object)) ? nullptr : body_slot(object);
}

void retain(id object) {
  object_retain(object, nullptr);
}

void define_foundation() {
  ns_object = define_class("NSObject", Nil,
                           {{"retain", "@16@0:8", as_imp(object_retain)},
                            {"release", "v16@0:8", as_imp(object_release)},
                            {"autorelease", "@16@0:8", as_imp(object_self)},
                            {"init", "@16@0:8", as_imp(object_self)},
                            {"self", "@16@0:8", as_imp(object_self)},
                            {"class", "#16@0:8", as_imp(object_class)},
                            {"superclass", "#16@0:8", as_imp(object_superclass)},
                            {"respondsToSelector:", LAB_BOOL "24@0:8:16", as_imp(object_responds)},
                            {"isKindOfClass:", LAB_BOOL "24@0:8#16", as_imp(object_is_kind)},
                            {"isEqual:", LAB_BOOL "24@0:8@16", as_imp(object_is_equal)},
                            {"hash", "Q16@0:8", as_imp(object_hash)},
                            {"description", "@16@0:8", as_imp(object_description)}},
                           {{"alloc", "@16@0:8", as_imp(class_alloc)},
                            {"new", "@16@0:8", as_imp(class_new)},
                            {"class", "#16@0:8", as_imp(class_itself)},
                            {"retain", "@16@0:8", as_imp(object_self)}});
  ns_string = define_class("NSString", ns_object,
                           {{"UTF8String", "r*16@0:8", as_imp(string_utf8)},
                            {"length", "Q16@0:8", as_imp(string_length)},
                            {"isEqual:", LAB_BOOL "24@0:8@16", as_imp(string_equal)},
                            {"isEqualToString:", LAB_BOOL "24@0:8@16", as_imp(string_equal)},
                            {"description", "@16@0:8", as_imp(object_self)}},
                           {{"stringWithUTF8String:", "@24@0:8r*16", as_imp(string_with_utf8)}});
  ns_array = define_class("NSArray", ns_object,
                          {{"count", "Q16@0:8", as_imp(array_count)},
                           {"objectAtIndex:", "@24@0:8Q16", as_imp(array_at)},
                           {"firstObject", "@16@0:8", as_imp(array_first)}});
  ns_error = define_class("NSError", ns_object,
                          {{"localizedDescription", "@16@0:8", as_imp(error_description)},
                           {"description", "@16@0:8", as_imp(error_description)},
                           {"code", "q16@0:8", as_imp(error_code)},
                           {"domain", "@16@0:8", as_imp(error_domain)}});
}

Class root_class() {
  return ns_object;
}

id make_string(const std::string& text) {
  auto fresh = std::make_unique<StringBody>();
  fresh->text = text;
  return make_object(ns_string, std::move(fresh));
}

std::string text_of(id string) {
  return string ? body<StringBody>(string).text : "";
}

id make_array(std::vector<id> members) {
  auto fresh = std::make_unique<ArrayBody>();
  fresh->members = std::move(members);
  return make_object(ns_array, std::move(fresh));
}

id make_error(const std::string& description) {
  auto fresh = std::make_unique<ErrorBody>();
  fresh->description = make_string(description);
  return make_object(ns_error, std::move(fresh));
}

}  // namespace lab::metal
