#include "exec/launch.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "machrun/macho_file.hpp"

extern "C" char** environ;

namespace lab::exec {
namespace {

constexpr std::string_view kToolFolders[] = {"/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/", "/usr/libexec/"};

bool begins(std::string_view text, std::string_view with) {
  return text.substr(0, with.size()) == with;
}

bool in_tool_folder(std::string_view path) {
  for (const auto folder : kToolFolders)
    if (begins(path, folder)) return true;
  return false;
}

std::string_view name_of(std::string_view entry) {
  return entry.substr(0, entry.find('='));
}

void remove_named(Strings& envp, std::string_view prefix) {
  std::erase_if(envp, [&](const std::string& entry) { return begins(name_of(entry), prefix); });
}

std::string value_of(const Strings& envp, std::string_view name) {
  for (const auto& entry : envp)
    if (name_of(entry) == name) return entry.size() > name.size() ? entry.substr(name.size() + 1) : "";
  return "";
}

void set_variable(Strings& envp, const std::string& name, const std::string& value) {
  std::erase_if(envp, [&](const std::string& entry) { return name_of(entry) == name; });
  if (!value.empty()) envp.push_back(name + "=" + value);
}

/// Host programs carry the layer by LD_PRELOAD; machrun keeps to the rules by itself and only passes it on.
void for_host_program(Strings& envp) {
  const std::string preload = value_of(envp, "LAB_PRELOAD");
  if (!preload.empty()) set_variable(envp, "LD_PRELOAD", preload);
}

std::string machrun(const Strings& envp, const std::string& arch) {
  return value_of(envp, "LAB_MACHRUN_DIR") + "/machrun-" + (arch == "arm64" ? "aarch64" : arch);
}

/// What dyld says when it cannot insert a library into an arm64e program of the system; empty if it can.
std::string insertion_failure(const Strings& envp) {
  std::string_view rest;
  const std::string all = value_of(envp, "DYLD_INSERT_LIBRARIES");
  for (rest = all; !rest.empty();) {
    const size_t colon = rest.find(':');
    const std::string library(rest.substr(0, colon));
    rest = colon == std::string_view::npos ? std::string_view{} : rest.substr(colon + 1);
    if (library.empty()) continue;
    const FileSummary file = summarize(library);
    std::string why;
    if (file.kind == FileKind::missing)
      why = "no such file";
    else if (file.kind != FileKind::mach_o)
      why = "not a mach-o file";
    else if (!find_slice(file, "arm64e"))
      why = std::string(file.slices.size() > 1 ? "fat file, but missing compatible architecture"
                                               : "mach-o file, but is an incompatible architecture") +
            " (have '" + slice_list(file) + "', need 'arm64e')";
    if (!why.empty())
      return "terminating because inserted dylib '" + library + "' could not be loaded: tried: '" + library + "' (" + why + ")";
  }
  return "";
}

Launch start_tool(const std::string& file, Strings argv, Strings envp) {
  if (value_of(envp, "LAB_SIP") != "0") {
    remove_named(envp, "DYLD_");
  } else if (const std::string message = insertion_failure(envp); !message.empty()) {
    const std::string loader = machrun(envp, "x86_64");
    return {0, loader, {loader, "--dyld-death", message}, std::move(envp)};
  }
  for_host_program(envp);
  return {0, file, std::move(argv), std::move(envp)};
}

Launch start_mach_o(const FileSummary& summary, const std::string& file, const Strings& argv, Strings envp) {
  const bool prefer_x86 = value_of(envp, "LAB_ARCH") == "x86_64";
  std::string arch = prefer_x86 ? "x86_64" : "arm64";
  if (!find_slice(summary, arch)) arch = prefer_x86 ? "arm64" : "x86_64";
  if (!find_slice(summary, arch)) return {kBadCpuType, {}, {}, {}};
  Launch out;
  if (arch == "arm64") {
    std::string sysroot = value_of(envp, "LAB_QEMU_SYSROOT");
    if (sysroot.empty()) sysroot = "/usr/aarch64-linux-gnu";
    out.file = value_of(envp, "LAB_QEMU");
    if (out.file.empty()) out.file = "/usr/bin/qemu-aarch64";
    out.argv = {out.file, "-L", sysroot};
  } else {
    out.file = machrun(envp, arch);
  }
  out.argv.push_back(machrun(envp, arch));
  out.argv.insert(out.argv.end(), {"--argv0", argv.empty() ? file : argv[0], "--", file});
  if (!argv.empty()) out.argv.insert(out.argv.end(), argv.begin() + 1, argv.end());
  set_variable(envp, "LD_PRELOAD", "");
  out.envp = std::move(envp);
  return out;
}

/// Replaces argv by what the kernel gives the interpreter; returns the interpreter's path.
std::string interpreter(const std::string& line, const std::string& script, Strings& argv) {
  Strings words;
  for (size_t at = line.find_first_not_of(" \t"); at != std::string::npos; at = line.find_first_not_of(" \t", at)) {
    const size_t end = line.find_first_of(" \t\r", at);
    words.push_back(line.substr(at, end - at));
    if (end == std::string::npos) break;
    at = end;
  }
  if (words.empty()) return "";
  const std::string path = words[0];
  words.push_back(script);
  if (!argv.empty()) words.insert(words.end(), argv.begin() + 1, argv.end());
  argv = std::move(words);
  return path;
}

int refusal(const std::string& file) {
  struct stat info {};
  if (::stat(file.c_str(), &info) != 0) return errno;
  if (!S_ISREG(info.st_mode) || ::access(file.c_str(), X_OK) != 0) return EACCES;
  return 0;
}

}  // namespace

LabEnvironment::LabEnvironment() {
  std::string preload;
  for (char** entry = environ; entry && *entry; ++entry) {
    if (begins(*entry, "LAB_")) entries_.emplace_back(*entry);
    if (begins(*entry, "LD_PRELOAD=")) preload = *entry + 11;
  }
  if (!preload.empty()) set_variable(entries_, "LAB_PRELOAD", preload);
}

const LabEnvironment& LabEnvironment::instance() {
  static const LabEnvironment* environment = new LabEnvironment;
  return *environment;
}

std::string LabEnvironment::get(const std::string& name, const std::string& fallback) const {
  const std::string value = value_of(entries_, name);
  return value.empty() ? fallback : value;
}

void LabEnvironment::complete(Strings& envp) const {
  for (const auto& entry : entries_)
    if (value_of(envp, name_of(entry)).empty()) envp.push_back(entry);
}

void hide_lab_variables() {
  LabEnvironment::instance();
  Strings names;
  for (char** entry = environ; *entry; ++entry)
    if (begins(*entry, "LAB_") || begins(*entry, "LD_PRELOAD=")) names.emplace_back(name_of(*entry));
  for (const auto& name : names) ::unsetenv(name.c_str());
}

std::string guest_path(const std::string& path) {
  const std::string root = LabEnvironment::instance().get("LAB_GUEST_ROOT");
  return !root.empty() && in_tool_folder(path) ? root + path : path;
}

Launch plan(const std::string& requested, Strings argv, Strings envp) {
  if (value_of(envp, "LAB_HOST") == "1") {  // the lab's own machinery leaves the guest
    remove_named(envp, "LAB_");
    remove_named(envp, "LD_PRELOAD");
    return {0, requested, std::move(argv), std::move(envp)};
  }
  const LabEnvironment& lab = LabEnvironment::instance();
  lab.complete(envp);
  const std::string root = lab.get("LAB_GUEST_ROOT");
  std::string path = requested;
  for (int depth = 0; depth < 5; ++depth) {
    const std::string file = guest_path(path);
    if (const int error = refusal(file)) return {error, {}, {}, {}};
    if (!root.empty() && begins(file, root) && in_tool_folder(std::string_view(file).substr(root.size())))
      return start_tool(file, std::move(argv), std::move(envp));
    const FileSummary summary = summarize(file);
    if (summary.kind == FileKind::mach_o) return start_mach_o(summary, file, argv, std::move(envp));
    if (summary.kind != FileKind::script) {
      for_host_program(envp);
      return {0, file, std::move(argv), std::move(envp)};
    }
    path = interpreter(summary.interpreter_line, path, argv);
    if (path.empty()) return {ENOEXEC, {}, {}, {}};
  }
  return {ELOOP, {}, {}, {}};
}

Launch plan_search(const std::string& name, const Strings& argv, const Strings& envp) {
  if (name.empty()) return {ENOENT, {}, {}, {}};
  if (name.find('/') != std::string::npos) return plan(name, argv, envp);
  const char* path = std::getenv("PATH");
  int worst = ENOENT;
  std::string_view rest = path ? path : "/usr/bin:/bin";
  for (bool more = true; more;) {
    const size_t colon = rest.find(':');
    const std::string folder(rest.substr(0, colon));
    more = colon != std::string_view::npos;
    if (more) rest.remove_prefix(colon + 1);
    Launch found = plan((folder.empty() ? "." : folder) + "/" + name, argv, envp);
    if (found.error != ENOENT && found.error != ENOTDIR && found.error != EACCES) return found;
    if (found.error == EACCES) worst = EACCES;
  }
  return {worst, {}, {}, {}};
}

Strings to_strings(char* const* list) {
  Strings out;
  for (; list && *list; ++list) out.emplace_back(*list);
  return out;
}

std::vector<char*> to_pointers(const Strings& list) {
  std::vector<char*> out;
  for (const auto& text : list) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

}  // namespace lab::exec
