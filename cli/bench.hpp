#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/report.hpp"
#include "host/sys/time.hpp"

namespace lumelift {

/// What is measured: a program that ends by itself, or a server that is asked over HTTP.
enum class Subject { llama_bench, mlx, llama_server, ollama };
[[nodiscard]] inline bool is_server(Subject subject) {
  return subject == Subject::llama_server || subject == Subject::ollama;
}
/// "llama.cpp", "MLX-LM", "llama-server", "Ollama": what the reports call it.
[[nodiscard]] std::string_view subject_name(Subject subject);

/// What is measured and in what order. Valid once `check_bench` let it pass. A plain value.
struct BenchSettings {
  Subject subject = Subject::llama_bench;
  int port = 0;                                      ///< on which a server listens in the guest
  std::string prompts = "512", generations = "128";  ///< llama-bench's -p and -n: whole numbers with commas; "0" for none
  int repetitions = 10;                              ///< of each test and arm, over all rounds
  int rounds = 2;                                    ///< each arm's repetitions are spread over so many runs
  bool arm_by_arm = false;                           ///< true: a a b b, one arm after another; false: a b a b
  bool warm_up = true;                               ///< llama-bench's own, before each test
  std::vector<std::string> extra;                    ///< further words for the program, the same for every arm
};

/// Throws Error "bench-settings" (usage): numbers that are none, nothing to measure, or a word in `extra` that would decide
/// what this program decides.
void check_bench(const BenchSettings& settings);

/// The port of "http://127.0.0.1:8080". Throws Error "bench-target" (usage): servers are asked inside the guest, nowhere else.
[[nodiscard]] int target_port(std::string_view url);

/// One start of what is measured.
struct BenchRun {
  Role role = Role::stock;
  int round = 1;  ///< from 1
  int repetitions = 1;
  [[nodiscard]] std::string name() const;  ///< "stock-1": its files are stock-1.json, stock-1.stderr, stock-1.status …
  bool operator==(const BenchRun&) const = default;
};

/// All runs in the order in which they are made. A round without a repetition left is no run.
[[nodiscard]] std::vector<BenchRun> bench_runs(const BenchSettings& settings, const std::vector<Role>& roles);

/// The program's words, without the program itself. The CPU arm of llama.cpp gets `-dev none -ngl 0`: with `-ngl 0` alone, large
/// batches still go to the GPU. Ollama is told in each request instead.
[[nodiscard]] std::vector<std::string> bench_words(const BenchSettings& settings, const BenchRun& run, const std::string& model);

/// The longest silence that a run may keep before its next test is out: the repetitions, one for the warm-up, one for loading,
/// each `repetition` long. llama-bench prints a test when all of its repetitions are done, MLX-LM's harness at its very end.
[[nodiscard]] sys::Milliseconds silence_limit(const BenchRun& run, sys::Milliseconds repetition);
/// How many tests a run prints.
[[nodiscard]] int test_count(const BenchSettings& settings);

/// The words for a short text that depends on nothing but model and arithmetic: llama-cli's, or those of the MLX-LM harness.
[[nodiscard]] std::vector<std::string> text_words(Subject subject, const std::string& model, const std::string& prompt, int tokens,
                                                  Role role);

/// Two greedy continuations, compared word by word.
struct Agreement {
  std::size_t words = 0;   ///< of the longer one
  std::size_t common = 0;  ///< words until the first that differs
  /// 1 for the same text, 0 when already the first word differs or one side said nothing.
  [[nodiscard]] double share() const { return words == 0 ? 0 : static_cast<double>(common) / static_cast<double>(words); }
};
[[nodiscard]] Agreement agreement(std::string_view a, std::string_view b);

/// The lines of `env` that may change a measurement: GGML_*, LLAMA_*, DYLD_*, MTL_*, METAL_*, LUME*. Sorted.
[[nodiscard]] std::vector<std::string> relevant_variables(std::string_view env_text);
/// Those of them that a stock process must not have.
[[nodiscard]] std::vector<std::string> forbidden_in_stock(const std::vector<std::string>& variables);

/// The table of the command's end: a line for each test, a column for each arm, the two ratios, and what needs a word.
[[nodiscard]] std::string bench_table(const Report& report);

}  // namespace lumelift
