#include "cli/verdict.hpp"

#include <doctest/doctest.h>

#include <map>
#include <set>

#include "host/sys/error.hpp"
#include "tests/unit/golden.hpp"
#include "tests/unit/macho_builder.hpp"

using namespace lumelift;
using namespace lumelift::test;

namespace {

/// A small world of files in memory.
struct World {
  struct Entry {
    std::string content;
    unsigned mode = 0755;
    std::string link;
  };
  std::map<std::string, Entry> files;

  [[nodiscard]] FileView view() const {
    return {[this](const std::string& path) -> PathLook {
              if (const auto found = files.find(path); found != files.end()) {
                const bool link = !found->second.link.empty();
                return {link ? EntryKind::symlink : EntryKind::file, found->second.mode, found->second.link};
              }
              const auto below = files.lower_bound(path + "/");
              const bool folder = below != files.end() && below->first.starts_with(path + "/");
              return {folder ? EntryKind::folder : EntryKind::missing, 0755, ""};
            },
            [this](const std::string& path) {
              const auto found = files.find(path);
              if (found == files.end()) {
                throw Error(ErrorKind::usage, "file-unreadable", "'" + path + "' is missing");
              }
              return found->second.content;
            }};
  }
};

InjectionVerdict judge(const World& world, const std::vector<std::string>& argv, const InjectionTerms& terms = {}) {
  return injection_verdict(examine(argv, world.view()), terms);
}

InjectionVerdict judge(const std::string& program, const InjectionTerms& terms = {}, unsigned mode = 0755) {
  World world;
  world.files["/Users/lume/x"] = {program, mode, ""};
  return judge(world, {"/Users/lume/x"}, terms);
}

/// A program that can be injected: linked to Metal, so that the unlock matters to it.
SliceSpec metal(SliceSpec spec = {}) {
  spec.libraries.push_back({"/System/Library/Frameworks/Metal.framework/Versions/A/Metal", false});
  return spec;
}

SliceSpec signed_with(std::uint32_t flags, const Grants& grants, const std::string& team = "ABCDE12345") {
  SliceSpec spec = metal();
  spec.sign->flags = flags;
  spec.sign->team = team;
  spec.sign->xml = entitlements_xml(grants);
  spec.sign->der = entitlements_der(grants);
  return spec;
}

const std::string dyld = "com.apple.security.cs.allow-dyld-environment-variables";
const std::string foreign = "com.apple.security.cs.disable-library-validation";
constexpr std::uint32_t adhoc = 0x2, restricted = 0x800, validation = 0x2000, hardened = 0x10000;

bool mentions(const std::string& text, std::string_view part) {
  return text.find(part) != text.npos;
}

using enum InjectionOutcome;

}  // namespace

TEST_CASE("verdict: an ordinary arm64 program works") {
  const auto verdict = judge(build(metal()));
  CHECK(verdict.outcome == works);
  CHECK(verdict.reason == "arm64, ad-hoc signed, can be injected");
  CHECK(verdict.remedy.empty());
  CHECK(verdict.acceptable());
}

TEST_CASE("verdict: scripts and the tools of macOS in between lose the variables (R61)") {
  World world;
  world.files["/w/run.sh"] = {"#!/bin/sh\n./server &\nwait\n", 0755, ""};
  world.files["/w/tool.py"] = {"#!/usr/bin/env python3\nprint(1)\n", 0755, ""};
  world.files["/opt/homebrew/bin/python3"] = {build(metal()), 0755, ""};
  world.files["/w/server"] = {build(metal()), 0755, ""};

  auto verdict = judge(world, {"/w/run.sh"});
  CHECK(verdict.outcome == ignored);
  CHECK(mentions(verdict.reason, "/bin/sh is part of macOS"));
  CHECK(mentions(verdict.remedy, "name the program itself"));
  REQUIRE(verdict.notes.size() == 1);
  CHECK(mentions(verdict.notes[0], "SIP off"));

  verdict = judge(world, {"/w/tool.py"});
  CHECK(verdict.outcome == ignored);
  CHECK(mentions(verdict.reason, "/usr/bin/env"));
  CHECK(verdict.remedy == "name /opt/homebrew/bin/python3 itself as the program to start, with the script as its first argument");
  world.files.erase("/opt/homebrew/bin/python3");
  world.files["/usr/bin/python3"] = {build(metal()), 0755, ""};
  CHECK(mentions(judge(world, {"/w/tool.py"}).remedy, "no part of macOS"));

  verdict = judge(world, {"/usr/bin/nohup", "/w/server", "-p", "8080"});
  CHECK(verdict.outcome == ignored);
  CHECK(mentions(verdict.remedy, "name /w/server itself"));
  verdict = judge(world, {"/usr/bin/env", "-u", "X", "A=b", "/usr/bin/nice", "-n", "5", "/w/server"});
  CHECK(mentions(verdict.remedy, "name /w/server itself"));
}

