#include "shim/macho.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "host/sys/error.hpp"
#include "tests/unit/macho_builder.hpp"

using namespace lumelift;
using namespace lumelift::test;

namespace {

std::string failure_id(std::string_view file) {
  try {
    (void)MachO::parse(bytes_of(file));
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.id();
  }
  return "";
}

SignatureCheck check(std::string_view file, const Slice& slice) {
  return check_signature(slice_bytes(bytes_of(file), slice), slice.signature.value(), digest);
}

/// Everything that can be asked of a file; only Error may come out.
bool survives(std::string_view file) {
  try {
    const MachO parsed = MachO::parse(bytes_of(file));
    for (const Slice& slice : parsed.slices) {
      (void)imports(bytes_of(file), slice);
      (void)exports(bytes_of(file), slice);
      if (slice.signature) {
        (void)check(file, slice);
      }
    }
    return true;
  } catch (const Error&) {
    return false;
  }
}

const Grants both = {{"com.apple.security.cs.allow-dyld-environment-variables", true},
                     {"com.apple.security.cs.disable-library-validation", true},
                     {"com.apple.security.cs.allow-jit", false}};

SliceSpec rich() {
  SliceSpec spec;
  spec.libraries = {{"/usr/lib/libSystem.B.dylib", false},
                    {"@rpath/libllama.dylib", false},
                    {"/System/Library/Frameworks/Metal.framework/Versions/A/Metal", true}};
  spec.rpaths = {"@loader_path", "@executable_path/../lib"};
  spec.imports = {"_dlopen", "_printf"};
  spec.sign->flags = 0x10002;
  spec.sign->team = "ABCDE12345";
  spec.sign->xml = entitlements_xml(both);
  spec.sign->der = entitlements_der(both);
  return spec;
}

}  // namespace

TEST_CASE("macho: a thin program is read whole") {
  const std::string file = build(rich());
  const MachO parsed = MachO::parse(bytes_of(file));
  CHECK_FALSE(parsed.universal);
  REQUIRE(parsed.slices.size() == 1);
  const Slice& slice = parsed.slices[0];
  CHECK(slice.cpu == Cpu::arm64);
  CHECK(slice.type == FileType::program);
  CHECK(slice.platform == Platform::macos);
  CHECK(shown(slice.minimum_os) == "13.0");
  CHECK(slice.entry_offset.has_value());
  CHECK(slice.uuid->at(1) == std::byte{'1'});
  REQUIRE(slice.libraries.size() == 3);
  CHECK(slice.libraries[1] == LinkedLibrary{"@rpath/libllama.dylib", false});
  CHECK(slice.libraries[2].weak);
  CHECK(slice.rpaths == std::vector<std::string>{"@loader_path", "@executable_path/../lib"});
  CHECK_FALSE(slice.encrypted);
  CHECK_FALSE(slice.restrict_section);

  const CodeSignature& signature = slice.signature.value();
  CHECK(signature.has(SignatureFlag::hardened_runtime));
  CHECK(signature.has(SignatureFlag::adhoc));
  CHECK_FALSE(signature.has(SignatureFlag::restricted));
  CHECK(signature.identifier == "io.lumelift.specimen");
  CHECK(signature.team_id == "ABCDE12345");
  CHECK(signature.page_size == 4096);
  CHECK(signature.grants("com.apple.security.cs.allow-dyld-environment-variables"));
  CHECK_FALSE(signature.grants("com.apple.security.cs.allow-jit"));
  CHECK_FALSE(signature.grants("com.apple.security.get-task-allow"));
  CHECK(signature.entitlements_xml == signature.entitlements_der);
  const SignatureCheck result = check(file, slice);
  CHECK(result.checked);
  CHECK(result.intact());
  CHECK(result.cdhash.size() == 40);
}

TEST_CASE("macho: imports come from chained fixups or from the symbol table, exports from the latter") {
  for (const bool chained : {true, false}) {
    SliceSpec spec = rich();
    spec.chained = chained;
    const std::string file = build(spec);
    const MachO parsed = MachO::parse(bytes_of(file));
    CHECK(imports(bytes_of(file), parsed.slices[0]) == std::vector<std::string_view>{"_dlopen", "_printf"});
    CHECK(exports(bytes_of(file), parsed.slices[0]) == std::vector<std::string_view>{"_main"});
  }
}

