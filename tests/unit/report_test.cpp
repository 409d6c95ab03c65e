#include "cli/report.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/arms.hpp"
#include "host/sys/error.hpp"
#include "host/sys/file.hpp"
#include "tests/unit/golden.hpp"
#include "tests/unit/scratch.hpp"

using namespace lumelift;

namespace {

const std::filesystem::path evidence = LUMELIFT_SOURCE_DIR "/tests/data/evidence/m1-ultra-tinyllama";

Report published() {
  return make_report(load_arms({{evidence, std::nullopt}}).arms, {});
}

std::vector<std::vector<std::string>> fields(const std::string& csv) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream in(csv);
  for (std::string line; std::getline(in, line);) {
    auto& row = rows.emplace_back();
    std::istringstream cells(line + ",");
    for (std::string cell; std::getline(cells, cell, ',');) row.push_back(cell);
  }
  return rows;
}

/// A made-up arm with one row per (test, rates).
Arm arm(Role role, std::vector<std::pair<std::string, std::vector<double>>> rows) {
  Arm made;
  made.role = role;
  made.source = std::string(role_name(role)) + ".json";
  made.tool = "llama.cpp";
  made.model = "m";
  made.build = "abc (1)";
  made.chip = "Apple M4";
  for (auto& [test, rates] : rows) made.rows.push_back({test, std::move(rates), {{"n_batch", "2048"}, {"flash_attn", "-1"}}});
  return made;
}

Banner banner(int family, bool fast) {
  Banner made;
  made.device = "Apple Paravirtual device";
  made.apple = family;
  made.simdgroup_reduction = made.simdgroup_matrix = made.bfloat = fast;
  return made;
}

const Finding* finding(const Report& report, std::string_view part) {
  for (const auto& entry : report.findings) {
    if (entry.text.find(part) != std::string::npos) return &entry;
  }
  return nullptr;
}

const std::vector<double> slow{10, 10.1, 10.2}, fast{100, 101, 102};

}  // namespace

TEST_CASE("the report on the published files has every published figure") {
  const auto ours = fields(render_csv(published()));
  const auto theirs = fields(sys::read_file(evidence / "results.csv", 1 << 20));
  REQUIRE(theirs.size() == 5);
  REQUIRE(ours.size() == theirs.size());
  for (std::size_t row = 1; row < theirs.size(); ++row) {
    for (std::size_t column = 1; column < theirs[row].size(); ++column) CHECK(ours[row][column] == theirs[row][column]);
  }
}

TEST_CASE("and says what the publication did not") {
  const auto report = published();
  const auto* stock = finding(report, "32.8 %");
  REQUIRE(stock);
  CHECK(stock->level == Level::flagged);
  CHECK(stock->text.find("sample 10 of 10 (8.63801)") != std::string::npos);
  CHECK(finding(report, "spread 11.0 %"));
  CHECK(finding(report, "claims Apple9, the physical GPU is Apple7"));
  CHECK_FALSE(report.refused_something());
  for (const auto& test : report.workloads.at(1).tests) CHECK(test.against(Role::stock)->verdict == Verdict::unchanged);
}

TEST_CASE("renderings of the published files") {
  const auto report = published();
  check_golden("report/published.txt", render_text(report));
  check_golden("report/published.md", render_markdown(report));
  check_golden("report/published.csv", render_csv(report));
  check_golden("report/published.json", nlohmann::json::parse(render_json(report)).dump(1) + "\n");
}

TEST_CASE("medians from samples_ns and from samples_ts alone are the same to the last digit") {
  auto text = sys::read_file(evidence / "tiny-stock-minimal.json", 1 << 20);
  const auto both = parse_arm(text, "x");
  for (std::size_t at; (at = text.find("samples_ns")) != std::string::npos;) text.replace(at, 10, "unread_key");
  const auto printed = parse_arm(text, "x");
  REQUIRE(printed->refusals.empty());
  for (std::size_t i = 0; i < 2; ++i) CHECK(both->rows[i].rates == printed->rows[i].rates);
}

