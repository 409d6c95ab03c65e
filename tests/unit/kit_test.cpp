#include "cli/kit.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>

#include "host/sys/error.hpp"
#include "host/sys/hash.hpp"
#include "tests/unit/plans.hpp"
#include "tests/unit/scratch.hpp"

using namespace lumelift;
using namespace lumelift::test;

namespace {

// Needs the cross-built Mach-O files; unit tests run without them as well.
const bool kit_is_built = fs::exists(LUMELIFT_KIT_DIR "/lumelift-probe") && fs::exists(LUMELIFT_KIT_DIR "/liblumelift-metal.dylib");

/// A folder `f` to be copied whole to `to`, and single files.
Workload copying(const Scratch& scratch, const std::string& to = ".") {
  Workload out;
  out.name = "w";
  out.agents.emplace_back().executable = "bin/tool";
  out.files = {{scratch.path() / "f", to}};
  return out;
}

std::string listed(const std::vector<Source>& sources) {
  std::string out;
  for (const auto& source : sources) {
    out += source.to + " ";
  }
  return out;
}

Error refused(const Workload& workload) {
  return thrown([&] { (void)gather(workload); });
}

}  // namespace

TEST_CASE("a folder is walked; each file has its hash, its size and one of two modes") {
  const Scratch scratch;
  scratch.write("f/bin/tool", "tool", 0711);
  scratch.write("f/data", std::string("a\0b", 3), 0600);
  scratch.write("f/.hidden/x", "", 0666);
  fs::create_directories(scratch.path() / "f/empty");
  const auto sources = gather(copying(scratch));
  CHECK(listed(sources) == ".hidden/x bin/tool data ");
  CHECK(sources[1].state == FileState{sys::sha256("tool"), 0755, 4});
  CHECK(sources[2].state == FileState{sys::sha256(std::string_view("a\0b", 3)), 0644, 3});
  CHECK(sources[0].state.size == 0);
  CHECK(listed(gather(copying(scratch, "~/x"))) == "~/x/.hidden/x ~/x/bin/tool ~/x/data ");
}

TEST_CASE("a large file is hashed only where that is wanted") {
  const Scratch scratch;
  scratch.write("f/bin/tool", "tool", 0755);
  scratch.write("f/model", std::string(large_file, 'm'), 0644);
  CHECK(gather(copying(scratch))[1].state.sha256 == sys::sha256(std::string(large_file, 'm')));
  const auto later = gather(copying(scratch), LargeFiles::unhashed);
  CHECK(later[1].state == FileState{"", 0644, large_file});
  CHECK(later[0].state.sha256 == sys::sha256("tool"));
}

TEST_CASE("links inside a copied folder are followed as long as they stay in it") {
  const Scratch scratch;
  scratch.write("f/lib/libx.1.dylib", "x");
  fs::create_symlink("libx.1.dylib", scratch.path() / "f/lib/libx.dylib");
  const auto sources = gather(copying(scratch));
  CHECK(listed(sources) == "lib/libx.1.dylib lib/libx.dylib ");
  CHECK(sources[0].state == sources[1].state);
}

TEST_CASE("links that lead out, to folders, or to nothing, and what is no file, are refused") {
  const Scratch scratch;
  scratch.write("f/a", "a");
  scratch.write("outside", "secret");
  scratch.write("f2/near", "x");
  const auto with = [&](const fs::path& target) {
    const auto link = scratch.path() / "f/link";
    fs::create_symlink(target, link);
    const Error error = refused(copying(scratch));
    fs::remove(link);
    return error;
  };
  const Error out = with("../outside");
  CHECK(out.id() == "workload-invalid");
  CHECK(out.message().find("leads out of") != std::string::npos);
  CHECK(with(scratch.path() / "outside").message().find("leads out of") != std::string::npos);
  CHECK(with("/etc/passwd").message().find("leads out of") != std::string::npos);
  CHECK(with(scratch.path() / "f2/near").message().find("leads out of") != std::string::npos);
  CHECK(with("absent").message().find("a link to nothing") != std::string::npos);
  CHECK(with("link").message().find("a link to nothing") != std::string::npos);
  fs::create_directories(scratch.path() / "f/sub");
  CHECK(with("sub").message().find("a link to a folder") != std::string::npos);
  ::mkfifo((scratch.path() / "f/fifo").c_str(), 0600);
  CHECK(refused(copying(scratch)).message().find("is not a regular file") != std::string::npos);
}