TEST_CASE("macho: a library has its install name, and the other marks are seen") {
  SliceSpec spec;
  spec.file_type = 6;
  spec.install_name = "@rpath/X.dylib";
  spec.encrypted = spec.restrict_section = true;
  spec.platform = 2;
  spec.sign.reset();
  const MachO parsed = MachO::parse(bytes_of(build(spec)));
  const Slice& slice = parsed.slices[0];
  CHECK(slice.type == FileType::library);
  CHECK(slice.install_name == "@rpath/X.dylib");
  CHECK(slice.encrypted);
  CHECK(slice.restrict_section);
  CHECK(slice.platform == Platform::ios);
  CHECK_FALSE(slice.signature.has_value());
}

TEST_CASE("macho: universal files with both kinds of header") {
  for (const bool wide : {false, true}) {
    const std::string file = build_universal({for_cpu(Cpu::x86_64), for_cpu(Cpu::arm64, rich()), for_cpu(Cpu::arm64e)}, wide);
    const MachO parsed = MachO::parse(bytes_of(file));
    CHECK(parsed.universal);
    REQUIRE(parsed.slices.size() == 3);
    CHECK(parsed.slices[0].cpu == Cpu::x86_64);
    CHECK(parsed.slices[2].cpu == Cpu::arm64e);
    CHECK(parsed.find(Cpu::arm64)->signature->team_id == "ABCDE12345");
    CHECK(parsed.find(Cpu::i386) == nullptr);
    for (const Slice& slice : parsed.slices) {
      CHECK(check(file, slice).intact());
    }
  }
}

TEST_CASE("macho: what is no Mach-O, and what is a broken one") {
  CHECK(failure_id("") == "macho-not");
  CHECK(failure_id("#!/bin/sh\n") == "macho-not");
  CHECK(failure_id("\x7f"
                   "ELF\x02\x01\x01") == "macho-not");
  const auto words = [](std::initializer_list<std::uint32_t> values) { return Out().big_words(values).take(); };
  CHECK(failure_id(words({0xcafebabe, 0x00000034, 0, 0})) == "macho-not");  // a Java class
  CHECK(failure_id(words({0xcafebabe, 0})) == "macho-damaged");
  CHECK(failure_id(words({0xcafebabe, 2, 0x0100000c, 0, 0, 0xffffffff, 14})) == "macho-damaged");
  CHECK(failure_id(words({0xcafebabe, 1, 0x0100000c, 0, 0, 28, 0})) == "macho-damaged");  // its slice is itself

  // Only the label of the slice differs: dyld would fail on it in the middle of binding.
  std::string relabelled = build_universal({for_cpu(Cpu::arm64), for_cpu(Cpu::x86_64)});
  relabelled[15] = '\x02';
  CHECK(failure_id(relabelled) == "macho-damaged");
  CHECK(failure_id(build_universal({for_cpu(Cpu::arm64), for_cpu(Cpu::arm64)})) == "macho-damaged");
}

TEST_CASE("macho: 32-bit and PowerPC files are recognised without a look inside") {
  const auto little = Out().words({0xfeedface, 7, 3, 2, 1000000, 1000000, 0}).take();
  CHECK(MachO::parse(bytes_of(little)).slices[0].cpu == Cpu::i386);
  const auto big = Out().big_words({0xfeedface, 18, 0, 2, 0, 0, 0}).take();
  const MachO powerpc = MachO::parse(bytes_of(big));
  CHECK(powerpc.slices[0].cpu == Cpu::powerpc);
  CHECK(powerpc.slices[0].type == FileType::program);
}

TEST_CASE("macho: a file cut at any byte is an error, never a result") {
  SliceSpec spec = rich();
  spec.text_size = 5000;
  const std::string thin = build(spec);
  std::size_t accepted = 0;
  for (std::size_t length = 0; length < thin.size(); ++length) {
    accepted += survives(thin.substr(0, length));
  }
  CHECK(accepted == 0);
  REQUIRE(survives(thin));
  const std::string fat = build_universal({for_cpu(Cpu::x86_64, spec), spec});
  // Between the slices there is only padding, but the header always promises the last byte.
  for (std::size_t length = 0; length < fat.size(); length += 7) {
    accepted += survives(fat.substr(0, length));
  }
  CHECK(accepted == 0);
}