TEST_CASE("an arm that cannot be compared is refused with the reason, and the others stay") {
  const auto refused = [](auto change) {
    auto other = arm(Role::stock, {{"pp512", slow}});
    change(other);
    const auto report = make_report({arm(Role::unlocked, {{"pp512", fast}}), arm(Role::host, {{"pp512", fast}}), other}, {});
    REQUIRE(report.refused_something());
    REQUIRE(report.workloads.size() == 1);
    CHECK_FALSE(report.workloads[0].tests[0].against(Role::stock));
    CHECK(report.workloads[0].tests[0].against(Role::host));
    return report.findings.front().text;
  };
  CHECK(refused([](Arm& a) { a.build = "abd (2)"; }).find("build abd (2), not abc (1)") != std::string::npos);
  CHECK(refused([](Arm& a) { a.kind = "llama 3B"; }).find("model type") != std::string::npos);
  CHECK(refused([](Arm& a) { a.chip = "Apple M1"; }).find("measured on Apple M1, not Apple M4") != std::string::npos);
  CHECK(refused([](Arm& a) { a.rows[0].settings["flash_attn"] = "1"; }).find("flash_attn is 1, not -1") != std::string::npos);
  CHECK(refused([](Arm& a) { a.refusals.push_back("the run ended with exit status 134"); }).find("134") != std::string::npos);
}

TEST_CASE("the host may have other threads, the CPU arm no devices; the stock guest may not") {
  auto unlocked = arm(Role::unlocked, {{"tg128", fast}}), stock = arm(Role::stock, {{"tg128", slow}});
  auto host = arm(Role::host, {{"tg128", fast}}), cpu = arm(Role::cpu, {{"tg128", slow}});
  unlocked.rows[0].settings["n_threads"] = stock.rows[0].settings["n_threads"] = cpu.rows[0].settings["n_threads"] = "8";
  host.rows[0].settings["n_threads"] = "16";
  unlocked.rows[0].settings["devices"] = "\"auto\"";
  cpu.rows[0].settings["devices"] = "\"none\"";
  CHECK(make_report({unlocked, stock, host, cpu}, {}).workloads[0].tests[0].comparisons.size() == 3);
  stock.rows[0].settings["n_threads"] = "16";
  CHECK(finding(make_report({unlocked, stock}, {}), "n_threads is 16, not 8"));
}

TEST_CASE("an arm that lacks a test is refused") {
  const auto report = make_report({arm(Role::unlocked, {{"pp512", fast}, {"tg128", fast}}), arm(Role::stock, {{"pp512", slow}})}, {});
  CHECK(finding(report, "missing from the stock arm of m (llama.cpp): tg128"));
  CHECK_FALSE(report.workloads[0].tests[0].against(Role::stock));
}

TEST_CASE("a pair whose banners show the same answers is refused") {
  auto unlocked = arm(Role::unlocked, {{"pp512", fast}}), stock = arm(Role::stock, {{"pp512", slow}});
  unlocked.banner = stock.banner = banner(1005, false);
  const auto report = make_report({unlocked, stock}, {});
  CHECK(report.refused_something());
  CHECK(report.workloads.empty());
  CHECK(finding(report, "both banners show Apple5"));
  unlocked.banner = banner(1009, true);
  CHECK(make_report({unlocked, stock}, {}).workloads[0].tests[0].against(Role::stock));
}

TEST_CASE("runs of one side are pooled in order, unless they differ") {
  auto first = arm(Role::stock, {{"pp512", {10, 11}}}), second = arm(Role::stock, {{"pp512", {12}}});
  auto report = make_report({first, second}, {});
  CHECK(report.workloads[0].tests[0].cells.at(Role::stock).rates == std::vector<double>{10, 11, 12});
  second.banner = banner(1021, true);
  first.banner = banner(1005, false);
  report = make_report({first, second}, {});
  CHECK(report.workloads[0].tests[0].cells.at(Role::stock).rates == std::vector<double>{10, 11});
  CHECK(finding(report, "differs from stock.json: its banner shows Apple21"));
}

