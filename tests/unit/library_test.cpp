#include "cli/library.hpp"

#include <doctest/doctest.h>

#include "cli/verdict.hpp"
#include "host/sys/error.hpp"
#include "host/sys/hash.hpp"
#include "tests/unit/macho_builder.hpp"
#include "tests/unit/plans.hpp"
#include "tests/unit/scratch.hpp"

using namespace lumelift;
using namespace lumelift::test;

namespace {

std::string library_for(Cpu cpu, std::size_t size = 9000) {
  SliceSpec spec = for_cpu(cpu);
  spec.file_type = 6;
  spec.install_name = "@rpath/Other.dylib";
  spec.text_size = size;
  return build(spec);
}

std::string part(const std::string& file, const Slice& slice) {
  return file.substr(slice.range.offset, slice.range.size);
}

/// A folder with files to bring, and what is asked of them.
struct Bringing {
  Scratch scratch;
  LibraryOptions options;

  void add(const std::string& name, const std::string& content, bool accept = true) {
    options.files.push_back(scratch.write(name, content));
    if (accept) {
      options.accepted.push_back(sys::sha256(content));
    }
  }
  ChosenLibrary choose() {
    const auto own = scratch.write("own.dylib", library_for(Cpu::arm64));
    return choose_library(options, {own, "liblumelift-metal.dylib", {sys::sha256_file(own), 0755, 1}}, scratch.path() / "state");
  }
};

}  // namespace

TEST_CASE("thin files become one universal file with each slice's bytes unchanged") {
  const std::string arm64 = library_for(Cpu::arm64), arm64e = library_for(Cpu::arm64e, 20'000), intel = library_for(Cpu::x86_64, 5);
  const std::string joined = join_slices({arm64e, arm64, intel});
  const MachO file = MachO::parse(bytes_of(joined));
  REQUIRE(file.slices.size() == 3);
  CHECK(file.universal);
  for (const auto& slice : file.slices) {
    CHECK(slice.range.offset % 16384 == 0);
  }
  CHECK(part(joined, *file.find(Cpu::arm64)) == arm64);
  CHECK(part(joined, *file.find(Cpu::arm64e)) == arm64e);
  CHECK(part(joined, *file.find(Cpu::x86_64)) == intel);
  // The order of the files does not matter, and a universal one may be among them.
  CHECK(join_slices({intel, arm64, arm64e}) == joined);
  CHECK(join_slices({join_slices({arm64, arm64e}), intel}) == joined);
  CHECK(join_slices({arm64}) == arm64);
  CHECK(brought_library_defects(joined).empty());
}

TEST_CASE("two slices for one CPU, and what is no Mach-O, are refused") {
  const std::string arm64 = library_for(Cpu::arm64);
  CHECK(thrown([&] { (void)join_slices({arm64, library_for(Cpu::arm64, 5)}); }).id() == "library-invalid");
  CHECK(thrown([&] { (void)join_slices({arm64, "text"}); }).id() == "library-invalid");
  CHECK(thrown([&] { (void)join_slices({arm64, library_for(Cpu::arm64e).substr(0, 900)}); }).id() == "library-invalid");
}

TEST_CASE("without a file it is our own") {
  Bringing bringing;
  const ChosenLibrary own = bringing.choose();
  CHECK(own.origin == LibraryOrigin::own);
  CHECK(own.slices.size() == 1);
  bringing.options.accepted = {std::string(64, 'a')};
  CHECK(thrown([&] { (void)bringing.choose(); }).id() == "library-option");
}

TEST_CASE("an unknown file needs its hash, and the message says which") {
  Bringing bringing;
  const std::string content = library_for(Cpu::arm64);
  bringing.add("x.dylib", content, false);
  const Error unknown = thrown([&] { (void)bringing.choose(); });
  CHECK(unknown.id() == "library-unknown");
  CHECK(unknown.kind() == ErrorKind::usage);
  bringing.options.accepted = {std::string(64, 'a')};
  CHECK(thrown([&] { (void)bringing.choose(); }).id() == "library-unknown");
  for (const char* bad : {"", "abc", "zz"}) {
    bringing.options.accepted = {bad};
    CHECK(thrown([&] { (void)bringing.choose(); }).id() == "library-option");
  }
  bringing.options.accepted = {sys::sha256(content), std::string(64, 'b')};
  CHECK(thrown([&] { (void)bringing.choose(); }).id() == "library-option");
  bringing.options.accepted = {sys::sha256(content)};
  const ChosenLibrary chosen = bringing.choose();
  CHECK(chosen.origin == LibraryOrigin::accepted);
  CHECK(chosen.source.to == "liblumelift-metal.dylib");
  CHECK(chosen.source.state == FileState{sys::sha256(content), 0755, content.size()});
  CHECK(chosen.slices == std::vector<LibrarySlice>{
                             {Cpu::arm64, sys::sha256(content), (bringing.scratch.path() / "x.dylib").string(), sys::sha256(content)}});
}

TEST_CASE("joined files keep each slice's hash, and the joined one is what goes into the guest") {
  Bringing bringing;
  const std::string arm64 = library_for(Cpu::arm64), arm64e = library_for(Cpu::arm64e);
  bringing.add("a.dylib", arm64);
  bringing.add("e.dylib", arm64e);
  const ChosenLibrary chosen = bringing.choose();
  CHECK(slurp(chosen.source.file) == join_slices({arm64, arm64e}));
  CHECK(sys::sha256_file(chosen.source.file) == chosen.source.state.sha256);
  REQUIRE(chosen.slices.size() == 2);
  CHECK((chosen.slices[0].sha256 == sys::sha256(arm64) && chosen.slices[1].sha256 == sys::sha256(arm64e)));
  CHECK(to_json(chosen).find(sys::sha256(arm64e)) != std::string::npos);
}

TEST_CASE("an accepted file that is damaged, no library, or not for arm64, is refused all the same") {
  const auto refused = [](const std::string& content) {
    Bringing bringing;
    bringing.add("x.dylib", content);
    return thrown([&] { (void)bringing.choose(); });
  };
  std::string damaged = library_for(Cpu::arm64);
  damaged[6000] = static_cast<char>(damaged[6000] ^ 1);
  CHECK(refused(damaged).id() == "library-invalid");
  CHECK(refused(build()).id() == "library-invalid");
  CHECK(refused("#!/bin/sh\n").id() == "library-invalid");
  CHECK(refused("").id() == "library-invalid");
  CHECK(refused(library_for(Cpu::arm64e)).message().find("arm64") != std::string::npos);
  SliceSpec unsigned_one;
  unsigned_one.file_type = 6;
  unsigned_one.sign.reset();
  CHECK(refused(build(unsigned_one)).id() == "library-invalid");
}
