#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/banner.hpp"

namespace lumelift {

/// Which side of the comparison a run is on.
enum class Role { host, stock, unlocked, cpu, unknown };

/// "host", "stock", "unlocked", "cpu", "unknown".
[[nodiscard]] std::string_view role_name(Role role);
/// The inverse, for `--arm ROLE=FILE`; nothing for other words.
[[nodiscard]] std::optional<Role> role_of(std::string_view name);

/// One test of one run: the samples, and every setting that they were taken with.
struct Row {
  std::string test;                             ///< "pp512", "tg128", "pp512+tg128 @ d4096"
  std::vector<double> rates;                    ///< tokens per second, in run order, never empty in an arm without refusals
  std::map<std::string, std::string> settings;  ///< key as in the file, value as JSON text; no results, names or times
  bool operator==(const Row&) const = default;
};

/// One run of one benchmark program: what its files say, and why it may not be used. A plain value; the live benchmark
/// fills the same fields that the parsers fill.
struct Arm {
  Role role = Role::unknown;
  std::string role_from;   ///< what the role was taken from: "file name", "banner", "--arm", "settings"
  std::string source;      ///< the file, as a reader should see it
  std::string tool;        ///< "llama.cpp", "MLX-LM", "llama-server", "Ollama"
  std::string model;       ///< label: the file's name without folders and suffix, or the last part of the model's id
  std::string kind;        ///< llama.cpp's own words for the model's type and quantisation; empty elsewhere
  std::string build;       ///< what must be equal for two arms to be comparable: commit and number, or versions
  std::string chip;        ///< "Apple M1 Ultra", without "(Virtual)"; empty where the file does not say
  std::string gpu;         ///< "Apple Paravirtual device"
  std::string platform;    ///< operating system where the file says it
  std::string first_time;  ///< start of the first row, UTC; empty where the file does not say
  bool virtual_cpu = false;
  std::vector<Row> rows;
  std::string identity;               ///< the same for each copy of this run's figures, also for a sanitised one; empty: not known
  std::optional<Banner> banner;       ///< from the standard error beside it
  bool receipt = false;               ///< the library's receipt beside it shows raised answers
  std::optional<int> status;          ///< exit status of the program, where recorded
  std::vector<std::string> refusals;  ///< reasons; an arm with one is not used
  std::vector<std::string> notes;
};

/// Reads the standard output of llama-bench (`-o json`, `-o jsonl`, any version, by key name), the JSON of an MLX-LM harness, or
/// what `bench --target` keeps of a server's replies. Nothing where the text is JSON but no benchmark at all. Damage (truncated, edited,
/// impossible values, missing keys) never throws: it becomes a refusal of the arm. `source` is only copied.
///
/// Rates come from `samples_ns`, the primary measurement, and are kept to six significant digits, which is how llama-bench
/// itself prints `samples_ts`; so anyone gets the same median from either array, by hand. Where both arrays and the averages
/// exist they must agree. `stddev_ns` is never read: it wraps around.
[[nodiscard]] std::optional<Arm> parse_arm(std::string_view text, std::string source);

}  // namespace lumelift