TEST_CASE("verdict: with SIP off a shell in between is aborted unless the library has arm64e (R25)") {
  World world;
  world.files["/w/run.sh"] = {"#!/bin/sh\nexec \"$(dirname \"$0\")/server\" \"$@\"\n", 0755, ""};
  world.files["/w/server"] = {build(metal()), 0755, ""};
  InjectionTerms terms{.library_slices = {Cpu::arm64}, .sip = Sip::off};
  auto verdict = judge(world, {"/w/run.sh"}, terms);
  CHECK(verdict.outcome == killed);
  CHECK(mentions(verdict.reason, "/bin/sh is arm64e"));
  CHECK(mentions(verdict.remedy, "/w/server"));
  terms.library_slices.push_back(Cpu::arm64e);
  CHECK(judge(world, {"/w/run.sh"}, terms).outcome == works);
  terms = {.sip = Sip::on};
  CHECK(judge(world, {"/w/run.sh"}, terms).outcome == ignored);
  CHECK(judge(world, {"/w/run.sh"}, terms).notes.empty());
}

TEST_CASE("verdict: links and wrappers are followed to the end (R62)") {
  World world;
  world.files["/opt/homebrew/bin/serve"] = {"", 0755, "../Cellar/serve/1.0/bin/serve"};
  world.files["/opt/homebrew/Cellar/serve/1.0/bin/serve"] = {
      "#!/bin/bash\n# starts it\nROOT=\"/opt/homebrew/Cellar/serve/1.0\"\nPORT=1 exec \"${ROOT}/libexec/serve\" "
      "\"$@\"\n",
      0755, ""};
  world.files["/opt/homebrew/Cellar/serve/1.0/libexec/serve"] = {build(signed_with(hardened, {})), 0755, ""};
  const Program program = examine({"/opt/homebrew/bin/serve"}, world.view());
  REQUIRE(program.chain.found());
  REQUIRE(program.chain.links.size() == 4);
  CHECK(program.chain.links[0].role == ChainLink::Role::symlink);
  CHECK(program.chain.links[1].role == ChainLink::Role::script);
  CHECK(program.chain.links[2].path == "/bin/bash");
  CHECK(program.chain.program().path == "/opt/homebrew/Cellar/serve/1.0/libexec/serve");
  const auto verdict = injection_verdict(program, {.sip = Sip::on});
  CHECK(verdict.outcome == ignored);
  REQUIRE(verdict.notes.size() == 1);
  CHECK(mentions(verdict.notes[0], "started directly: hardened runtime"));  // the plain remedy would not be enough

  world.files["/a"] = {"", 0755, "b"};
  world.files["/b"] = {"", 0755, "a"};
  CHECK(judge(world, {"/a"}).outcome == unreadable);
  CHECK(judge(world, {"/nowhere"}).outcome == unreadable);
  CHECK(judge(world, {"/opt/homebrew/Cellar"}).outcome == unreadable);
}

TEST_CASE("verdict: an interpreter that is no part of macOS keeps the variables") {
  World world;
  const std::string framework = "/opt/homebrew/Frameworks/Python.framework/Versions/3.13/";
  world.files["/w/tool.py"] = {"#!" + framework + "bin/python3.13\n", 0644, ""};
  world.files[framework + "bin/python3.13"] = {build(), 0755, ""};
  world.files[framework + "Resources/Python.app/Contents/MacOS/Python"] = {build(metal()), 0755, ""};
  auto verdict = judge(world, {"/w/tool.py"});
  CHECK(verdict.outcome == works);
  REQUIRE(verdict.notes.size() == 1);
  CHECK(mentions(verdict.notes[0], "only starts"));
  CHECK(judge(world, {"/w/tool.py"}, {.sip = Sip::on, .inherit = true}).notes.empty());
}

