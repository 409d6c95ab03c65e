#include "cli/guest_verdict.hpp"

#include <charconv>
#include <filesystem>
#include <map>
#include <memory>

#include "host/sys/error.hpp"
#include "remote/inspect.hpp"

namespace lumelift {
namespace {

constexpr std::size_t largest_file = 256u << 20;

PathLook look_in_guest(Session& session, const std::string& path) {
  const PathEntry entry = entry_at(session, path);
  PathLook look;
  look.mode = entry.mode;
  look.target = entry.target;
  switch (entry.kind) {
    case PathKind::absent:
      look.kind = EntryKind::missing;
      break;
    case PathKind::file:
      look.kind = EntryKind::file;
      break;
    case PathKind::folder:
      look.kind = EntryKind::folder;
      break;
    case PathKind::link:
      look.kind = EntryKind::symlink;
      break;
    case PathKind::other:
      look.kind = EntryKind::other;
      break;
  }
  return look;
}

}  // namespace

FileView guest_files(GuestLink& link) {
  // Chain and program ask for the same files; over a connection each is fetched once.
  auto looks = std::make_shared<std::map<std::string, PathLook>>();
  auto contents = std::make_shared<std::map<std::string, std::string>>();
  FileView view;
  view.look = [&link, looks](const std::string& path) {
    const auto known = looks->find(path);
    return known != looks->end() ? known->second : looks->emplace(path, look_in_guest(link.session(), path)).first->second;
  };
  view.read = [&link, contents](const std::string& path) {
    const auto known = contents->find(path);
    if (known != contents->end()) {
      return known->second;
    }
    auto content = link.transfer().read(path, largest_file);
    if (!content) {
      throw Error(ErrorKind::usage, "file-unreadable", "'" + path + "' does not exist in the guest");
    }
    return contents->emplace(path, std::move(*content)).first->second;
  };
  return view;
}

std::optional<Version> version_from(std::string_view text) {
  Version version;
  unsigned* const parts[] = {&version.major, &version.minor, &version.patch};
  const char* at = text.data();
  const char* const end = at + text.size();
  for (unsigned* const part : parts) {
    const auto [next, error] = std::from_chars(at, end, *part);
    if (error != std::errc{}) {
      return std::nullopt;
    }
    if (next == end) {
      return version;
    }
    if (*next != '.') {
      return std::nullopt;
    }
    at = next + 1;
  }
  return std::nullopt;
}

InjectionTerms guest_terms(const GuestFacts& facts, std::vector<Cpu> library_slices) {
  InjectionTerms terms;
  terms.library_slices = std::move(library_slices);
  terms.sip = !facts.sip ? Sip::unknown : *facts.sip ? Sip::on : Sip::off;
  terms.guest_os = version_from(facts.os);
  return terms;
}

std::string guest_path(const std::string& written, const std::string& home, const std::string& folder) {
  std::filesystem::path path = written;
  if (written == "~" || written.starts_with("~/")) {
    path = std::filesystem::path(home) / written.substr(written.size() > 1 ? 2 : 1);
  } else if (path.is_relative()) {
    path = std::filesystem::path(folder.empty() ? home : folder) / path;
  }
  std::string plain = path.lexically_normal().string();
  while (plain.size() > 1 && plain.ends_with('/')) {
    plain.pop_back();
  }
  return plain;
}

std::string program_path(const std::vector<std::string>& command, const FileView& files) {
  if (command.front().find('/') != std::string::npos) {
    return command.front();
  }
  // Where it is, not what it is: nothing is read.
  const FileView unread{files.look, [](const std::string&) { return std::string(); }};
  const LaunchChain chain = follow({command.front()}, unread);
  return chain.links.empty() ? command.front() : chain.links.front().path;
}

Launch launch_in_guest(const std::vector<std::string>& command, const std::vector<std::string>& variables, const std::string& folder,
                       const FileView& files, const std::string& home) {
  Launch out{command, variables_from(variables), folder.empty() ? std::string() : guest_path(folder, home)};
  const std::string program = program_path(command, files);
  out.command.front() = program.starts_with("~/") ? guest_path(program, home) : program;
  return out;
}

std::vector<std::string> judged_words(const Launch& launch, const std::string& home) {
  auto words = launch.command;
  if (words.front().find('/') != std::string::npos) {
    words.front() = guest_path(words.front(), home, launch.folder);
  }
  return words;
}

}  // namespace lumelift