TEST_CASE("macho: random damage ends in a result or an Error") {
  std::mt19937 random(20261129);
  SliceSpec spec = rich();
  spec.text_size = 200;
  const std::string good[] = {build(spec), build_universal({for_cpu(Cpu::x86_64, spec), spec}, true)};
  std::size_t readable = 0, refused = 0;
  for (int round = 0; round < 10000; ++round) {
    std::string file = good[round % 2];
    const auto flips = 1 + random() % 8;
    for (std::uint32_t i = 0; i < flips; ++i) {
      // Most bytes are page contents; aim half of the flips at the headers and the signature.
      const auto zone = random() % 4;
      const std::size_t reach = std::min<std::size_t>(zone == 0 ? 1200 : 4096, file.size());
      const std::size_t base = zone <= 1 ? 0 : file.size() - reach;
      const std::size_t at = (round % 2 == 1 && zone == 0 ? 16384 : base) + random() % reach;
      file[at] = static_cast<char>(random() % 3 == 0 ? 0xff : random());
    }
    ++(survives(file) ? readable : refused);
  }
  CHECK(readable + refused == 10000);
  CHECK(readable > 500);
  CHECK(refused > 500);
}

TEST_CASE("macho: every flipped byte under the signature is found, with its page") {
  const std::string good = build(rich());
  const MachO parsed = MachO::parse(bytes_of(good));
  const Slice& slice = parsed.slices[0];
  const std::uint64_t limit = slice.signature->code_limit;
  for (std::uint64_t at = 4096; at < limit; at += 211) {
    std::string file = good;
    file[at] = static_cast<char>(file[at] ^ 0x40);
    const SignatureCheck result = check(file, slice);
    REQUIRE(result.damaged_pages == 1);
    CHECK(result.pages[0].index == at / 4096);
    CHECK(result.pages[0].offset == at / 4096 * 4096);
    CHECK(result.parts.empty());
  }
}

TEST_CASE("macho: changed entitlements do not go unnoticed") {
  std::string file = build(rich());
  const auto at = file.find("allow-jit</key><false/>");
  REQUIRE(at != file.npos);
  file[at] = 'A';
  const MachO parsed = MachO::parse(bytes_of(file));
  CHECK(check(file, parsed.slices[0]).parts == std::vector<std::string>{"entitlements"});
}

TEST_CASE("macho: signatures with other hashes and page sizes") {
  for (const unsigned bits : {0u, 12u, 14u}) {
    SliceSpec spec = rich();
    spec.sign->page_bits = static_cast<std::uint8_t>(bits);
    std::string file = build(spec);
    CHECK(check(file, MachO::parse(bytes_of(file)).slices[0]).intact());
  }
  for (const unsigned type : {1u, 3u, 4u}) {
    SliceSpec spec = rich();
    spec.sign->hash_type = static_cast<std::uint8_t>(type);
    const std::string file = build(spec);
    const SignatureCheck result = check(file, MachO::parse(bytes_of(file)).slices[0]);
    CHECK(result.checked == (type == 3));
    CHECK(result.intact());
  }
}

TEST_CASE("macho: the DER form of the entitlements decides where both are there") {
  SliceSpec spec = rich();
  spec.sign->der = entitlements_der({{"com.apple.security.cs.allow-jit", true}});
  const MachO parsed = MachO::parse(bytes_of(build(spec)));
  CHECK(parsed.slices[0].signature->grants("com.apple.security.cs.allow-jit"));
  CHECK_FALSE(parsed.slices[0].signature->grants("com.apple.security.cs.disable-library-validation"));
}

TEST_CASE("plist: values of every kind, and what is no property list") {
  const PropertyDict dict = parse_plist_xml(
      "<?xml version='1.0'?><!-- <dict> --><plist version=\"1.0\"><dict><key>a&amp;b</key><string>x &lt; y</string>"
      "<key>n</key><integer>-7</integer><key>list</key><array><dict><key>k</key><true/></dict></array>"
      "<key>empty</key><string/><key>yes</key><true/></dict></plist>");
  CHECK(dict.size() == 5);
  CHECK(dict.at("a&b") == PropertyValue(std::string("x < y")));
  CHECK(dict.at("n") == PropertyValue(std::int64_t{-7}));
  CHECK(dict.at("list") == PropertyValue(OtherValue{}));
  CHECK(dict.at("empty") == PropertyValue(std::string()));
  CHECK(dict.at("yes") == PropertyValue(true));
  CHECK(parse_plist_xml("<plist><dict/></plist>").empty());

  std::string deep = "<plist><dict><key>k</key>";
  for (int i = 0; i < 100000; ++i) {
    deep += "<array>";
  }
  for (const std::string& text :
       {std::string("bplist00\xd1"), std::string(), std::string("<plist><array/></plist>"), std::string("<plist><dict>"),
        std::string("<plist><dict><key>a</key></dict></plist>"), std::string("<plist><dict><true/></dict></plist>"),
        std::string("<plist><dict><key>a</key><string>x<b/></string></dict></plist>"), std::string("<!-- <plist>"), deep}) {
    CHECK_THROWS_AS((void)parse_plist_xml(text), Error);
  }
}