TEST_CASE("verdict: app bundles lead to their executable") {
  World world;
  const auto plist = [](const std::string& name) {
    return "<plist version=\"1.0\"><dict><key>CFBundleExecutable</key><string>" + name + "</string></dict></plist>";
  };
  world.files["/Applications/Draw.app/Contents/Info.plist"] = {plist("Draw"), 0644, ""};
  world.files["/Applications/Draw.app/Contents/MacOS/Draw"] = {build(metal()), 0755, ""};
  CHECK(judge(world, {"/Applications/Draw.app"}).outcome == works);
  world.files["/Applications/Draw.app/Contents/Info.plist"].content = plist("../../evil");
  CHECK(judge(world, {"/Applications/Draw.app"}).outcome == unreadable);
  world.files["/Applications/Draw.app/Contents/Info.plist"].content = std::string("bplist00\0\x01", 10);
  CHECK(mentions(judge(world, {"/Applications/Draw.app/"}).reason, "binary form"));
}

TEST_CASE("verdict: setuid and setgid programs are refused (R63)") {
  for (const unsigned mode : {04755u, 02755u}) {
    const auto verdict = judge(build(metal()), {}, mode);
    CHECK(verdict.outcome == ignored);
    CHECK(mentions(verdict.reason, "setuid or setgid"));
  }
}

TEST_CASE("verdict: hardened runtime needs both entitlements (R64)") {
  auto verdict = judge(build(signed_with(hardened, {})));
  CHECK(verdict.outcome == ignored);
  CHECK(mentions(verdict.reason, dyld));
  CHECK(mentions(verdict.reason, foreign));

  verdict = judge(build(signed_with(hardened, {{foreign, true}})));
  CHECK(verdict.outcome == ignored);
  CHECK(mentions(verdict.reason, dyld));
  CHECK_FALSE(mentions(verdict.reason, foreign));

  verdict = judge(build(signed_with(hardened, {{dyld, true}})));
  CHECK(verdict.outcome == killed);
  CHECK(mentions(verdict.reason, foreign));
  CHECK(mentions(verdict.reason, "team ABCDE12345"));

  CHECK(judge(build(signed_with(hardened, {{dyld, true}, {foreign, true}}))).outcome == works);
  CHECK(judge(build(signed_with(hardened, {{dyld, false}, {foreign, true}}))).outcome == ignored);
  CHECK(judge(build(signed_with(hardened | adhoc, {}, ""))).outcome == ignored);
  CHECK(judge(build(signed_with(adhoc, {}, ""))).outcome == works);
  CHECK(judge(build(signed_with(validation, {}))).outcome == killed);
  CHECK(judge(build(signed_with(restricted, {{dyld, true}, {foreign, true}}))).outcome == ignored);
}

TEST_CASE("verdict: other marks that make dyld drop the variables") {
  SliceSpec spec = metal();
  spec.restrict_section = true;
  CHECK(mentions(judge(build(spec)).reason, "__RESTRICT"));
  spec = metal();
  spec.encrypted = true;
  CHECK(judge(build(spec)).outcome == ignored);
}

