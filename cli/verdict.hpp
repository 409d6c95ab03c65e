#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/launch_chain.hpp"
#include "shim/macho.hpp"

namespace lumelift {

/// What the linked libraries and imported names say about Metal. `none` only when nothing could load it later either.
enum class MetalUse { linked, possible, none };

/// All that was read of what a user wants to start. Values only.
struct Program {
  LaunchChain chain;
  std::optional<MachO> file;  ///< absent: a part of macOS, or `unreadable` says why
  std::string unreadable;
  std::vector<SignatureCheck> checks;  ///< one per slice of `file`; unsigned ones stay unchecked
  std::vector<std::string> missing;    ///< libraries that dyld would not find, with where it would look
  MetalUse metal = MetalUse::possible;
};

/// Reads everything that the verdict needs, through `view`: the launch chain of `argv`, the program, its signature's
/// hashes, and the libraries beside it. Problems become values; throws only what is no property of the file (out of
/// memory).
[[nodiscard]] Program examine(const std::vector<std::string>& argv, const FileView& view);

/// SHA-256 for check_signature().
[[nodiscard]] Digest256 sha256_digest(std::span<const std::byte> bytes);

/// The slice that an Apple-silicon Mac starts; nullptr when there is none that it can.
[[nodiscard]] const Slice* running_slice(const MachO& file);

enum class Sip { unknown, on, off };

/// What the program meets in the guest.
struct InjectionTerms {
  std::vector<Cpu> library_slices = {Cpu::arm64, Cpu::x86_64};
  Sip sip = Sip::unknown;
  bool inherit = false;  ///< children get the library too
  std::optional<Version> guest_os = {};
};

enum class InjectionOutcome {
  works,
  ignored,          ///< dyld drops the variables; the program runs stock
  killed,           ///< the program, or the tool that starts it, would die
  aborts_children,  ///< the program works, the system tools that it starts would die
  needs_slice,      ///< no slice of program and library fit together
  not_needed,       ///< no Metal in it
  not_a_program,    ///< a library or plug-in: the program that loads it counts
  unreadable,
};

struct InjectionVerdict {
  InjectionOutcome outcome = InjectionOutcome::unreadable;
  std::string reason;  ///< plain words, no capital, no full stop
  std::string remedy;  ///< the next step; empty where there is nothing to do
  std::vector<std::string> notes;
  /// Whether a workload may be started with the library on this verdict.
  [[nodiscard]] bool acceptable() const { return outcome == InjectionOutcome::works || outcome == InjectionOutcome::not_needed; }
  bool operator==(const InjectionVerdict&) const = default;
};

/// Stable name for scripts: "works", "ignored", "killed", "aborts-children", "needs-slice", "not-needed",
/// "not-a-program", "unreadable".
[[nodiscard]] std::string_view name_of(InjectionOutcome outcome);

/// Judges from what was read; looks nothing up.
[[nodiscard]] InjectionVerdict injection_verdict(const Program& program, const InjectionTerms& terms);

/// One short line about the file itself: "arm64, ad-hoc signed", "arm64 + x86_64, hardened runtime, team ABCDE12345".
[[nodiscard]] std::string summary(const Program& program);

/// What is wrong with a file that is to be injected or run as the probe; nothing: it is fit. Checks the slices that
/// must be there, platform, kind of file, and every hash of the signature.
[[nodiscard]] std::vector<std::string> library_defects(std::string_view content);
/// The same for a library of somebody else's, which may be thin: whichever slices it has must be whole.
[[nodiscard]] std::vector<std::string> brought_library_defects(std::string_view content);
[[nodiscard]] std::vector<std::string> probe_defects(std::string_view content);
/// The slices of a library, for InjectionTerms. Throws Error as MachO::parse does.
[[nodiscard]] std::vector<Cpu> slices_of(std::string_view content);

}  // namespace lumelift
