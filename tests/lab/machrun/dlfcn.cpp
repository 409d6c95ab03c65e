// dlopen and its kin for the loaded code. The flags and pseudo handles are those of macOS.
#include "machrun/dyld.hpp"
#include "machrun/system_library.hpp"

namespace lab {
namespace {

constexpr int kNoLoad = 0x10;
char system_handle;  // its address is the handle of every system library

void* pseudo(long value) {
  return reinterpret_cast<void*>(value);
}

}  // namespace

void* Dyld::open(const char* name, int mode, const void* caller) {
  const std::lock_guard lock(mutex_);
  error_.clear();
  if (!name) return pseudo(-2);
  const Image* asking = image_of(caller);
  const Chain chain = asking && asking != images_.front().get() ? Chain{asking, images_.front().get()} : Chain{images_.front().get()};
  try {
    if (load_system_library(name)) return &system_handle;
    std::string tried;
    const auto paths = candidates(name, chain);
    if (mode & kNoLoad) {
      for (const auto& path : paths)
        for (const auto& image : images_)
          if (image->path == path) return image.get();
      return nullptr;
    }
    if (Image* image = load_first(paths, chain, tried)) {
      initialise(*image);
      return image;
    }
    error_ = "dlopen(" + std::string(name) + "): " + tried;
  } catch (const LoadError& error) {
    error_ = "dlopen(" + std::string(name) + "): " + error.what();
  }
  return nullptr;
}

void* Dyld::symbol(void* handle, const char* name, const void* caller) {
  const std::lock_guard lock(mutex_);
  error_.clear();
  const std::string symbol = "_" + std::string(name);
  void* found = nullptr;
  if (handle == &system_handle) {
    found = system_symbol(symbol);
  } else if (handle == pseudo(-2)) {
    found = find_anywhere(symbol);
  } else if (handle == pseudo(-5)) {
    found = images_.front()->find_export(symbol);
  } else if (handle == pseudo(-3) || handle == pseudo(-1)) {
    size_t start = 0;  // RTLD_SELF looks from the caller's image on, RTLD_NEXT behind it
    while (start < images_.size() && !images_[start]->contains(caller)) ++start;
    if (handle == pseudo(-1)) ++start;
    for (size_t i = start; i < images_.size() && !found; ++i) found = images_[i]->find_export(symbol);
    if (!found) found = system_symbol(symbol);
  } else {
    for (const auto& image : images_)
      if (image.get() == handle) found = find_in(*image, symbol);
  }
  if (!found) error_ = "dlsym(" + std::to_string(reinterpret_cast<long>(handle)) + ", " + name + "): symbol not found";
  return found;
}

const char* Dyld::take_error() {
  const std::lock_guard lock(mutex_);
  if (error_.empty()) return nullptr;
  static thread_local std::string given;
  given.swap(error_);
  error_.clear();
  return given.c_str();
}

const Image* Dyld::image_of(const void* address) {
  const std::lock_guard lock(mutex_);
  for (const auto& image : images_)
    if (image->contains(address)) return image.get();
  return nullptr;
}

const Image* Dyld::image_at(size_t index) {
  const std::lock_guard lock(mutex_);
  return index < images_.size() ? images_[index].get() : nullptr;
}

size_t Dyld::image_count() {
  const std::lock_guard lock(mutex_);
  return images_.size();
}

}  // namespace lab
