#include "cli/launch_chain.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <utility>

#include "host/sys/error.hpp"
#include "host/sys/file.hpp"
#include "shim/macho.hpp"
#include "shim/plist.hpp"

namespace lumelift {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t largest_file = std::size_t{2} << 30;
constexpr int most_hops = 16;

PathLook look_at(const std::string& path) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) {
    return {};
  }
  PathLook look;
  look.mode = status.st_mode & 07777;
  if (S_ISREG(status.st_mode)) {
    look.kind = EntryKind::file;
  } else if (S_ISDIR(status.st_mode)) {
    look.kind = EntryKind::folder;
  } else if (S_ISLNK(status.st_mode)) {
    look.kind = EntryKind::symlink;
    std::error_code failure;
    look.target = fs::read_symlink(path, failure).string();
  } else {
    look.kind = EntryKind::other;
  }
  return look;
}

std::string file_name(const std::string& path) {
  return fs::path(path).filename().string();
}

bool is_one_of(const std::string& name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_shell(const std::string& path) {
  return is_one_of(file_name(path), {"sh", "bash", "zsh", "dash", "ksh"});
}

/// Tools that run the rest of their arguments as a program.
bool is_launcher(const std::string& path) {
  return is_one_of(file_name(path), {"env", "nohup", "nice", "time", "arch", "caffeinate", "sudo", "xcrun", "command"});
}

/// What a launcher starts: everything behind its options and assignments.
std::vector<std::string> launched(const std::vector<std::string>& argv) {
  const std::string tool = file_name(argv[0]);
  std::size_t at = 1;
  for (; at < argv.size(); ++at) {
    const std::string& word = argv[at];
    if (word == "--") {
      ++at;
      break;
    }
    const bool assignment = tool == "env" && word.find('=') != word.npos && !word.starts_with('/');
    if (!assignment && !word.starts_with('-')) {
      break;
    }
    // Options with a value of their own.
    if ((tool == "env" && is_one_of(word, {"-u", "-P"})) || (tool == "nice" && word == "-n") ||
        (tool == "sudo" && is_one_of(word, {"-u", "-g"})) || (tool == "caffeinate" && is_one_of(word, {"-t", "-w"}))) {
      ++at;
    }
  }
  if (at >= argv.size()) {
    return {};
  }
  return {argv.begin() + static_cast<std::ptrdiff_t>(at), argv.end()};
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> out;
  for (std::size_t at = 0; (at = text.find_first_not_of(" \t\r", at)) != text.npos;) {
    const auto end = std::min(text.find_first_of(" \t\r", at), text.size());
    out.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return out;
}

/// Follows one command hop by hop. Each step adds a link and leaves the next command in `argv_`, or ends the walk.
class Walk {
 public:
  Walk(std::vector<std::string> argv, const FileView& view) : argv_(std::move(argv)), view_(view) {}

  LaunchChain run() {
    try {
      for (int hop = 0; !done_; ++hop) {
        if (hop == most_hops) {
          return stop("more than 16 programs in a row: a loop"), chain_;
        }
        step();
      }
    } catch (const Error& error) {
      stop(error.message());
    }
    return chain_;
  }

 private:
  void stop(std::string reason) { done_ = true, chain_.open_end = std::move(reason); }
  void add(ChainLink::Role role, unsigned mode) { chain_.links.push_back({role, argv_[0], mode, is_system_path(argv_[0])}); }

  void step() {
    if (argv_.empty() || argv_[0].empty()) {
      return stop("nothing is named");
    }
    if (argv_[0].find('/') == std::string::npos && !search()) {
      return stop("'" + argv_[0] + "' is looked up in PATH when it starts, and is in none of the usual folders");
    }
    while (argv_[0].size() > 1 && argv_[0].ends_with('/')) {
      argv_[0].pop_back();  // or a link to a folder would be followed unseen
    }
    if (is_system_path(argv_[0])) {
      return system_file();
    }
    const PathLook look = view_.look(argv_[0]);
    switch (look.kind) {
      case EntryKind::missing:
        return stop("'" + argv_[0] + "' does not exist");
      case EntryKind::other:
        return stop("'" + argv_[0] + "' is not a file");
      case EntryKind::symlink:
        add(ChainLink::Role::symlink, look.mode);
        argv_[0] = (fs::path(argv_[0]).parent_path() / look.target).lexically_normal().string();
        return;
      case EntryKind::folder:
        return bundle(look.mode);
      case EntryKind::file:
        return file(look.mode);
    }
  }

  bool search() {
    for (const char* folder : {"/opt/homebrew/bin/", "/usr/local/bin/", "/usr/bin/", "/bin/"}) {
      const std::string path = folder + argv_[0];
      if (view_.look(path).kind != EntryKind::missing) {
        return argv_[0] = path, true;
      }
    }
    return false;
  }

  void system_file() {
    // Neither its bytes nor its mode matter, and in a guest they need not be those of this host.
    if (is_launcher(argv_[0])) {
      auto next = launched(argv_);
      if (!next.empty()) {
        return add(ChainLink::Role::tool, 0), void(argv_ = std::move(next));
      }
    }
    if (is_shell(argv_[0]) && argv_.size() > 1) {
      return shell(0);
    }
    add(ChainLink::Role::program, 0);
    done_ = true;
  }

  void shell(unsigned mode) {
    add(ChainLink::Role::shell, mode);
    const auto script = std::find_if(argv_.begin() + 1, argv_.end(), [](const auto& word) { return !word.starts_with('-'); });
    const bool inline_code = std::find(argv_.begin() + 1, argv_.end(), "-c") != argv_.end();
    if (script == argv_.end()) {
      return stop("the shell reads its commands from its input");
    }
    const std::string path = inline_code ? std::string() : *script;
    auto next = exec_target(inline_code ? *script : view_.read(path), path);
    if (next.empty()) {
      return stop("what the shell script starts cannot be told without running it");
    }
    argv_ = std::move(next);
  }

  void bundle(unsigned mode) {
    const std::string folder = argv_[0];
    if (!folder.ends_with(".app")) {
      return stop("'" + folder + "' is a folder");
    }
    add(ChainLink::Role::bundle, mode);
    const PropertyDict info = parse_plist_xml(view_.read(folder + "/Contents/Info.plist"));
    const auto found = info.find("CFBundleExecutable");
    const auto* name = found == info.end() ? nullptr : std::get_if<std::string>(&found->second);
    if (!name || name->empty() || name->find('/') != name->npos) {
      return stop("Info.plist names no CFBundleExecutable");
    }
    argv_[0] = folder + "/Contents/MacOS/" + *name;
  }

  void file(unsigned mode) {
    const std::string content = view_.read(argv_[0]);
    if (content.starts_with("#!")) {
      return script(content, mode);
    }
    if (!looks_like_macho(std::as_bytes(std::span(content).first(std::min<std::size_t>(content.size(), 64))))) {
      add(ChainLink::Role::program, mode);
      return stop(content.empty() ? "the file is empty" : "the file is neither a Mach-O program nor a script");
    }
    if (is_shell(argv_[0]) && argv_.size() > 1) {
      return shell(mode);
    }
    if (is_launcher(argv_[0])) {
      auto next = launched(argv_);
      if (!next.empty()) {
        return add(ChainLink::Role::tool, mode), void(argv_ = std::move(next));
      }
    }
    if (framework_stub(mode)) {
      return;
    }
    add(ChainLink::Role::program, mode);
    done_ = true;
  }

  void script(const std::string& content, unsigned mode) {
    add(ChainLink::Role::script, mode);
    auto words = split(std::string_view(content).substr(2, content.find('\n') - 2));
    if (words.empty()) {
      return stop("the script names no interpreter");
    }
    if (file_name(words[0]) == "env" && words.size() > 1 && words[1] == "-S") {
      words.erase(words.begin() + 1);
    }
    words.insert(words.end(), argv_.begin(), argv_.end());
    argv_ = std::move(words);
  }

  /// bin/python3 of a framework only starts Resources/Python.app; the variables reach that one through it.
  bool framework_stub(unsigned mode) {
    const fs::path path(argv_[0]);
    if (path.parent_path().filename() != "bin" || !path.filename().string().starts_with("python")) {
      return false;
    }
    const fs::path inner = path.parent_path().parent_path() / "Resources/Python.app/Contents/MacOS/Python";
    if (view_.look(inner.string()).kind != EntryKind::file) {
      return false;
    }
    add(ChainLink::Role::stub, mode);
    argv_[0] = inner.string();
    return true;
  }

  std::vector<std::string> argv_;
  const FileView& view_;
  LaunchChain chain_;
  bool done_ = false;
};

}  // namespace

FileView host_files() {
  return {look_at, [](const std::string& path) { return sys::read_file(path, largest_file); }};
}

bool is_system_path(std::string_view path) {
  if (path.starts_with("/usr/")) {
    return !path.starts_with("/usr/local/");
  }
  return path.starts_with("/bin/") || path.starts_with("/sbin/") || path.starts_with("/System/");
}

LaunchChain follow(std::vector<std::string> argv, const FileView& view) {
  return Walk(std::move(argv), view).run();
}

}  // namespace lumelift
