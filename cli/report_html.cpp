#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "cli/console.hpp"
#include "cli/report.hpp"
#include "host/sys/error.hpp"

namespace lumelift {
namespace {

constexpr Role order[] = {Role::stock, Role::unlocked, Role::cpu, Role::host};
constexpr double bar_height = 44;        ///< CSS pixels
constexpr std::size_t dot_limit = 2000;  ///< per bar; a page with more is no use to anyone

/// For element content and for quoted attributes alike.
std::string html(std::string_view text) {
  std::string escaped;
  for (const char c : cleaned(text)) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

std::string_view heading(Role role) {
  switch (role) {
    case Role::stock:
      return "stock guest";
    case Role::unlocked:
      return "unlocked guest";
    case Role::cpu:
      return "guest CPU";
    case Role::host:
      return "bare-metal host";
    case Role::unknown:
      break;
  }
  return "unknown";
}

/// Where a rate lies on the horizontal axis, in per cent of its width. Linear from zero, so that lengths compare; where the
/// shortest bar would be under a twentieth of the longest, logarithmic, so that its samples can be seen at all.
class Scale {
 public:
  explicit Scale(const TestReport& test) {
    double least = 0, most = 0, widest = 0;
    for (const auto& [role, cell] : test.cells) {
      widest = std::max(widest, cell.summary.max);
      most = std::max(most, cell.summary.median);
      least = least > 0 ? std::min(least, cell.summary.median) : cell.summary.median;
      floor_ = floor_ > 0 ? std::min(floor_, cell.summary.min) : cell.summary.min;
    }
    logarithmic_ = most > 20 * least;
    top_ = widest * 1.02;
    floor_ = logarithmic_ ? std::pow(10.0, std::floor(std::log10(floor_))) : 0;
  }

  [[nodiscard]] bool logarithmic() const { return logarithmic_; }

  [[nodiscard]] double at(double rate) const {
    return 100 * (logarithmic_ ? std::log(rate / floor_) / std::log(top_ / floor_) : rate / top_);
  }

  [[nodiscard]] std::vector<double> ticks() const {
    std::vector<double> marks;
    if (logarithmic_) {
      const int powers = static_cast<int>(std::floor(std::log10(top_ * 1.0001 / floor_)));
      for (int i = 0; i <= powers; ++i) marks.push_back(floor_ * std::pow(10.0, i));
      return marks;
    }
    const auto unit = std::pow(10.0, std::floor(std::log10(top_ / 2)));
    const auto step = top_ / unit > 10 ? 5 * unit : top_ / unit > 4 ? 2 * unit : unit;
    for (int i = 0; i * step <= top_; ++i) marks.push_back(i * step);
    return marks;
  }

 private:
  double floor_ = 0, top_ = 1;
  bool logarithmic_ = false;
};

std::string series_text(const TestReport& test, Role role, const std::string& unit) {
  const auto& summary = test.cells.at(role).summary;
  return fmt::format("{}: median {} {}, from {} to {}, {} samples, spread {}", heading(role), rate_figure(summary.median), unit,
                     rate_figure(summary.min), rate_figure(summary.max), summary.count, percent(summary.spread()));
}

std::string dots(const Cell& cell, const Scale& scale) {
  std::string text;
  const auto count = cell.rates.size();
  const auto stride = (count + dot_limit - 1) / dot_limit;
  for (std::size_t i = 0; i < count; i += stride) {
    // From top to bottom in run order, so that a drift shows as a slope.
    const auto y = count == 1 ? bar_height / 2 : 5 + (bar_height - 10) * static_cast<double>(i) / static_cast<double>(count - 1);
    text += fmt::format("<circle class=\"dot\" cx=\"{:.3f}%\" cy=\"{:.1f}\" r=\"3\"><title>sample {}: {}</title></circle>",
                        scale.at(cell.rates[i]), y, i + 1, rate_figure(cell.rates[i]));
  }
  return text;
}

std::string bar(const TestReport& test, Role role, const std::string& unit, const Scale& scale) {
  const auto& cell = test.cells.at(role);
  const auto& summary = cell.summary;
  const auto* mark = cell.rejected  ? " <span class=\"rejected\">not used: spread</span>"
                     : cell.flagged ? " <span class=\"flag\">! spread</span>"
                                    : " spread";
  const auto y = bar_height / 2;
  auto text = fmt::format("<div class=\"bar {}\"><p><span class=\"name\">{}</span><span>{} {},{} {:.1f}&nbsp;%</span></p>\n",
                          role_name(role), heading(role), rate_figure(summary.median), unit, mark, summary.spread() * 100);
  text += fmt::format("<svg role=\"img\" tabindex=\"0\" height=\"{}\" aria-label=\"{}\">", bar_height, html(series_text(test, role, unit)));
  text += fmt::format("<rect class=\"body\" x=\"0\" y=\"8\" width=\"{:.3f}%\" height=\"{}\"/>", scale.at(summary.median), bar_height - 16);
  text += fmt::format("<line class=\"range\" x1=\"{:.3f}%\" x2=\"{:.3f}%\" y1=\"{}\" y2=\"{}\"/>", scale.at(summary.min),
                      scale.at(summary.max), y, y);
  text +=
      fmt::format("<line class=\"middle\" x1=\"{0:.3f}%\" x2=\"{0:.3f}%\" y1=\"4\" y2=\"{1}\"/>", scale.at(summary.median), bar_height - 4);
  return text + dots(cell, scale) + "</svg></div>\n";
}

std::string axis(const Scale& scale) {
  std::string text = "<div class=\"axis\" aria-hidden=\"true\"><svg height=\"24\">";
  for (const auto mark : scale.ticks()) {
    const auto x = scale.at(mark);
    text += fmt::format(
        "<line x1=\"{0:.3f}%\" x2=\"{0:.3f}%\" y1=\"0\" y2=\"6\"/><text x=\"{0:.3f}%\" y=\"20\" "
        "text-anchor=\"{1}\">{2}</text>",
        x,
        x < 4    ? "start"
        : x > 96 ? "end"
                 : "middle",
        figure(mark));
  }
  return text + "</svg></div>\n";
}

std::string chart(const TestReport& test, const std::string& unit, const std::string& id) {
  const Scale scale(test);
  std::size_t longest = 0;
  auto text = fmt::format("<figure aria-labelledby=\"{}\"><figcaption><h3 id=\"{}\">{}</h3><span class=\"quiet\">{}, {}", id, id,
                          html(test.test), unit, scale.logarithmic() ? "logarithmic scale: lengths do not compare" : "scale from zero");
  for (const auto& [role, cell] : test.cells) longest = std::max(longest, cell.rates.size());
  if (longest > dot_limit) text += fmt::format("; of {} samples every {}th is drawn", longest, (longest + dot_limit - 1) / dot_limit);
  text += "</span></figcaption>\n";
  for (const auto role : order) {
    if (test.cells.contains(role)) text += bar(test, role, unit, scale);
  }
  return text + axis(scale) + "</figure>\n";
}

std::string_view verdict_class(Verdict verdict) {
  switch (verdict) {
    case Verdict::faster:
      return "faster";
    case Verdict::slower:
      return "slower";
    case Verdict::unchanged:
      return "unchanged";
    case Verdict::inconclusive:
      break;
  }
  return "inconclusive";
}

std::string cards(const WorkloadReport& entry) {
  std::string text;
  for (const auto& test : entry.tests) {
    for (const auto& against : test.comparisons) {
      const auto& ratio = against.ratio;
      if (against.against == Role::host) {
        text += fmt::format("<li>{}<b>{} %</b>of bare metal<br><span class=\"quiet\">95 % interval {:.2f} to {:.2f} %</span></li>\n",
                            html(test.test), figure(ratio.value * 100), ratio.low * 100, ratio.high * 100);
      } else {
        text += fmt::format(
            "<li>{}<b>{}×</b>the {}: <span class=\"{}\">{}</span><br><span class=\"quiet\">95 % interval {:.4g} to "
            "{:.4g}</span></li>\n",
            html(test.test), figure(ratio.value), heading(against.against), verdict_class(against.verdict), verdict_text(against.verdict),
            ratio.low, ratio.high);
      }
    }
  }
  return text.empty() ? text : "<ul class=\"cards\" aria-label=\"The unlocked guest compared\">\n" + text + "</ul>\n";
}

std::string figures_table(const WorkloadReport& entry) {
  auto text = fmt::format(
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Figures of {0} as a table\">"
      "<table><caption>The same figures as a table, {1}</caption>\n<thead><tr><th scope=\"col\">test</th>"
      "<th scope=\"col\" class=\"text\">side</th><th scope=\"col\">median</th><th scope=\"col\">min</th>"
      "<th scope=\"col\">max</th><th scope=\"col\">spread</th><th scope=\"col\">samples</th>"
      "<th scope=\"col\">unlocked is</th></tr></thead>\n<tbody>\n",
      html(entry.name), entry.unit);
  for (const auto& test : entry.tests) {
    for (const auto role : order) {
      const auto cell = test.cells.find(role);
      if (cell == test.cells.end()) continue;
      const auto& summary = cell->second.summary;
      const auto* against = test.against(role);
      text += fmt::format(
          "<tr><th scope=\"row\">{}</th><td class=\"side\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}{}</td><td>{}</td>"
          "<td>{}</td></tr>\n",
          html(test.test), heading(role), rate_figure(summary.median), rate_figure(summary.min), rate_figure(summary.max),
          percent(summary.spread()),
          cell->second.rejected  ? " not used"
          : cell->second.flagged ? " !"
                                 : "",
          summary.count, against ? figure(against->ratio.value) + "×" : std::string());
    }
  }
  return text + "</tbody></table></div>\n";
}

std::string sides_table(const WorkloadReport& entry) {
  auto text = fmt::format(
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Where the figures of {} come from\">"
      "<table><caption>Where they come from</caption>\n<thead><tr><th scope=\"col\">side</th>"
      "<th scope=\"col\" class=\"text\">GPU answers (banner)</th><th scope=\"col\" class=\"text\">GPU</th>"
      "<th scope=\"col\" class=\"text\">files</th>"
      "</tr></thead>\n<tbody>\n",
      html(entry.name));
  for (const auto role : order) {
    const auto found = entry.sides.find(role);
    if (found == entry.sides.end()) continue;
    const auto& side = found->second;
    auto files = html(side.sources.front());
    if (side.sources.size() > 1) files += fmt::format(" and {} more", side.sources.size() - 1);
    text += fmt::format(
        "<tr><th scope=\"row\">{}</th><td class=\"text\">{}</td><td class=\"text\">{}</td><td class=\"text\">{}</td></tr>\n", heading(role),
        side.banner && side.banner->present() ? html(side.banner->summary()) : "not recorded", html(side.gpu), files);
  }
  return text + "</tbody></table></div>\n";
}

std::string findings_list(const Report& report) {
  if (report.findings.empty()) return "<p>Nothing was refused or flagged.</p>";
  std::string text = "<section aria-labelledby=\"findings\"><h2 id=\"findings\">What to know first</h2>\n<ul class=\"findings\">\n";
  for (const auto& finding : report.findings) {
    const auto* name = finding.level == Level::refused ? "refused" : finding.level == Level::flagged ? "flagged" : "note";
    text += fmt::format("<li class=\"{}\"><b>{}</b> {}: {}</li>\n", name, name, html(finding.subject), html(finding.text));
  }
  return text + "</ul></section>";
}

std::string workload_section(const WorkloadReport& entry, std::size_t number) {
  const auto& side = entry.sides.begin()->second;
  const auto id = fmt::format("workload-{}", number);
  auto text = fmt::format("<section aria-labelledby=\"{}\"><h2 id=\"{}\">{}</h2>\n<p class=\"quiet\">{}build {}</p>\n", id, id,
                          html(entry.name), side.chip.empty() ? "" : html(side.chip) + ", ", html(side.build));
  text += cards(entry);
  for (std::size_t i = 0; i < entry.tests.size(); ++i) {
    text += chart(entry.tests[i], entry.unit, fmt::format("{}-test-{}", id, i + 1));
  }
  return text + figures_table(entry) + sides_table(entry) + "</section>\n";
}

/// Puts the texts into their slots in one pass over the skeleton: a text that happens to hold a slot's name stays text.
std::string filled(std::string_view skeleton, std::map<std::string_view, std::string> texts) {
  std::string page;
  std::set<std::string_view> used;
  for (std::size_t at; (at = skeleton.find("{{")) != std::string_view::npos;) {
    const auto end = skeleton.find("}}", at);
    const auto text = end == std::string_view::npos ? texts.end() : texts.find(skeleton.substr(at + 2, end - at - 2));
    page += skeleton.substr(0, text == texts.end() ? at + 2 : at);
    if (text != texts.end()) {
      page += text->second;
      used.insert(text->first);
    }
    skeleton.remove_prefix(text == texts.end() ? at + 2 : end + 2);
  }
  for (const auto& [slot, text] : texts) {
    if (used.contains(slot)) continue;
    throw Error(ErrorKind::usage, "report-skeleton", fmt::format("the page skeleton has no {{{{{}}}}}", slot))
        .fix("put back templates/report.html as it was installed");
  }
  return page.append(skeleton);
}

}  // namespace

std::string render_html(const Report& report, std::string_view skeleton) {
  std::string workloads;
  for (std::size_t i = 0; i < report.workloads.size(); ++i) workloads += workload_section(report.workloads[i], i + 1);
  const auto count = report.workloads.size();
  const auto summary = fmt::format(
      "{} {}. The unlocked guest is compared with the stock guest, the guest's CPU and bare metal, as far as they were "
      "measured. The guest's GPU is a paravirtual one.",
      count, count == 1 ? "workload" : "workloads");
  const auto method = fmt::format(
      "A bar ends at the median; the thin line is the range; each dot is one sample, from top to bottom in the order "
      "measured. Ratios are of medians; their 95 % intervals are percentile bootstraps with 10,000 resamples and a "
      "fixed seed. Spread is (max - min) / median: above {} it is flagged, above {} the series is not used. A change "
      "whose interval lies within {} of 1 is called no material change.",
      percent(report.limits.flag), percent(report.limits.reject), percent(report.limits.material));
  return filled(skeleton, {{"title", "Metal in the guest: benchmark report"},
                           {"summary", summary},
                           {"method", method},
                           {"findings", findings_list(report)},
                           {"workloads", workloads}});
}

}  // namespace lumelift
