#pragma once

#include <string>
#include <vector>

#include "cli/guest_run.hpp"
#include "cli/link.hpp"
#include "cli/verdict.hpp"
#include "remote/guest.hpp"

namespace lumelift {

/// The files of a guest, over the link's connection; each is read once. Files above 256 MB are not read. Lives no longer
/// than the link.
[[nodiscard]] FileView guest_files(GuestLink& link);

/// What a program meets in this guest. `library_slices` as slices_of() says.
[[nodiscard]] InjectionTerms guest_terms(const GuestFacts& facts, std::vector<Cpu> library_slices);

/// "26.5.2"; nothing when it is no version.
[[nodiscard]] std::optional<Version> version_from(std::string_view text);

/// A guest path as a user writes it, made absolute: "~/x" and relative ones lie in `folder`, or the home where that is empty.
[[nodiscard]] std::string guest_path(const std::string& written, const std::string& home, const std::string& folder = {});

/// The program that `command` names: looked up in the usual folders where it has no '/', as it is where it is not found.
[[nodiscard]] std::string program_path(const std::vector<std::string>& command, const FileView& files);

/// What a user asked to be run (`variables` are NAME=VALUE words, `folder` may be empty), with the program looked up and paths
/// as the guest has them. Throws what variables_from() throws.
[[nodiscard]] Launch launch_in_guest(const std::vector<std::string>& command, const std::vector<std::string>& variables,
                                     const std::string& folder, const FileView& files, const std::string& home);
/// Its words with an absolute path in front, for the verdict; a bare name stays one.
[[nodiscard]] std::vector<std::string> judged_words(const Launch& launch, const std::string& home);

}  // namespace lumelift
