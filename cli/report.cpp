#include "cli/report.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>

namespace lumelift {
namespace {

constexpr Role guest_sides[] = {Role::stock, Role::unlocked};
constexpr Role order[] = {Role::unlocked, Role::stock, Role::cpu, Role::host};

/// The runs of one side of one workload that may be pooled; the first one speaks for them.
struct Pool {
  std::vector<const Arm*> arms;
  std::map<std::string, std::vector<double>> rates;
  std::map<std::string, const Row*> rows;
  [[nodiscard]] const Arm& first() const { return *arms.front(); }
};

struct Group {
  std::string name;
  std::map<Role, Pool> pools;
  std::vector<std::string> tests;  ///< in order of appearance
};

class Builder {
 public:
  explicit Builder(const Limits& limits) { report_.limits = limits; }

  Report build(const std::vector<Arm>& arms) {
    note_limits();
    find_copies(arms);
    for (const auto& arm : arms) {
      if (counts(arm)) take(arm);
    }
    for (auto& [key, group] : groups_) {
      compare_sides(group);
      report_.workloads.push_back(workload(group));
    }
    std::erase_if(report_.workloads, [](const WorkloadReport& entry) { return entry.tests.empty(); });
    std::stable_sort(report_.findings.begin(), report_.findings.end(),
                     [](const Finding& a, const Finding& b) { return a.level < b.level; });
    return std::move(report_);
  }

 private:
  void find(Level level, std::string subject, std::string text) {
    report_.findings.push_back({level, std::move(subject), std::move(text)});
  }

  void note_limits();
  void find_copies(const std::vector<Arm>& arms);
  bool counts(const Arm& arm);
  void take(const Arm& arm);
  void compare_sides(Group& group);
  void require_tests(Group& group);
  WorkloadReport workload(const Group& group);
  void weigh(TestReport& test, const std::string& subject);
  void compare(TestReport& test, const std::string& subject);

  Report report_;
  std::map<std::string, const Arm*> originals_;  ///< by identity: the one of all copies that counts
  std::map<std::pair<std::string, std::string>, Group> groups_;
};

/// Why `other` may not stand beside `measure`, setting by setting; empty if it may.
std::string differing_settings(const Row& measure, const Row& other, Role role) {
  // The number of CPU threads of the host differs with its cores, and a run that is on the GPU hardly feels it; a run
  // without the GPU is one because of exactly these settings.
  static const std::set<std::string, std::less<>> host_may{"n_threads"};
  static const std::set<std::string, std::less<>> cpu_may{"n_gpu_layers",  "devices",    "no_op_offload",
                                                          "no_kv_offload", "fit_target", "fit_min_ctx"};
  std::string text;
  for (const auto& [key, value] : measure.settings) {
    const auto found = other.settings.find(key);
    if (found == other.settings.end() || found->second == value) continue;
    if ((role == Role::host && host_may.contains(key)) || (role == Role::cpu && cpu_may.contains(key))) continue;
    text += fmt::format("{}{} is {}, not {}", text.empty() ? "" : "; ", key, found->second, value);
  }
  return text;
}

std::string differing(const Arm& measure, const Arm& other, Role role) {
  if (measure.build != other.build) return fmt::format("build {}, not {}", other.build, measure.build);
  if (measure.kind != other.kind) return fmt::format("model type '{}', not '{}'", other.kind, measure.kind);
  if (!measure.chip.empty() && !other.chip.empty() && measure.chip != other.chip) {
    return fmt::format("measured on {}, not {}", other.chip, measure.chip);
  }
  for (const auto& row : other.rows) {
    const auto same =
        std::find_if(measure.rows.begin(), measure.rows.end(), [&](const Row& candidate) { return candidate.test == row.test; });
    const auto& against = same != measure.rows.end() ? *same : measure.rows.front();
    if (auto text = differing_settings(against, row, role); !text.empty()) return fmt::format("{}: {}", row.test, text);
  }
  return {};
}

/// Whoever reads figures that were let pass by other limits has to know.
void Builder::note_limits() {
  const Limits usual;
  const auto& limits = report_.limits;
  if (limits == usual) return;
  find(Level::noted, "limits",
       fmt::format("a spread is marked above {} and not used above {}, a change counts from {} on; usual are {}, {} and {}",
                   percent(limits.flag), percent(limits.reject), percent(limits.material), percent(usual.flag), percent(usual.reject),
                   percent(usual.material)));
}

/// How surely the side of a run is known: the user's word goes before what its name says.
int certainty(const Arm& arm) {
  return arm.role_from == "--arm" ? 2 : arm.role == Role::unknown ? 0 : 1;
}

/// A run that was refused for anything but its unknown side stays a reason to refuse, whatever it is a copy of.
bool may_be_copy(const Arm& arm) {
  return !arm.identity.empty() && arm.refusals.size() == (arm.role == Role::unknown ? 1 : 0);
}

/// Samples that are pooled twice look like twice as many: the intervals would be too narrow.
void Builder::find_copies(const std::vector<Arm>& arms) {
  for (const auto& arm : arms) {
    if (!may_be_copy(arm)) continue;
    auto& original = originals_[arm.identity];
    if (original == nullptr || certainty(arm) > certainty(*original)) original = &arm;
  }
}

bool Builder::counts(const Arm& arm) {
  if (!may_be_copy(arm)) return true;
  const auto& original = *originals_.at(arm.identity);
  if (&arm == &original) return true;
  if (arm.role != original.role && certainty(arm) == certainty(original)) {
    find(Level::refused, arm.source,
         fmt::format("the same measurement as {}, which is called {}, not {}: one of the two is not what it is called", original.source,
                     role_name(original.role), role_name(arm.role)));
  } else {
    find(Level::noted, arm.source, fmt::format("the same measurement as {}: counted once", original.source));
  }
  return false;
}

void Builder::take(const Arm& arm) {
  for (const auto& note : arm.notes) find(Level::noted, arm.source, note);
  if (!arm.refusals.empty() || arm.rows.empty()) {
    for (const auto& reason : arm.refusals) find(Level::refused, arm.source, reason);
    if (arm.refusals.empty()) find(Level::refused, arm.source, "no test in it");
    return;
  }
  // Programs in the order of the alphabet as people know it, small and capital letters alike.
  auto tool = arm.tool;
  std::transform(tool.begin(), tool.end(), tool.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c | 0x20) : c; });
  auto& group = groups_[{tool, arm.model}];
  group.name = fmt::format("{} ({})", arm.model, arm.tool);
  auto& pool = group.pools[arm.role];
  if (!pool.arms.empty()) {
    auto reason = differing(pool.first(), arm, arm.role);
    const auto &mine = arm.banner, &theirs = pool.first().banner;
    if (reason.empty() && mine && theirs && !mine->same_answers(*theirs)) {
      reason = fmt::format("its banner shows {}, not {}", mine->summary(), theirs->summary());
    }
    if (!reason.empty()) {
      find(Level::refused, arm.source, fmt::format("differs from {}: {}", pool.first().source, reason));
      return;
    }
  }
  pool.arms.push_back(&arm);
  for (const auto& row : arm.rows) {
    auto& rates = pool.rates[row.test];
    rates.insert(rates.end(), row.rates.begin(), row.rates.end());
    pool.rows.emplace(row.test, &row);
    if (std::find(group.tests.begin(), group.tests.end(), row.test) == group.tests.end()) group.tests.push_back(row.test);
  }
}

