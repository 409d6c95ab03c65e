#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/samples.hpp"
#include "cli/statistics.hpp"

namespace lumelift {

/// Where a report draws its lines; fractions.
struct Limits {
  double flag = 0.05;      ///< spread above which a series is marked
  double reject = 0.5;     ///< spread above which a series is not used at all
  double material = 0.05;  ///< smallest change of a median that is worth a word
  bool operator==(const Limits&) const = default;
};

enum class Level { refused, flagged, noted };

/// Something that the reader of the figures has to know. Refused findings make `lumelift report` exit with 5.
struct Finding {
  Level level = Level::noted;
  std::string subject;  ///< "tg128, stock" or a file
  std::string text;
  bool operator==(const Finding&) const = default;
};

/// One side's series of one test.
struct Cell {
  Summary summary;
  std::vector<double> rates;  ///< run order, several runs one after another
  bool flagged = false;
  bool rejected = false;
};

/// The unlocked guest against one other side.
struct Comparison {
  Role against = Role::stock;
  Ratio ratio;
  Verdict verdict = Verdict::inconclusive;
};

struct TestReport {
  std::string test;
  std::map<Role, Cell> cells;
  std::vector<Comparison> comparisons;  ///< stock, cpu, host: as far as they are there
  /// Unlocked against `against`, if it could be compared.
  [[nodiscard]] const Comparison* against(Role role) const;
};

/// What the files of one side had in common.
struct Side {
  std::string build, chip, gpu, platform;
  std::optional<Banner> banner;
  std::vector<std::string> sources;
};

struct WorkloadReport {
  std::string name;  ///< "tinyllama-1.1b-chat-v1.0.Q4_K_M (llama.cpp)"
  std::string unit = "tokens/s";
  std::map<Role, Side> sides;
  std::vector<TestReport> tests;
};

/// All that a set of runs shows. A value: it looks nothing up, and equal arms give equal reports.
struct Report {
  Limits limits;
  std::vector<WorkloadReport> workloads;
  std::vector<Finding> findings;

  [[nodiscard]] bool refused_something() const;
};

/// Compares what may be compared. Runs belong together by program and model; several runs of one side are pooled when build,
/// settings and banner are equal. The unlocked side is the measure: a side with another build, other settings, another model
/// under the same name, another chip, or without one of the tests is refused with the reason. A run that is there twice is counted
/// once; under two roles it is refused, unless --arm says which it is. Stock and unlocked whose banners
/// show the same answers are refused as a pair: one of them is not what it is called.
[[nodiscard]] Report make_report(const std::vector<Arm>& arms, const Limits& limits);

/// A rate as every rendering prints it: six significant digits, which is what llama-bench gives for one sample, and from 10
/// on four decimals, because the median of an even number of samples lies half a step between two of them (431.8625 between
/// 431.411 and 432.314 needs the seventh digit). Trailing zeros are dropped; it is the form of the published tables.
[[nodiscard]] std::string rate_figure(double rate);
/// A ratio or percentage: four decimals, as published; below 0.1 six significant digits.
[[nodiscard]] std::string figure(double value);
/// A fraction as per cent with one decimal: "32.8 %".
[[nodiscard]] std::string percent(double fraction);

/// Foreign text made fit for Markdown: nothing in it starts markup, ends a table cell, or calls a person.
[[nodiscard]] std::string markdown_text(std::string_view text);

/// Renderings. Text from files is cleaned or escaped for the format; each ends with a newline.
[[nodiscard]] std::string render_text(const Report& report);
[[nodiscard]] std::string render_markdown(const Report& report);
[[nodiscard]] std::string render_csv(const Report& report);
[[nodiscard]] std::string render_json(const Report& report);
/// `skeleton` is templates/report.html; throws Error "report-skeleton" (usage) if a slot is missing in it.
[[nodiscard]] std::string render_html(const Report& report, std::string_view skeleton);

}  // namespace lumelift
