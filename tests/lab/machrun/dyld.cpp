#include "machrun/dyld.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "exec/launch.hpp"
#include "machrun/fixups.hpp"
#include "machrun/frames.hpp"
#include "machrun/missing.hpp"
#include "machrun/system_library.hpp"
#include "machrun/thread_variables.hpp"

extern "C" char** environ;

namespace lab {
namespace {

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

std::string leaf_of(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

std::vector<std::string> split_colons(const char* text) {
  std::vector<std::string> out;
  for (std::string_view rest = text ? text : ""; !rest.empty();) {
    const size_t colon = rest.find(':');
    if (colon != 0) out.emplace_back(rest.substr(0, colon));
    rest = colon == std::string_view::npos ? std::string_view{} : rest.substr(colon + 1);
  }
  return out;
}

bool same_file(const std::string& a, const std::string& b) {
  struct stat x {
  }, y{};
  return ::stat(a.c_str(), &x) == 0 && ::stat(b.c_str(), &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

std::string absolute(const std::string& path) {
  if (!path.empty() && path[0] == '/') return path;
  char here[PATH_MAX];
  return std::string(::getcwd(here, sizeof here) ? here : "") + "/" + path;
}

}  // namespace

void abort_program() {
#if defined(__aarch64__)
  // The emulator would add a line of its own to standard error, so the native loader dies in this process's place.
  const std::string folder = exec::LabEnvironment::instance().get("LAB_MACHRUN_DIR");
  const std::string native = folder + "/machrun-x86_64";
  if (!folder.empty()) ::execl(native.c_str(), native.c_str(), "--abort", static_cast<char*>(nullptr));
#endif
  std::signal(SIGABRT, SIG_DFL);
  std::abort();
}

void dyld_death(const std::string& message) {
  std::fflush(nullptr);
  const std::string text = "dyld[" + std::to_string(::getpid()) + "]: " + message + "\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
  abort_program();
}

void scrub_dyld_variables() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry; ++entry)
    if (std::strncmp(*entry, "DYLD_", 5) == 0) names.emplace_back(*entry, std::strcspn(*entry, "="));
  for (const auto& name : names) ::unsetenv(name.c_str());
}

Dyld& Dyld::instance() {
  static Dyld* dyld = new Dyld;  // never destroyed: exit handlers of loaded code may still need it
  return *dyld;
}

void Dyld::launch(const std::string& path, int argc, char** argv) {
  const std::lock_guard lock(mutex_);
  executable_ = absolute(path);
  apple_path_ = "executable_path=" + executable_;
  arguments = {argc, argv, {apple_path_.c_str(), nullptr}};
  try {
    images_.push_back(std::make_unique<Image>(executable_));
    Image& program = *images_.front();
    if (!program.is_executable()) dyld_death("not a program: " + executable_);
    restrictions_ = read_restrictions(program);
    if (restrictions_.environment_ignored) scrub_dyld_variables();
    library_path_ = split_colons(std::getenv("DYLD_LIBRARY_PATH"));
    load_inserted();
    for (size_t i = 0; i < program.dependencies.size(); ++i) program.linked[i] = load_dependency(program.dependencies[i], {&program});
    bind(program);
    for (Image* library : inserted_) initialise(*library);
    initialise(program);
  } catch (const LoadError& error) {
    dyld_death(error.what());
  }
}

void Dyld::load_inserted() {
  for (const auto& name : split_colons(std::getenv("DYLD_INSERT_LIBRARIES"))) {
    std::string tried;
    Image* library = nullptr;
    try {
      library = load_first(candidates(name, {images_.front().get()}), {images_.front().get()}, tried);
    } catch (const LoadError& error) {
      tried = error.what();
    }
    if (!library) dyld_death("terminating because inserted dylib '" + name + "' could not be loaded: " + tried);
    inserted_.push_back(library);
  }
}

int Dyld::run_main() {
  void* entry = images_.front()->entry();
  if (!entry) dyld_death("program has no LC_MAIN: " + executable_);
  using Main = int (*)(int, char**, char**, const char**);
  return reinterpret_cast<Main>(entry)(arguments.argc, arguments.argv, environ, arguments.apple.data());
}

void Dyld::refuse_foreign(const Image& library) const {
  if (!restrictions_.library_validation) return;
  if (!restrictions_.team.empty() && read_team(library) == restrictions_.team) return;
  throw LoadError("code signature in <" + library.uuid + "> '" + library.path +
                  "' not valid for use in process: mapping process and mapped file (non-platform) have different Team IDs");
}

Image* Dyld::load(const std::string& path, const Chain& chain) {
  for (const auto& image : images_)
    if (image->path == path || same_file(image->path, path)) return image.get();
  auto fresh = std::make_unique<Image>(path);
  refuse_foreign(*fresh);
  Image* image = fresh.get();
  const size_t index = images_.size();
  images_.push_back(std::move(fresh));  // before its dependencies, which may need it in turn
  Chain longer{image};
  longer.insert(longer.end(), chain.begin(), chain.end());
  try {
    for (size_t i = 0; i < image->dependencies.size(); ++i) image->linked[i] = load_dependency(image->dependencies[i], longer);
    bind(*image);
  } catch (const LoadError&) {
    images_.resize(index);
    throw;
  }
  return image;
}

Image* Dyld::load_dependency(const Dependency& dependency, const Chain& chain) {
  if (load_system_library(dependency.name)) return nullptr;
  std::string tried;
  if (Image* image = load_first(candidates(dependency.name, chain), chain, tried)) return image;
  if (dependency.weak) return nullptr;
  throw LoadError("Library not loaded: " + dependency.name + "\n  Referenced from: <" + chain.front()->uuid + "> " + chain.front()->path +
                  "\n  Reason: " + tried);
}

Image* Dyld::load_first(const std::vector<std::string>& paths, const Chain& chain, std::string& tried) {
  for (const auto& path : paths) {
    try {
      return load(path, chain);
    } catch (const LoadError& error) {
      const std::string reason = error.what();
      // A missing dependency or symbol of the library is its own message, not a failed try.
      if (reason.find('\n') != std::string::npos) throw;
      tried += (tried.empty() ? "tried: '" : ", '") + path + "' (" + reason + ")";
    }
  }
  if (tried.empty()) tried = "no LC_RPATH's found";
  return nullptr;
}

std::string Dyld::expand(const std::string& name, const Image& owner) const {
  if (name.rfind("@loader_path", 0) == 0) return folder_of(owner.path) + name.substr(12);
  if (name.rfind("@executable_path", 0) == 0) return folder_of(executable_) + name.substr(16);
  return name;
}

std::vector<std::string> Dyld::candidates(const std::string& name, const Chain& chain) const {
  std::vector<std::string> out;
  for (const auto& folder : library_path_) out.push_back(folder + "/" + leaf_of(name));
  if (name.rfind("@rpath/", 0) == 0) {
    for (const Image* image : chain)
      for (const auto& rpath : image->rpaths) out.push_back(expand(rpath, *image) + name.substr(6));
  } else {
    out.push_back(absolute(expand(name, *chain.front())));
  }
  return out;
}

void Dyld::bind(Image& image) {
  apply_fixups(image, [&](int ordinal, const char* name, Need need) { return find_import(image, ordinal, name, need); });
  prepare_thread_variables(image);
  image.protect();
  register_frames(image);
}

void* Dyld::find_in(const Image& image, std::string_view symbol, int depth) const {
  if (void* found = image.find_export(symbol)) return found;
  for (const Image* next : image.linked)  // re-exports; a cycle of libraries ends by depth
    if (next && depth < 4)
      if (void* found = find_in(*next, symbol, depth + 1)) return found;
  return nullptr;
}

void* Dyld::find_anywhere(std::string_view symbol) {
  for (const auto& image : images_)
    if (void* found = image->find_export(symbol)) return found;
  return system_symbol(symbol);
}

void* Dyld::find_import(const Image& image, int ordinal, const char* symbol, Need need) {
  void* found = nullptr;
  std::string expected = "flat namespace";
  if (ordinal > 0 && static_cast<size_t>(ordinal) <= image.dependencies.size()) {
    const Image* library = image.linked[static_cast<size_t>(ordinal) - 1];
    expected = image.dependencies[static_cast<size_t>(ordinal) - 1].name;
    found = library ? find_in(*library, symbol) : load_system_library(expected) ? system_symbol(symbol) : nullptr;
  } else if (ordinal == 0) {
    found = image.find_export(symbol);
  } else if (ordinal == -1) {
    found = images_.front()->find_export(symbol);
  } else {
    found = find_anywhere(symbol);
  }
  if (!found && (need == Need::lazy || (need == Need::strong && absent_at_call_))) return missing_function(symbol);
  if (!found && need == Need::strong)
    throw LoadError("Symbol not found: " + std::string(symbol) + "\n  Referenced from: <" + image.uuid + "> " + image.path +
                    "\n  Expected in:     " + expected);
  return found;
}

void Dyld::initialise(Image& image) {
  if (image.initialised) return;
  image.initialised = true;
  for (Image* library : image.linked)
    if (library) initialise(*library);
  using Initialiser = void (*)(int, char**, char**, const char**, const void*);
  for (void* function : image.initialisers())
    reinterpret_cast<Initialiser>(function)(arguments.argc, arguments.argv, environ, arguments.apple.data(), nullptr);
}

}  // namespace lab
