#include <fmt/format.h>

#include "cli/console.hpp"
#include "cli/report.hpp"

namespace lumelift {
namespace {

constexpr Role columns[] = {Role::stock, Role::unlocked, Role::cpu, Role::host};

std::string_view heading(Role role) {
  switch (role) {
    case Role::stock:
      return "stock";
    case Role::unlocked:
      return "unlocked";
    case Role::cpu:
      return "guest CPU";
    case Role::host:
      return "host";
    case Role::unknown:
      break;
  }
  return "?";
}

std::string level_name(Level level) {
  return level == Level::refused ? "refused" : level == Level::flagged ? "flagged" : "note";
}

std::string interval(const Comparison& entry) {
  return fmt::format("[{:.4g}, {:.4g}]", entry.ratio.low, entry.ratio.high);
}

std::string cell_text(const TestReport& test, Role role) {
  const auto found = test.cells.find(role);
  if (found == test.cells.end()) return "-";
  const auto& cell = found->second;
  return rate_figure(cell.summary.median) + (cell.rejected ? " ✗" : cell.flagged ? " !" : "");
}

/// One line for the arms of a workload: what the reader needs in order to believe that they are comparable.
std::string provenance(const WorkloadReport& entry) {
  std::vector<std::vector<std::string>> rows;
  for (const auto role : columns) {
    const auto side = entry.sides.find(role);
    if (side == entry.sides.end()) continue;
    const auto& facts = side->second;
    auto files = cleaned(facts.sources.front());
    if (facts.sources.size() > 1) files += fmt::format(" and {} more", facts.sources.size() - 1);
    rows.push_back(
        {"  " + std::string(heading(role)), facts.banner && facts.banner->present() ? facts.banner->summary() : "no banner", files});
  }
  return table(rows);
}

std::string where(const WorkloadReport& entry) {
  const auto& side = entry.sides.begin()->second;
  return (side.chip.empty() ? std::string() : cleaned(side.chip) + ", ") + "build " + cleaned(side.build);
}

std::vector<std::vector<std::string>> figures_table(const WorkloadReport& entry) {
  std::vector<std::vector<std::string>> rows{{""}};
  for (const auto role : columns) {
    if (!entry.sides.contains(role)) continue;
    rows[0].emplace_back(heading(role));
    rows[0].emplace_back("spread");
  }
  for (const auto& test : entry.tests) {
    std::vector<std::string> row{"  " + cleaned(test.test)};
    for (const auto role : columns) {
      if (!entry.sides.contains(role)) continue;
      const auto cell = test.cells.find(role);
      row.push_back(cell_text(test, role));
      row.push_back(cell == test.cells.end() ? "" : percent(cell->second.summary.spread()));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string comparisons(const WorkloadReport& entry) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& test : entry.tests) {
    for (const auto& against : test.comparisons) {
      if (against.against == Role::host) {
        rows.push_back({"  " + cleaned(test.test), "of bare metal", figure(against.ratio.value * 100) + " %",
                        fmt::format("[{:.2f}, {:.2f}]", against.ratio.low * 100, against.ratio.high * 100), ""});
      } else {
        rows.push_back({"  " + cleaned(test.test), fmt::format("unlocked / {}", heading(against.against)),
                        figure(against.ratio.value) + "×", interval(against), std::string(verdict_text(against.verdict))});
      }
    }
  }
  return rows.empty() ? std::string() : table(rows, {2});
}

std::string findings_text(const Report& report) {
  std::string text;
  for (const auto& finding : report.findings) {
    const char* mark = finding.level == Level::refused ? "✗" : finding.level == Level::flagged ? "!" : "·";
    text += fmt::format("{} {}: {}\n", mark, cleaned(finding.subject), cleaned(finding.text));
  }
  return text;
}

std::string markdown_row(const TestReport& test, const WorkloadReport& entry) {
  std::string text = fmt::format("| {} ", markdown_text(test.test));
  for (const auto role : columns) {
    if (!entry.sides.contains(role)) continue;
    const auto cell = test.cells.find(role);
    if (cell == test.cells.end()) {
      text += "| ";
      continue;
    }
    const auto& summary = cell->second.summary;
    text += fmt::format("| {}{} ({} to {}) ", rate_figure(summary.median), cell->second.flagged ? " ⚠" : "", rate_figure(summary.min),
                        rate_figure(summary.max));
  }
  for (const auto role : {Role::stock, Role::cpu}) {
    if (!entry.sides.contains(role)) continue;
    const auto* against = test.against(role);
    text += against ? fmt::format("| {}× {} {} ", figure(against->ratio.value), markdown_text(interval(*against)),
                                  verdict_text(against->verdict))
                    : "| ";
  }
  if (entry.sides.contains(Role::host)) {
    const auto* host = test.against(Role::host);
    text += host ? fmt::format("| {} % ", figure(host->ratio.value * 100)) : "| ";
  }
  return text + "|\n";
}

}  // namespace

std::string markdown_text(std::string_view text) {
  std::string escaped;
  for (const char c : cleaned(text)) {
    if (c == '\n') {
      escaped += ' ';
      continue;
    }
    if (std::string_view("\\`*_{}[]<>|#~@").find(c) != std::string_view::npos) {
      // An at-sign would call somebody; an angle bracket would start HTML.
      if (c == '<')
        escaped += "&lt;";
      else if (c == '>')
        escaped += "&gt;";
      else if (c == '@')
        escaped += "&#64;";
      else
        escaped += std::string("\\") + c;
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string render_text(const Report& report) {
  std::string text;
  for (const auto& entry : report.workloads) {
    text += fmt::format("{}, median {}\n{}\n\n", cleaned(entry.name), entry.unit, where(entry));
    const auto rows = figures_table(entry);
    std::vector<std::size_t> right;
    for (std::size_t i = 1; i < rows[0].size(); ++i) right.push_back(i);
    text += table(rows, right);
    if (const auto compared = comparisons(entry); !compared.empty()) text += "\n" + compared;
    text += "\n" + provenance(entry) + "\n";
  }
  text += findings_text(report);
  if (!report.workloads.empty()) text += "Ratios are of medians, with 95 % bootstrap intervals.\n";
  return text;
}

std::string render_markdown(const Report& report) {
  std::string text;
  for (const auto& entry : report.workloads) {
    text += fmt::format("### {}\n\n{}; median {} with the range of all samples.\n\n| test ", markdown_text(entry.name),
                        markdown_text(where(entry)), entry.unit);
    std::string rule = "| --- ";
    const auto column = [&](std::string_view title) {
      text += fmt::format("| {} ", title);
      rule += "| ---: ";
    };
    for (const auto role : columns) {
      if (entry.sides.contains(role)) column(heading(role));
    }
    if (entry.sides.contains(Role::stock)) column("unlocked / stock");
    if (entry.sides.contains(Role::cpu)) column("unlocked / guest CPU");
    if (entry.sides.contains(Role::host)) column("of bare metal");
    text += "|\n" + rule + "|\n";
    for (const auto& test : entry.tests) text += markdown_row(test, entry);
    text += "\n";
  }
  for (const auto& finding : report.findings) {
    text += fmt::format("- {}: {}: {}\n", level_name(finding.level), markdown_text(finding.subject), markdown_text(finding.text));
  }
  if (!report.workloads.empty()) text += "\nRatios are of medians, with 95 % bootstrap intervals. ⚠ marks a wide spread.\n";
  return text;
}

}  // namespace lumelift