TEST_CASE("the copied folder may itself be reached through a link") {
  const Scratch scratch;
  scratch.write("real/a", "a");
  fs::create_symlink("a", scratch.path() / "real/b");
  fs::create_symlink("real", scratch.path() / "f");
  CHECK(listed(gather(copying(scratch))) == "a b ");
}

TEST_CASE("two files for one destination are refused") {
  const Scratch scratch;
  scratch.write("f/m.gguf", "GGUF1");
  const auto other = scratch.write("m.gguf", "GGUF2");
  Workload workload = copying(scratch);
  workload.files.push_back({other, "m.gguf"});
  CHECK(refused(workload).message() == "two files go to 'm.gguf'");
}

TEST_CASE("a file that disappears before it is read is named") {
  const Scratch scratch;
  Workload workload;
  workload.files = {{scratch.path() / "gone", "gone"}};
  CHECK(refused(workload).id() == "file-unreadable");
}

TEST_CASE("a kit that is not there, or damaged anywhere, is not sent") {
  const Scratch scratch;
  const Error missing = thrown([&] { (void)load_kit(scratch.path()); });
  CHECK(missing.id() == "kit-missing");
  CHECK(missing.kind() == ErrorKind::usage);
  for (const std::string& content : {std::string(), std::string("#!/bin/sh\n"), std::string("\xca\xfe\xba\xbe"), std::string(4096, '\0')}) {
    scratch.write("liblumelift-metal.dylib", content);
    const Error error = thrown([&] { (void)load_kit(scratch.path()); });
    CHECK(error.id() == "kit-damaged");
    CHECK_FALSE(error.details().empty());
  }
}

TEST_CASE("the built kit is whole; one changed byte anywhere in it is found" * doctest::skip(!kit_is_built)) {
  const auto kit = load_kit(LUMELIFT_KIT_DIR);
  REQUIRE(kit.size() == 2);
  CHECK(kit[0].to == "liblumelift-metal.dylib");
  CHECK(kit[1].to == "lumelift-probe");
  CHECK((kit[0].state.mode == 0755 && kit[1].state.mode == 0755));
  const Scratch scratch;
  for (const auto& source : kit) {
    const std::string whole = slurp(source.file);
    scratch.write("liblumelift-metal.dylib", slurp(kit[0].file));
    scratch.write("lumelift-probe", slurp(kit[1].file));
    CHECK(thrown([&] { (void)load_kit(scratch.path()); }).id() == "nothing-thrown");
    int missed = 0, tried = 0;
    std::string first_missed;
    for (std::size_t at = 0; at < whole.size(); at += whole.size() / 61 + 1, ++tried) {
      // Zeros between slices belong to no slice: dyld never maps them.
      if (whole.compare(at, 16, std::string(16, '\0')) == 0) {
        continue;
      }
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ 1);
      scratch.write(source.to, damaged);
      if (thrown([&] { (void)load_kit(scratch.path()); }).id() != "kit-damaged") {
        ++missed;
        if (first_missed.empty()) {
          first_missed = std::to_string(at);
        }
      }
    }
    CAPTURE(first_missed);
    CHECK(missed == 0);
    CHECK(tried > 50);
    scratch.write(source.to, whole.substr(0, whole.size() - 1));
    CHECK(thrown([&] { (void)load_kit(scratch.path()); }).id() == "kit-damaged");
  }
}

TEST_CASE("a model that is a web page or a pointer is refused before gigabytes are copied" * doctest::skip(!kit_is_built)) {
  const Scratch scratch;
  scratch.write("f/m.gguf", "<!DOCTYPE html>");
  const auto kit = load_kit(LUMELIFT_KIT_DIR);
  const auto check = [&] {
    Workload workload = copying(scratch);
    workload.agents.front().executable = "/usr/local/bin/tool";  // the guest's own: not judged here
    return thrown([&] { (void)preflight(workload, gather(workload), kit); });
  };
  const Error page = check();
  CHECK(page.id() == "workload-invalid");
  CHECK(page.message().find("is not a GGUF model") != std::string::npos);
  scratch.write("f/m.gguf", "version https://git-lfs.github.com/spec/v1\n");
  CHECK(check().id() == "workload-invalid");
  scratch.write("f/m.gguf", "GGU");
  CHECK(check().id() == "workload-invalid");
  scratch.write("f/m.gguf", "GGUF\3");
  CHECK(check().id() == "nothing-thrown");
}