/// Every test of the guest's two sides must be there on all sides: an arm that lacks one died, or measured something else.
void Builder::require_tests(Group& group) {
  std::set<std::string> required;
  for (const auto role : guest_sides) {
    if (const auto pool = group.pools.find(role); pool != group.pools.end()) {
      for (const auto& [test, rates] : pool->second.rates) required.insert(test);
    }
  }
  std::erase_if(group.pools, [&](const auto& entry) {
    std::string missing;
    for (const auto& test : required) {
      if (!entry.second.rates.contains(test)) missing += (missing.empty() ? "" : ", ") + test;
    }
    if (missing.empty()) return false;
    find(Level::refused, entry.second.first().source,
         fmt::format("missing from the {} arm of {}: {}", role_name(entry.first), group.name, missing));
    return true;
  });
}

void Builder::compare_sides(Group& group) {
  require_tests(group);
  const auto measure = std::find_if(std::begin(order), std::end(order), [&](Role role) { return group.pools.contains(role); });
  if (measure == std::end(order)) return;
  const auto& first = group.pools.at(*measure).first();
  std::erase_if(group.pools, [&](const auto& entry) {
    if (entry.first == *measure) return false;
    const auto reason = differing(first, entry.second.first(), entry.first);
    if (reason.empty()) return false;
    find(Level::refused, entry.second.first().source,
         fmt::format("cannot be compared with the {} arm ({}): {}", role_name(*measure), first.source, reason));
    return true;
  });
  if (!group.pools.contains(Role::stock) || !group.pools.contains(Role::unlocked)) return;
  const auto& stock = group.pools.at(Role::stock).first();
  const auto& unlocked = group.pools.at(Role::unlocked).first();
  if (!stock.banner || !unlocked.banner || !stock.banner->present() || !unlocked.banner->present()) {
    if (!unlocked.receipt)
      find(Level::noted, group.name, "no banner beside both guest arms: that they differ in more than name is not shown");
  } else if (stock.banner->same_answers(*unlocked.banner)) {
    find(Level::refused, fmt::format("{} and {}", stock.source, unlocked.source),
         fmt::format("both banners show {}: one of the two is not what it is called", stock.banner->summary()));
    group.pools.erase(Role::stock);
    group.pools.erase(Role::unlocked);
    return;
  }
  if (const auto host = group.pools.find(Role::host); host != group.pools.end() && host->second.first().banner && unlocked.banner &&
                                                      host->second.first().banner->apple &&
                                                      unlocked.banner->apple > host->second.first().banner->apple) {
    find(Level::noted, group.name,
         fmt::format("the unlocked guest claims Apple{}, the physical GPU is Apple{}", *unlocked.banner->apple - 1000,
                     *host->second.first().banner->apple - 1000));
  }
}