TEST_CASE("a run that is there twice is counted once, whatever it is called by and wherever it lies") {
  const auto stock = evidence / "tiny-stock-minimal.json", unlocked = evidence / "tiny-safe-shim-10x-final.json";
  const auto report = [](const std::vector<ArmInput>& inputs) { return make_report(load_arms(inputs).arms, {}); };
  const auto once = report({{stock, std::nullopt}, {unlocked, std::nullopt}});
  REQUIRE(once.workloads.size() == 1);
  const auto same_figures = [&](const Report& other) {
    REQUIRE(other.workloads.size() == 1);
    for (std::size_t i = 0; i < once.workloads[0].tests.size(); ++i) {
      const auto &mine = once.workloads[0].tests[i], &theirs = other.workloads.at(0).tests.at(i);
      CHECK(theirs.cells.at(Role::stock).rates == mine.cells.at(Role::stock).rates);
      CHECK(theirs.against(Role::stock)->ratio == mine.against(Role::stock)->ratio);
    }
    return finding(other, "counted once") != nullptr;
  };
  CHECK_FALSE(same_figures(once));
  CHECK(same_figures(report({{stock, std::nullopt}, {stock, std::nullopt}, {unlocked, std::nullopt}, {unlocked, std::nullopt}})));

  // In a bundle names were taken out of the copy; its samples are the same still.
  test::Scratch scratch;
  const auto folder = scratch.path() / "all";
  std::filesystem::create_directories(folder / "old");
  for (const auto& file : {stock, unlocked}) std::filesystem::copy(file, folder);
  auto text = test::slurp(stock);
  const auto at = text.find("model_filename");
  REQUIRE(at != std::string::npos);
  scratch.write("all/old/stock.json", text.insert(text.find(": \"", at) + 3, "/elsewhere/"));
  const auto found = report({{folder, std::nullopt}});
  CHECK(same_figures(found));
  CHECK(finding(found, "counted once")->text.find("old/stock.json") != std::string::npos);

  // Whoever says the side of a file in a folder means that file, not another one.
  std::filesystem::rename(folder / "tiny-stock-minimal.json", folder / "a.json");
  std::filesystem::remove_all(folder / "old");
  CHECK(report({{folder, std::nullopt}}).refused_something());
  const auto told = report({{folder, std::nullopt}, {folder / "a.json", Role::stock}});
  CHECK(same_figures(told));
  CHECK_FALSE(told.refused_something());
  CHECK(report({{stock, Role::stock}, {stock, Role::unlocked}}).refused_something());
}

TEST_CASE("tests in separate files of one side belong together") {
  const auto report = make_report({arm(Role::stock, {{"pp512", slow}}), arm(Role::stock, {{"tg128", slow}}),
                                   arm(Role::unlocked, {{"pp512", fast}}), arm(Role::unlocked, {{"tg128", fast}})},
                                  {});
  CHECK_FALSE(report.refused_something());
  CHECK(report.workloads[0].tests.size() == 2);
}

TEST_CASE("a spread above the limit rejects the series, not the whole report") {
  const auto report = make_report(
      {arm(Role::unlocked, {{"pp512", fast}, {"tg128", fast}}), arm(Role::stock, {{"pp512", {10, 20, 30}}, {"tg128", slow}})}, {});
  CHECK(report.refused_something());
  CHECK_FALSE(report.workloads[0].tests[0].against(Role::stock));
  CHECK(report.workloads[0].tests[1].against(Role::stock));
  CHECK(render_csv(report).find("pp512,tokens/s,,,101,,") != std::string::npos);
}