TEST_CASE("verdict: slices of program and library must fit (R65)") {
  const InjectionTerms arm_only{.library_slices = {Cpu::arm64}};
  const SliceSpec intel = for_cpu(Cpu::x86_64, metal()), arm = metal(), arm64e = for_cpu(Cpu::arm64e, metal());

  auto verdict = judge(build(intel), arm_only);
  CHECK(verdict.outcome == needs_slice);
  CHECK(mentions(verdict.reason, "x86_64"));
  verdict = judge(build(intel));
  CHECK(verdict.outcome == works);
  CHECK(verdict.notes == std::vector<std::string>{"runs under Rosetta"});
  SliceSpec unsigned_intel = intel;
  unsigned_intel.sign.reset();
  CHECK(judge(build(unsigned_intel)).outcome == works);

  CHECK(judge(build_universal({intel, arm}), arm_only).outcome == works);
  CHECK(judge(build_universal({intel, arm}, true), arm_only).outcome == works);
  verdict = judge(build_universal({arm, arm64e}), arm_only);
  CHECK(verdict.outcome == needs_slice);
  CHECK(mentions(verdict.reason, "arm64e"));
  CHECK(judge(build_universal({arm, arm64e}), {.library_slices = {Cpu::arm64, Cpu::arm64e}}).outcome == works);

  CHECK(judge(Out().words({0xfeedface, 7, 3, 2, 0, 0, 0}).take()).outcome == needs_slice);
  CHECK(judge(build(for_cpu(Cpu::x86_64h, metal()))).outcome == needs_slice);
  CHECK(judge("").outcome == unreadable);
  CHECK(judge(build(arm).substr(0, 60)).outcome == unreadable);
  CHECK(judge("\x7f"
              "ELF and more")
            .outcome == unreadable);
  SliceSpec phone = metal();
  phone.platform = 2;
  CHECK(mentions(judge(build(phone)).reason, "iOS"));
}

TEST_CASE("verdict: arm64e alone is for Apple's own programs (R66)") {
  const auto verdict = judge(build(for_cpu(Cpu::arm64e, metal())), {.library_slices = {Cpu::arm64, Cpu::arm64e}});
  CHECK(verdict.outcome == needs_slice);
  CHECK(mentions(verdict.remedy, "arm64"));
  CHECK(judge(World{}, {"/usr/bin/true"}, {.sip = Sip::on}).outcome == ignored);
  CHECK(judge(World{}, {"/usr/bin/true"}, {.library_slices = {Cpu::arm64}, .sip = Sip::off}).outcome == killed);
  CHECK(judge(World{}, {"/usr/bin/true"}, {.library_slices = {Cpu::arm64e}, .sip = Sip::off}).outcome == works);
}

TEST_CASE("verdict: children that inherit an arm64-only library abort") {
  InjectionTerms terms{.library_slices = {Cpu::arm64}, .sip = Sip::off, .inherit = true};
  CHECK(judge(build(metal()), terms).outcome == aborts_children);
  terms.sip = Sip::unknown;
  CHECK(judge(build(metal()), terms).outcome == works);
  CHECK(judge(build(metal()), terms).notes.size() == 1);
  terms.sip = Sip::on;
  CHECK(judge(build(metal()), terms).outcome == works);
  CHECK(judge(build(metal()), terms).notes.empty());
  terms.sip = Sip::off;
  terms.library_slices.push_back(Cpu::arm64e);
  CHECK(judge(build(metal()), terms).outcome == works);
}

TEST_CASE("verdict: libraries are looked for where dyld would look (R70)") {
  World world;
  SliceSpec program = metal();
  program.libraries.push_back({"@rpath/libllama.dylib", false});
  program.rpaths = {"@loader_path"};
  SliceSpec library;
  library.file_type = 6;
  library.libraries.push_back({"@rpath/libggml.dylib", false});
  world.files["/w/bin/llama-bench"] = {build(program), 0755, ""};
  auto verdict = judge(world, {"/w/bin/llama-bench"});
  CHECK(verdict.outcome == killed);
  CHECK(verdict.reason == "dyld would not find @rpath/libllama.dylib (looked for at /w/bin/libllama.dylib)");

  world.files["/w/bin/libllama.dylib"] = {"", 0755, "libllama.1.dylib"};
  world.files["/w/bin/libllama.1.dylib"] = {build(library), 0644, ""};
  verdict = judge(world, {"/w/bin/llama-bench"});
  CHECK(verdict.outcome == killed);
  CHECK(mentions(verdict.reason, "@rpath/libggml.dylib"));
  world.files["/w/bin/libggml.dylib"] = {build(for_cpu(Cpu::x86_64)), 0644, ""};
  CHECK(mentions(judge(world, {"/w/bin/llama-bench"}).reason, "no arm64 slice"));
  world.files["/w/bin/libggml.dylib"].content = build();
  CHECK(judge(world, {"/w/bin/llama-bench"}).outcome == works);

  program.libraries = {{"/opt/homebrew/opt/x/lib/libx.dylib", false}, {"@executable_path/../lib/y.dylib", true}};
  world.files["/w/bin/other"] = {build(program), 0755, ""};
  verdict = judge(world, {"/w/bin/other"});
  CHECK(verdict.reason == "dyld would not find /opt/homebrew/opt/x/lib/libx.dylib");
  CHECK(verdict.notes.empty());  // a weak library may be absent
}

