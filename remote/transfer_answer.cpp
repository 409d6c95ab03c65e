#include "remote/transfer_answer.hpp"

#include <fmt/format.h>

#include <charconv>

#include "remote/transfer.hpp"

namespace lumelift {

using namespace std::chrono_literals;

std::string_view first_word(std::string_view line) {
  return line.substr(0, line.find_first_of(" \n"));
}

std::string second_word(std::string_view line) {
  const auto blank = line.find(' ');
  if (blank == std::string_view::npos) {
    return {};
  }
  line.remove_prefix(blank + 1);
  return std::string(line.substr(0, line.rfind('\n')));
}

Error refusal(const std::string& path, const ScriptAnswer& answer, std::uint64_t size) {
  // The word is in the last line: a verified part says so before.
  std::string_view line = answer.body;
  if (const auto mark = line.rfind("lumelift-verified\n"); mark != std::string_view::npos) {
    line.remove_prefix(mark + 18);
  }
  const auto word = first_word(line);
  const auto more = second_word(line);
  const auto failed = [&](const char* id, const std::string& text) {
    Error error(ErrorKind::failed, id, text);
    if (!answer.err.empty()) {
      error.note("the guest said: " + excerpt(answer.err));
    }
    return error;
  };
  std::uint64_t free_kb = 0;
  const bool counted = std::from_chars(more.data(), more.data() + more.size(), free_kb).ec == std::errc{};
  const bool too_small = counted && free_kb <= size / 1024;
  if (word == "full" || (word == "short" && (too_small || answer.err.find("No space left") != std::string::npos))) {
    return failed("guest-disk-full", fmt::format("no room in the guest for {}: {} kB needed, {} kB free", path, size / 1024 + 1,
                                                 counted ? std::to_string(free_kb) : "unknown"))
        .fix("free some space in the guest");
  }
  if (word == "link" || word == "kind") {
    return failed("guest-path-unsafe", fmt::format("{} in the guest is {}, not a regular file; it was left alone", path,
                                                   word == "link" ? "a symbolic link" : "something else"));
  }
  if (word == "link-folder") {
    return failed("guest-path-unsafe", fmt::format("{} in the guest is a symbolic link; nothing is written through it", excerpt(more)));
  }
  if (word == "no-folder") {
    return failed("guest-folder-missing", fmt::format("the folder of {} does not exist in the guest", path));
  }
  if (word == "no-write") {
    return failed("guest-read-only", fmt::format("cannot write {} in the guest", path))
        .fix("check owner, mode and file system of its folder in the guest");
  }
  if (word == "no-sum") {
    return failed("transfer-unverified", fmt::format("{}: the guest's shasum gave no checksum but '{}'", path, excerpt(more)));
  }
  if (word == "differs") {
    return failed("transfer-corrupt", fmt::format("{} arrived damaged: the guest read back SHA-256 {}", path, excerpt(more)))
        .fix("try again; if it stays so, check the guest's disk");
  }
  if (word == "former-differs" || word == "former-missing") {
    return Error(ErrorKind::incomplete, "former-file-missing",
                 fmt::format("the former {} cannot be put back: {}", path,
                             word == "former-missing" ? "it is no longer there" : "what was kept is another file"))
        .note("kept files begin with " + Transfer::before_name(path, ""))
        .fix(fmt::format("put it there again from a backup of yours, or remove what is there now ({}), and try again", path));
  }
  return failed("guest-unreadable", fmt::format("{}: the guest answered '{}'", path, excerpt(line)));
}

sys::Deadline time_for(std::uint64_t size) {
  return sys::Deadline::in(60s + std::chrono::seconds(size / 20'000'000));
}

}  // namespace lumelift