WorkloadReport Builder::workload(const Group& group) {
  WorkloadReport entry;
  entry.name = group.name;
  for (const auto& [role, pool] : group.pools) {
    const auto& first = pool.first();
    Side side{first.build, first.chip, first.gpu, first.platform, first.banner, {}};
    for (const auto* arm : pool.arms) side.sources.push_back(arm->source);
    entry.sides.emplace(role, std::move(side));
  }
  for (const auto& name : group.tests) {
    TestReport test;
    test.test = name;
    for (const auto& [role, pool] : group.pools) {
      if (const auto rates = pool.rates.find(name); rates != pool.rates.end()) {
        test.cells[role] = Cell{summarise(rates->second), rates->second};
      }
    }
    if (test.cells.empty()) continue;
    weigh(test, fmt::format("{}, {}", group.name, name));
    compare(test, fmt::format("{}, {}", group.name, name));
    entry.tests.push_back(std::move(test));
  }
  if (group.pools.size() == 1) {
    find(Level::noted, group.name, fmt::format("only the {} arm: nothing to compare it with", role_name(group.pools.begin()->first)));
  }
  return entry;
}

/// Marks or rejects each series by its spread, and names the one sample that is to blame, if there is one.
void Builder::weigh(TestReport& test, const std::string& subject) {
  for (auto& [role, cell] : test.cells) {
    const auto spread = cell.summary.spread();
    if (spread <= report_.limits.flag) continue;
    cell.flagged = true;
    cell.rejected = spread > report_.limits.reject;
    auto text = fmt::format("spread {} is above {}", percent(spread), percent(cell.rejected ? report_.limits.reject : report_.limits.flag));
    if (const auto outlier = lone_outlier(cell.rates)) {
      text += fmt::format("; sample {} of {} ({}) makes most of it: {} without", outlier->index + 1, cell.rates.size(),
                          rate_figure(outlier->rate), percent(outlier->spread_without));
    }
    if (cell.rejected) text += "; not used, measure again";
    find(cell.rejected ? Level::refused : Level::flagged, fmt::format("{}, {}", subject, role_name(role)), text);
  }
}

void Builder::compare(TestReport& test, const std::string& subject) {
  const auto unlocked = test.cells.find(Role::unlocked);
  if (unlocked == test.cells.end() || unlocked->second.rejected) return;
  for (const auto role : {Role::stock, Role::cpu, Role::host}) {
    const auto other = test.cells.find(role);
    if (other == test.cells.end() || other->second.rejected) continue;
    const auto ratio = median_ratio(unlocked->second.rates, other->second.rates);
    test.comparisons.push_back({role, ratio, judge(ratio, report_.limits.material)});
  }
  const auto *stock = test.against(Role::stock), *cpu = test.against(Role::cpu);
  if (stock && cpu && stock->ratio.value > cpu->ratio.value * (1 + report_.limits.material)) {
    find(Level::noted, subject,
         fmt::format("the stock guest's Metal is slower than its CPU; against the CPU the unlock is {}×", figure(cpu->ratio.value)));
  }
}

std::string trimmed_zeros(std::string text) {
  if (text.find('.') == std::string::npos || text.find('e') != std::string::npos) return text;
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

}  // namespace

const Comparison* TestReport::against(Role role) const {
  const auto found = std::find_if(comparisons.begin(), comparisons.end(), [&](const Comparison& entry) { return entry.against == role; });
  return found == comparisons.end() ? nullptr : &*found;
}

bool Report::refused_something() const {
  return std::any_of(findings.begin(), findings.end(), [](const Finding& finding) { return finding.level == Level::refused; });
}

Report make_report(const std::vector<Arm>& arms, const Limits& limits) {
  return Builder(limits).build(arms);
}

std::string rate_figure(double rate) {
  return trimmed_zeros(rate >= 10 ? fmt::format("{:.4f}", rate) : fmt::format("{:.6g}", rate));
}

std::string figure(double value) {
  return trimmed_zeros(value >= 0.1 ? fmt::format("{:.4f}", value) : fmt::format("{:.6g}", value));
}

std::string percent(double fraction) {
  return fmt::format("{:.1f} %", fraction * 100);
}

}  // namespace lumelift
