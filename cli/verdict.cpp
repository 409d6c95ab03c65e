#include "cli/verdict.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "host/sys/error.hpp"

namespace lumelift {

namespace {

using enum InjectionOutcome;

constexpr unsigned set_id_bits = 06000;
constexpr std::string_view allow_dyld = "com.apple.security.cs.allow-dyld-environment-variables";
constexpr std::string_view disable_validation = "com.apple.security.cs.disable-library-validation";

bool has(const std::vector<Cpu>& slices, Cpu cpu) {
  return std::find(slices.begin(), slices.end(), cpu) != slices.end();
}

/// A process whose slice is `cpu` can load a library that has these.
bool loadable(const std::vector<Cpu>& slices, Cpu cpu) {
  return has(slices, cpu) || (cpu == Cpu::x86_64h && has(slices, Cpu::x86_64));
}

std::string start_directly(const Program& program) {
  if (!program.chain.found()) {
    return "name the program itself, not what starts it";
  }
  const ChainLink& last = program.chain.program();
  const auto runs = [&](ChainLink::Role role) {
    const auto& links = program.chain.links;
    return std::any_of(links.begin(), links.end(), [&](const ChainLink& link) { return link.role == role; });
  };
  // A shell script that was followed is not needed any more; one for another interpreter is what that has to run.
  const bool interprets = runs(ChainLink::Role::script) && !runs(ChainLink::Role::shell);
  const std::string with = interprets ? ", with the script as its first argument" : "";
  if (last.system) {
    return "name a program that is no part of macOS, as from a package manager" + with;
  }
  return "name " + last.path + " itself as the program to start" + with;
}

std::optional<InjectionVerdict> judge_system_part(const ChainLink& link, const Program& program, const InjectionTerms& terms) {
  const bool is_end = program.chain.found() && &link == &program.chain.links.back();
  const std::string remedy =
      is_end ? "use a copy that is no part of macOS, as from a package manager or your own build" : start_directly(program);
  if (terms.sip == Sip::off) {
    if (has(terms.library_slices, Cpu::arm64e)) {
      return std::nullopt;
    }
    return InjectionVerdict{killed,
                            link.path +
                                " is arm64e and SIP is off, so dyld would load the library there; it has no "
                                "arm64e slice, and the process would be aborted",
                            remedy,
                            {}};
  }
  InjectionVerdict verdict{ignored, link.path + " is part of macOS: dyld drops the variables there", remedy, {}};
  if (!is_end) {
    verdict.reason += ", and what it starts never sees them";
  }
  if (terms.sip == Sip::unknown) {
    verdict.notes.push_back("this holds while SIP is on; with SIP off " + link.path +
                            (has(terms.library_slices, Cpu::arm64e) ? " would get the library too" : " would be aborted by dyld"));
  }
  return verdict;
}

/// Everything that stands between what was named and the program.
std::optional<InjectionVerdict> judge_chain(const Program& program, const InjectionTerms& terms) {
  for (const ChainLink& link : program.chain.links) {
    const bool runs = link.role != ChainLink::Role::symlink && link.role != ChainLink::Role::bundle && link.role != ChainLink::Role::script;
    if (runs && link.system) {
      if (auto verdict = judge_system_part(link, program, terms)) {
        return verdict;
      }
    } else if (runs && (link.mode & set_id_bits) != 0) {
      return InjectionVerdict{ignored,
                              link.path + " is setuid or setgid: dyld drops the variables there",
                              "clear the bits on a copy of it (chmod u-s,g-s), or use another program",
                              {}};
    }
  }
  if (program.chain.found()) {
    return std::nullopt;
  }
  return InjectionVerdict{unreadable, program.chain.open_end, start_directly(program), {}};
}

/// Whether the file is one that macOS would start on Apple silicon at all.
std::optional<InjectionVerdict> judge_file(const Program& program, const Slice* slice) {
  if (program.file->slices.front().type != FileType::program) {
    return InjectionVerdict{not_a_program, "a library or plug-in: the program that loads it is what counts", "", {}};
  }
  if (!slice) {
    return InjectionVerdict{
        needs_slice,
        "the program has only " + std::string(shown(program.file->slices.front().cpu)) + ", which Apple silicon does not run",
        "use a build for arm64",
        {}};
  }
  if (slice->platform != Platform::macos && slice->platform != Platform::unknown && slice->platform != Platform::catalyst) {
    return InjectionVerdict{
        needs_slice, "built for " + std::string(shown(slice->platform)) + ", not for macOS", "use a build for macOS", {}};
  }
  if (slice->cpu == Cpu::arm64e && !program.file->find(Cpu::arm64)) {
    return InjectionVerdict{
        needs_slice, "the program is arm64e only; macOS starts no such program but its own", "use a build for arm64", {}};
  }
  return std::nullopt;
}

/// Whether dyld would get as far as the program's first instruction, without any library of ours.
std::optional<InjectionVerdict> judge_health(const Program& program, const Slice& slice) {
  const auto& check = program.checks[static_cast<std::size_t>(&slice - program.file->slices.data())];
  if (!slice.signature) {
    if (slice.cpu == Cpu::x86_64) {
      return std::nullopt;
    }
    return InjectionVerdict{killed,
                            "unsigned: Apple silicon starts no unsigned " + std::string(shown(slice.cpu)) + " program",
                            "sign it ad hoc on a Mac: codesign -s - FILE",
                            {}};
  }
  if (check.checked && !check.intact()) {
    std::string what = "the signed " + (check.parts.empty() ? std::string() : check.parts.front()) + " differ";
    if (check.damaged_pages != 0) {
      const auto& page = check.pages.front();
      what = "page " + std::to_string(page.index) + " of the " + std::string(shown(slice.cpu)) + " slice (bytes " +
             std::to_string(slice.range.offset + page.offset) + " to " + std::to_string(slice.range.offset + page.offset + page.size - 1) +
             ") differs";
      if (check.damaged_pages > 1) {
        what += ", and " + std::to_string(check.damaged_pages - 1) + " more";
      }
    }
    return InjectionVerdict{killed, "damaged: " + what + " from what was signed", "copy or build the file again", {}};
  }
  if (!program.missing.empty()) {
    InjectionVerdict verdict{
        killed, "dyld would not find " + program.missing.front(), "copy the library along, where the program looks for it", {}};
    for (std::size_t i = 1; i < program.missing.size(); ++i) {
      verdict.notes.push_back("not found either: " + program.missing[i]);
    }
    return verdict;
  }
  return std::nullopt;
}

/// Whether the program itself makes dyld drop the variables.
std::optional<InjectionVerdict> judge_restriction(const Slice& slice) {
  const auto dropped = [](std::string why, std::string remedy) { return InjectionVerdict{ignored, std::move(why), std::move(remedy), {}}; };
  if (slice.encrypted) {
    return dropped("encrypted as from the App Store: dyld drops the variables", "use a build that is not encrypted");
  }
  if (slice.restrict_section) {
    return dropped("has a __RESTRICT,__restrict section: dyld drops the variables", "use a build without that section");
  }
  if (!slice.signature) {
    return std::nullopt;
  }
  if (slice.signature->has(SignatureFlag::restricted)) {
    return dropped("signed with the restrict flag: dyld drops the variables", "use a build signed without that flag");
  }
  if (slice.signature->has(SignatureFlag::hardened_runtime) && !slice.signature->grants(allow_dyld)) {
    std::string missing(allow_dyld);
    if (!slice.signature->grants(disable_validation)) {
      missing += " and " + std::string(disable_validation);
    }
    return dropped("hardened runtime without " + missing + ": dyld drops the variables and the library would not load",
                   "re-sign it with the missing entitlement, or use a build without hardened runtime");
  }
  return std::nullopt;
}

std::optional<InjectionVerdict> judge_library(const Program& program, const Slice& slice, const InjectionTerms& terms) {
  const auto& signature = slice.signature;
  const bool validates =
      signature && (signature->has(SignatureFlag::hardened_runtime) || signature->has(SignatureFlag::library_validation));
  if (validates && !signature->grants(disable_validation)) {
    return InjectionVerdict{killed,
                            "library validation is on: only libraries of " +
                                (signature->team_id.empty() ? std::string("Apple") : "Apple or team " + signature->team_id) +
                                " may load, and dyld aborts on any other; the entitlement " + std::string(disable_validation) +
                                " is missing",
                            "re-sign it with that entitlement, or use a build without library validation",
                            {}};
  }
  if (!loadable(terms.library_slices, slice.cpu)) {
    std::string reason = "it starts as " + std::string(shown(slice.cpu)) + ", and the library has no such slice: dyld aborts";
    if (slice.cpu == Cpu::arm64e) {
      reason += " (of " + summary(program) + " macOS prefers arm64e)";
    }
    return InjectionVerdict{needs_slice,
                            reason,
                            slice.cpu == Cpu::arm64e ? "use a build with arm64 alone, or a library with an arm64e slice"
                                                     : "use a build for arm64, or a library with this slice",
                            {}};
  }
  if (terms.inherit && terms.sip == Sip::off && !has(terms.library_slices, Cpu::arm64e)) {
    return InjectionVerdict{aborts_children,
                            "children inherit the library, which has no arm64e slice: with SIP off dyld aborts every "
                            "tool of macOS that it starts",
                            "leave `inherit` off, or use a library with an arm64e slice",
                            {}};
  }
  return std::nullopt;
}

void add_notes(InjectionVerdict& verdict, const Program& program, const Slice& slice, const InjectionTerms& terms) {
  if (slice.cpu == Cpu::x86_64) {
    verdict.notes.emplace_back("runs under Rosetta");
  }
  if (terms.guest_os && slice.minimum_os > *terms.guest_os) {
    verdict.notes.push_back("built for macOS " + shown(slice.minimum_os) + " or later; the guest has " + shown(*terms.guest_os));
  }
  const bool inherits_arm64e = !terms.inherit || has(terms.library_slices, Cpu::arm64e);
  if (verdict.outcome == works && !inherits_arm64e && terms.sip == Sip::unknown) {
    verdict.notes.emplace_back(
        "inherited by children, and the library has no arm64e slice: with SIP off dyld would abort every tool of macOS "
        "that it starts");
  }
  for (const ChainLink& link : program.chain.links) {
    if (link.role == ChainLink::Role::stub && !terms.inherit) {
      verdict.notes.push_back(link.path + " only starts " + program.chain.program().path +
                              ": name that one as the program, or set `inherit`");
    }
  }
}

InjectionVerdict judge_program(const Program& program, const InjectionTerms& terms) {
  const Slice* slice = running_slice(*program.file);
  if (auto verdict = judge_file(program, slice)) {
    return *verdict;
  }
  if (auto verdict = judge_health(program, *slice)) {
    return *verdict;
  }
  auto restricted = judge_restriction(*slice);
  InjectionVerdict verdict;
  if ((restricted || !judge_library(program, *slice, terms)) && program.metal == MetalUse::none) {
    verdict = {not_needed, "links no Metal and cannot load it: nothing to unlock", "", {}};
  } else if (restricted) {
    verdict = *std::move(restricted);
  } else if (auto refused = judge_library(program, *slice, terms)) {
    verdict = *std::move(refused);
  } else {
    verdict = {works, summary(program) + ", can be injected", "", {}};
  }
  add_notes(verdict, program, *slice, terms);
  return verdict;
}

}  // namespace

InjectionVerdict injection_verdict(const Program& program, const InjectionTerms& terms) {
  if (!program.unreadable.empty()) {
    return {unreadable, program.unreadable, "", {}};
  }
  auto on_the_way = judge_chain(program, terms);
  if (!program.file) {
    return on_the_way ? *on_the_way : InjectionVerdict{works, "part of macOS, and SIP is off: the library is loaded", "", {}};
  }
  InjectionVerdict own = judge_program(program, terms);
  if (!on_the_way || own.outcome == not_needed) {
    return own;
  }
  // Starting the program directly is no remedy when it would refuse by itself.
  if (!own.acceptable()) {
    on_the_way->notes.push_back("started directly: " + own.reason);
  }
  return *on_the_way;
}

std::string_view name_of(InjectionOutcome outcome) {
  static constexpr std::string_view names[] = {"works",       "ignored",    "killed",        "aborts-children",
                                               "needs-slice", "not-needed", "not-a-program", "unreadable"};
  return names[static_cast<std::size_t>(outcome)];
}

std::string summary(const Program& program) {
  if (!program.file) {
    return program.chain.found() && program.chain.program().system ? "part of macOS" : "";
  }
  std::string out;
  for (const Slice& slice : program.file->slices) {
    out += (out.empty() ? "" : " + ") + std::string(shown(slice.cpu));
  }
  const Slice* slice = running_slice(*program.file);
  if (!slice) {
    return out;
  }
  if (slice->encrypted) {
    out += ", encrypted";
  }
  if (!slice->signature) {
    return out + ", unsigned";
  }
  const CodeSignature& signature = *slice->signature;
  const bool hardened = signature.has(SignatureFlag::hardened_runtime);
  if (hardened) {
    out += ", hardened runtime";
  }
  if (hardened && signature.grants(allow_dyld)) {
    out += ", allows DYLD variables";
  }
  if (!signature.team_id.empty()) {
    return out + ", team " + signature.team_id;
  }
  return out + (signature.has(SignatureFlag::adhoc) ? ", ad-hoc signed" : ", signed");
}

namespace {

std::vector<std::string> defects(std::string_view content, FileType type, const std::vector<Cpu>& needed) {
  const auto bytes = std::as_bytes(std::span(content));
  std::vector<std::string> out;
  MachO file;
  try {
    file = MachO::parse(bytes);
  } catch (const Error& error) {
    return {error.message()};
  }
  for (const Cpu cpu : needed) {
    if (!file.find(cpu)) {
      out.push_back("it has no " + std::string(shown(cpu)) + " slice");
    }
  }
  for (const Slice& slice : file.slices) {
    const std::string name = "its " + std::string(shown(slice.cpu)) + " slice ";
    if (slice.type != type) {
      out.push_back(name + (type == FileType::library ? "is no library" : "is no program"));
    }
    if (slice.platform != Platform::macos) {
      out.push_back(name + "is not built for macOS");
    }
    if (!slice.signature) {
      out.push_back(name + "is not signed");
      continue;
    }
    const SignatureCheck check = check_signature(slice_bytes(bytes, slice), *slice.signature, sha256_digest);
    if (!check.checked) {
      out.push_back(name + "is signed with another hash than SHA-256");
    }
    for (const auto& page : check.pages) {
      out.push_back("page " + std::to_string(page.index) + " of " + name + "differs from what was signed");
    }
    for (const auto& part : check.parts) {
      out.push_back("the signed " + part + " of " + name + "differ");
    }
  }
  return out;
}

}  // namespace

std::vector<std::string> library_defects(std::string_view content) {
  return defects(content, FileType::library, {Cpu::arm64, Cpu::x86_64});
}
std::vector<std::string> brought_library_defects(std::string_view content) {
  return defects(content, FileType::library, {});
}
std::vector<std::string> probe_defects(std::string_view content) {
  return defects(content, FileType::program, {Cpu::arm64, Cpu::x86_64});
}

std::vector<Cpu> slices_of(std::string_view content) {
  std::vector<Cpu> out;
  for (const Slice& slice : MachO::parse(std::as_bytes(std::span(content))).slices) {
    out.push_back(slice.cpu);
  }
  return out;
}

}  // namespace lumelift