TEST_CASE("verdict: damage is named with its page, and unsigned arm64 does not start") {
  std::string file = build(metal());
  file[4096 * 2 + 17] = static_cast<char>(file[4096 * 2 + 17] ^ 1);
  const auto verdict = judge(file);
  CHECK(verdict.outcome == killed);
  CHECK(mentions(verdict.reason, "page 2 of the arm64 slice (bytes 8192 to 12287)"));
  SliceSpec spec = metal();
  spec.sign.reset();
  CHECK(mentions(judge(build(spec)).reason, "unsigned"));
}

TEST_CASE("verdict: no Metal is said only when nothing could bring it in") {
  CHECK(judge(build()).outcome == not_needed);
  SliceSpec spec = signed_with(hardened, {});
  spec.libraries.resize(1);
  CHECK(judge(build(spec)).outcome == not_needed);  // the variables are dropped, and nothing is lost
  spec.sign->flags = validation;
  CHECK(judge(build(spec)).outcome == killed);
  for (const char* import : {"_dlopen", "_posix_spawnp", "_execve", "_CFBundleLoadExecutable"}) {
    SliceSpec reaching;
    reaching.imports.push_back(import);
    CHECK(judge(build(reaching)).outcome == works);
  }
  SliceSpec appkit;
  appkit.libraries.push_back({"/System/Library/Frameworks/AppKit.framework/Versions/C/AppKit", false});
  CHECK(judge(build(appkit)).outcome == works);
}

TEST_CASE("verdict: a library is no program, and a newer system is pointed out") {
  SliceSpec library;
  library.file_type = 6;
  CHECK(judge(build(library)).outcome == not_a_program);
  CHECK_FALSE(judge(build(library)).acceptable());
  const auto verdict = judge(build(metal()), {.guest_os = Version{12, 6, 0}});
  CHECK(verdict.outcome == works);
  CHECK(verdict.notes == std::vector<std::string>{"built for macOS 13.0 or later; the guest has 12.6"});
}

TEST_CASE("verdict: our own library and probe are checked before they are copied") {
  SliceSpec library;
  library.file_type = 6;
  std::string file = build_universal({library, for_cpu(Cpu::x86_64, library)});
  CHECK(library_defects(file).empty());
  CHECK(slices_of(file) == std::vector<Cpu>{Cpu::arm64, Cpu::x86_64});
  CHECK(probe_defects(file).size() == 2);
  CHECK(library_defects(build(library)) == std::vector<std::string>{"it has no x86_64 slice"});
  CHECK(library_defects("no such thing") == std::vector<std::string>{"the file is not a Mach-O file"});
  file[16384 + 4096] = static_cast<char>(file[16384 + 4096] ^ 1);
  CHECK(library_defects(file) == std::vector<std::string>{"page 1 of its arm64 slice differs from what was signed"});
}

TEST_CASE("wrapper scripts: what they exec at the end, when it is certain") {
  const auto target = [](const std::string& body) { return exec_target("#!/bin/sh\n" + body, "/opt/x/bin/run"); };
  using Words = std::vector<std::string>;
  CHECK(target("exec /opt/y/z \"$@\"\n") == Words{"/opt/y/z", "$@"});
  CHECK(target("exec \"${0%/*}/z\"") == Words{"/opt/x/bin/z"});
  CHECK(target("DIR=$(cd \"$(dirname \"${BASH_SOURCE[0]}\")\" && pwd)\nexec \"$DIR/z\" -a 'b c'\n") == Words{"/opt/x/bin/z", "-a", "b c"});
  CHECK(target("DIR=\"$(cd `dirname \"$0\"` && pwd)\"\nexec $DIR/z -a 'b c' # last\n\n# end\n") == Words{"/opt/x/bin/z", "-a", "b c"});
  CHECK(target("export A=1\nA=2 exec -a name \\\n  env B=3 /z\n") == Words{"env", "B=3", "/z"});
  CHECK(target("exec ${TOOL:-/usr/bin/z}\n") == Words{"/usr/bin/z"});
  CHECK(target("if [ -n \"$X\" ]; then\n  D=/a\nfi\nexec /z\n") == Words{"/z"});
  CHECK(target("D=/a\nif test -d /b\nthen\n  D=/b\nfi\nexec $D/z\n").empty());
  CHECK(target("D=/a\nif test -d /b; then D=/b; fi\nexec $D/z\n").empty());
  CHECK(target("exec $UNKNOWN/z\n").empty());
  CHECK(target("exec /z\necho done\n").empty());
  CHECK(target("/z &\nwait\n").empty());
  CHECK(target("exec $(cat path)/z\n").empty());
  CHECK(target("exec \"unterminated\n").empty());
}

