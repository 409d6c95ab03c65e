#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "cli/verdict.hpp"

namespace lumelift {

enum class Gain { large, none, unknown };
enum class WithMetal3 { breaks, half_fast, unaffected, unknown };

/// One row of templates/runtimes.yaml: what a runtime asks a device for and what the answers mean to it.
struct Runtime {
  std::string name;
  std::vector<std::string> libraries, programs, words, texts;  ///< how it is recognised
  Gain gain = Gain::unknown;
  std::vector<int> fast_from;  ///< families, any of which granted makes it fast
  WithMetal3 with_metal3 = WithMetal3::unknown;
  std::string meaning, source, date;
};

/// Reads the table. Throws Error "runtimes-invalid" (usage) with file, line and column.
[[nodiscard]] std::vector<Runtime> load_runtimes(const std::filesystem::path& templates);

/// The row that the program belongs to, by its linked libraries, its name, the command's words, or its `content`; nullptr when
/// none does. Pure.
[[nodiscard]] const Runtime* recognise(const std::vector<Runtime>& table, const Program& program, const std::vector<std::string>& command,
                                       std::string_view content);
/// The row of this name. Throws Error "runtime-unknown" (usage), which lists those there are.
[[nodiscard]] const Runtime& named_runtime(const std::vector<Runtime>& table, std::string_view name);

/// What the files alone let expect: "llama.cpp: large gain expected". One line.
[[nodiscard]] std::string first_guess(const Runtime& runtime);

}  // namespace lumelift