TEST_CASE("no change and a loss are outcomes") {
  const auto verdict = [](std::vector<double> unlocked) {
    return make_report({arm(Role::unlocked, {{"pp512", std::move(unlocked)}}), arm(Role::stock, {{"pp512", fast}})}, {})
        .workloads[0]
        .tests[0]
        .against(Role::stock)
        ->verdict;
  };
  CHECK(verdict({100.5, 101, 101.5}) == Verdict::unchanged);
  CHECK(verdict({50, 51, 52}) == Verdict::slower);
  CHECK(verdict({200, 201, 202}) == Verdict::faster);
}

TEST_CASE("a stock guest slower than its own CPU is said to be") {
  const auto report = make_report(
      {arm(Role::unlocked, {{"pp512", fast}}), arm(Role::stock, {{"pp512", slow}}), arm(Role::cpu, {{"pp512", {20, 20.1, 20.2}}})}, {});
  CHECK(finding(report, "slower than its CPU"));
}

TEST_CASE("text from files cannot break a rendering") {
  auto hostile = arm(Role::stock, {{"pp512", slow}});
  hostile.model = "=cmd|'x'!A1,\"<script>alert(1)</script>\n| [a](b) @all\x1b[31m\xff";
  const auto report = make_report({hostile}, {});
  const auto csv = render_csv(report);
  CHECK(csv.find("\"'=cmd|'x'!A1,\"\"<script>") != std::string::npos);
  CHECK(csv.find('\x1b') == std::string::npos);
  const auto markdown = render_markdown(report);
  CHECK(markdown.find("<script>") == std::string::npos);
  CHECK(markdown.find("@all") == std::string::npos);
  CHECK(markdown.find("\\| \\[a\\]") != std::string::npos);
  CHECK(render_text(report).find('\x1b') == std::string::npos);
  CHECK(nlohmann::json::accept(render_json(report)));
}

TEST_CASE("the page is one file that asks for nothing, and escapes what it shows") {
  const auto skeleton = sys::read_file(LUMELIFT_SOURCE_DIR "/templates/report.html", 1 << 20);
  const auto page = render_html(published(), skeleton);
  for (const auto* figure : {"4871.99", "431.8625", "4786.7", "286.7055", "12.6307", "206.5965", "11.0839×", "16.3567×", "98.2494 %",
                             "72.0588 %", "1.0054×", "0.9929×", "32.8 %"}) {
    CHECK(page.find(figure) != std::string::npos);
  }
  CHECK(page.find("{{") == std::string::npos);
  for (const auto* outside : {"http:", "https:", "src=", "url(", "@import", "<script"}) CHECK(page.find(outside) == std::string::npos);
  std::size_t dots = 0;
  for (std::size_t at = 0; (at = page.find("<circle", at)) != std::string::npos; ++at) ++dots;
  CHECK(dots == 100);

  auto hostile = arm(Role::stock, {{"pp512", slow}});
  hostile.model = "<img src=x onerror=alert(1)>\"'&{{workloads}}";
  hostile.source = "<b>\x1b";
  const auto escaped = render_html(make_report({hostile}, {}), skeleton);
  CHECK(escaped.find("<img") == std::string::npos);
  CHECK(escaped.find("&lt;img src=x onerror=alert(1)&gt;&quot;&#39;&amp;{{workloads}}") != std::string::npos);
  CHECK(escaped.find('\x1b') == std::string::npos);
  CHECK_THROWS_AS((void)render_html(published(), "<html>{{title}}</html>"), Error);
}

TEST_CASE("figures keep the digits that were measured") {
  CHECK(rate_figure(4871.99) == "4871.99");
  CHECK(rate_figure(431.8625) == "431.8625");
  CHECK(rate_figure(8.63801) == "8.63801");
  CHECK(rate_figure(0.0213456) == "0.0213456");
  CHECK(rate_figure(100) == "100");
  CHECK(figure(0.9928659) == "0.9929");
  CHECK(figure(16.356700) == "16.3567");
  CHECK(figure(0.0123456789) == "0.0123457");
  CHECK(percent(0.3284) == "32.8 %");
}