TEST_CASE("the table of crafted specimens has every class of verdict") {
  World world;
  std::vector<std::pair<std::string, InjectionTerms>> asked;
  const auto add = [&](const std::string& name, const std::string& content, InjectionTerms terms = {}, unsigned mode = 0755) {
    world.files["/x/" + name] = {content, mode, ""};
    asked.emplace_back(name, std::move(terms));
  };
  InjectionTerms off, inherited, universal;
  off.sip = inherited.sip = Sip::off;
  inherited.inherit = true;
  universal.library_slices = {Cpu::arm64, Cpu::arm64e, Cpu::x86_64};
  const Grants both = {{dyld, true}, {foreign, true}};
  SliceSpec damaged_spec = metal(), encrypted = metal(), sectioned = metal(), bare = metal(), lonely = metal(), ios = metal(), plain;
  encrypted.encrypted = true;
  sectioned.restrict_section = true;
  bare.sign.reset();
  lonely.libraries.push_back({"@rpath/libllama.dylib", false});
  lonely.rpaths = {"@loader_path"};
  ios.platform = 2;
  plain.imports = {"_printf"};
  std::string damaged = build(damaged_spec);
  damaged[6000] = static_cast<char>(damaged[6000] ^ 1);
  SliceSpec library = metal();
  library.file_type = 6;
  add("ordinary", build(metal()));
  add("hardened-both", build(metal(signed_with(0x10000, both))));
  add("hardened-none", build(metal(signed_with(0x10000, {}))));
  add("hardened-dyld-only", build(metal(signed_with(0x10000, {{dyld, true}}))));
  add("library-validation", build(metal(signed_with(0x2000, {}))));
  add("restrict-flag", build(metal(signed_with(0x800, {}))));
  add("restrict-section", build(sectioned));
  add("encrypted", build(encrypted));
  add("setuid", build(metal()), {}, 04755);
  add("script", "#!/bin/sh\nexec /x/ordinary\n");
  add("script-sip-off", "#!/bin/sh\nexec /x/ordinary\n", off);
  add("damaged", damaged);
  add("unsigned", build(bare));
  add("library-missing", build(lonely));
  add("inherits-sip-off", build(metal()), inherited);
  add("rosetta", build(for_cpu(Cpu::x86_64, metal())));
  add("i386", build(for_cpu(Cpu::i386, metal())));
  add("arm64e-only", build(for_cpu(Cpu::arm64e, metal())));
  add("arm64-and-arm64e", build_universal({metal(), for_cpu(Cpu::arm64e, metal())}));
  add("arm64-and-arm64e-full", build_universal({metal(), for_cpu(Cpu::arm64e, metal())}), universal);
  add("ios", build(ios));
  add("no-metal", build(plain));
  add("library", build(library));
  add("cut", build(metal()).substr(0, 200));
  add("empty", "");
  std::string table;
  std::set<InjectionOutcome> classes;
  for (const auto& [name, terms] : asked) {
    const Program program = examine({"/x/" + name}, world.view());
    const InjectionVerdict verdict = injection_verdict(program, terms);
    classes.insert(verdict.outcome);
    table += name + "\t" + std::string(name_of(verdict.outcome)) + "\t" + summary(program) + "\t" + verdict.reason + "\n";
  }
  CHECK(classes.size() == static_cast<std::size_t>(InjectionOutcome::unreadable) + 1);
  check_golden("verdict/classes.txt", table);
}
