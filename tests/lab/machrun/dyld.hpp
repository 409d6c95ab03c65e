#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "machrun/fixups.hpp"
#include "machrun/image.hpp"
#include "machrun/signature.hpp"

namespace lab {

/// Prints dyld's kind of message and ends the process by SIGABRT.
[[noreturn]] void dyld_death(const std::string& message);
/// Ends the process by SIGABRT.
[[noreturn]] void abort_program();

/// The dynamic loader's state: which images are in the process, and how names lead to addresses. One per process,
/// because the loaded code reaches it through plain C calls. Its public functions may be called from any thread.
class Dyld {
 public:
  static Dyld& instance();

  /// Maps the program, the libraries of DYLD_INSERT_LIBRARIES unless the program is restricted, and all they need;
  /// runs their initialisers, inserted libraries first. Ends the process as dyld does where something is missing.
  void launch(const std::string& path, int argc, char** argv);
  /// From now on a function that this loader lacks is the program's death when it is called, not when it is launched.
  void let_absent_functions_pass() { absent_at_call_ = true; }
  /// The program's main; returns its status.
  int run_main();

  /// dlopen, dlsym, dlerror, dladdr of the loaded code. Failures are null and an error text.
  void* open(const char* name, int mode, const void* caller);
  void* symbol(void* handle, const char* name, const void* caller);
  [[nodiscard]] const char* take_error();

  [[nodiscard]] const std::string& executable() const { return executable_; }
  [[nodiscard]] const Image* image_of(const void* address);
  [[nodiscard]] const Image* image_at(size_t index);
  [[nodiscard]] size_t image_count();

  struct Arguments {
    int argc = 0;
    char** argv = nullptr;
    std::vector<const char*> apple;
  };
  Arguments arguments;

 private:
  using Chain = std::vector<const Image*>;  // who asked for whom, the program last: where @rpath is looked up

  Image* load(const std::string& path, const Chain& chain);
  void load_inserted();
  Image* load_dependency(const Dependency& dependency, const Chain& chain);
  Image* load_first(const std::vector<std::string>& candidates, const Chain& chain, std::string& tried);
  [[nodiscard]] std::vector<std::string> candidates(const std::string& name, const Chain& chain) const;
  [[nodiscard]] std::string expand(const std::string& name, const Image& owner) const;
  void bind(Image& image);
  void* find_import(const Image& image, int ordinal, const char* symbol, Need need);
  void* find_in(const Image& image, std::string_view symbol, int depth = 0) const;
  void* find_anywhere(std::string_view symbol);
  void initialise(Image& image);
  void refuse_foreign(const Image& library) const;

  std::recursive_mutex mutex_;
  std::vector<std::unique_ptr<Image>> images_;
  std::vector<Image*> inserted_;
  std::string executable_;
  std::string error_;
  std::vector<std::string> library_path_;
  bool absent_at_call_ = false;
  std::string apple_path_;
  Restrictions restrictions_;
};

/// Removes every DYLD_ variable from the environment, as dyld does for a restricted program.
void scrub_dyld_variables();

}  // namespace lab
