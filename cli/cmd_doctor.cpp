#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "cli/operation.hpp"
#include "cli/vm_name.hpp"
#include "host/ancestry.hpp"
#include "host/sys/file.hpp"

namespace lumelift {
namespace {

using nlohmann::json;
using sys::Deadline;
using sys::Milliseconds;

constexpr Milliseconds answer{10'000};
constexpr std::uint64_t enough_disk = 100'000'000;  // bytes: library, probe and a little more

enum class Level { good, warning, bad };

/// One thing that was checked.
struct Finding {
  std::string id;
  Level level = Level::good;
  std::string evidence, fix;
};

const char* word(Level level) {
  return level == Level::good ? "ok" : level == Level::warning ? "warning" : "problem";
}

class Doctor {
 public:
  Doctor(Context& context, const DoctorOptions& options) : context_(context), options_(options) {}

  int go() {
    check_host();
    if (!options_.target.vm.empty() && lume_works_) {
      check_vm();
    }
    print();
    const bool bad = std::any_of(findings_.begin(), findings_.end(), [](const Finding& f) { return f.level == Level::bad; });
    return bad ? exit_status(ErrorKind::failed) : 0;
  }

 private:
  void add(std::string id, Level level, std::string evidence, std::string fix = {}) {
    findings_.push_back({std::move(id), level, std::move(evidence), std::move(fix)});
  }

  /// Runs one check; an Error in it is its finding. True when it came through.
  bool check(const std::function<void()>& body) {
    try {
      body();
      return true;
    } catch (const Error& error) {
      std::string evidence = error.message();
      for (const auto& detail : error.details()) {
        evidence += "; " + detail;
      }
      if (error.id() == "guest-blocked") {
        evidence += "; " + who_answers();
      }
      add(error.id(), Level::bad, evidence, error.fix());
      return false;
    }
  }

  /// The permission is the responsible program's, not ours; a new build of that program is asked about anew.
  static std::string who_answers() {
    const auto above = own_ancestors();
    return fmt::format(
        "lumelift was {}{}; an update of the responsible program asks again; an administrator can allow address ranges for the "
        "whole Mac (domain com.apple.network.local-network, after a restart), which lumelift never does itself",
        local_network_advice(above), above.empty() ? "" : fmt::format(" (chain: {})", fmt::join(above, " < ")));
  }

  void check_host() {
    check([&] {
      const HostFacts facts = host_.facts();
      const bool silicon = facts.chip.starts_with("Apple");
      add("host-chip", silicon ? Level::good : Level::bad,
          fmt::format("{} ({}), macOS {} ({})", facts.chip, facts.model, facts.os, facts.build),
          silicon ? "" : "lumelift serves macOS guests of Apple-silicon Macs");
    });
    check([&] {
      const auto why = Host::wrong_user(context_.user);
      add("host-user", why ? Level::bad : Level::good, why.value_or("this user's preferences and VMs"),
          why ? "run lumelift as the user who runs the VM, without sudo" : "");
    });
    check([&] {
      (void)load_kit(context_.libexec);
      add("kit", Level::good, fmt::format("library and probe whole in {}", context_.libexec.string()));
    });
    check([&] {
      (void)load_profile("tested", context_.templates);
      (void)sys::read_file(context_.templates / "agent.plist", 64u << 10);
      add("templates", Level::good, context_.templates.string());
    });
    check([&] {
      const Journal journal(context_.state_dir, Journal::Access::read);
      std::vector<std::string> unfinished;
      for (const auto& run : journal.live_runs()) {
        // What is being worked on now is no leftover.
        if (run.state != RunState::committed && !journal.holder(run.vm)) {
          unfinished.push_back(run.vm);
        }
      }
      add("journal", unfinished.empty() ? Level::good : Level::warning,
          unfinished.empty() ? fmt::format("readable in {}", context_.state_dir.string())
                             : fmt::format("unfinished: {}", fmt::join(unfinished, ", ")),
          unfinished.empty() ? "" : "lumelift rollback VM");
      check_preference(journal);
    });
    lume_works_ = check([&] { add("lume", Level::good, "lume " + lume_.version()); });
  }

  void check_preference(const Journal& journal) {
    const PrefValue now = host_.preference(feature_level_key());
    const auto claims = journal.claims(resource_of(feature_level_key()));
    const bool container = std::holds_alternative<PrefContainer>(now);
    const bool lost = !claims.empty() && now != PrefValue(true);
    add("host-preference",
        container ? Level::bad
        : lost    ? Level::warning
                  : Level::good,
        fmt::format("{} is {}; {} on it", feature_level_key().key, shown(now),
                    claims.size() == 1 ? "1 VM relies" : fmt::format("{} VMs rely", claims.size())),
        container ? "look at it with: defaults read " + feature_level_key().domain
        : lost    ? "somebody changed it: lumelift unlock VM sets it again"
                  : "");
  }

  void check_vm() {
    std::optional<Vm> vm;
    check([&] {
      vm = find_vm(lume_, options_.target.vm);
      const bool ready = vm->power().has_value();
      add("vm-state", ready ? Level::good : Level::bad, fmt::format("'{}' is {}", vm->name, vm->status),
          ready ? "" : "wait until it is stopped or running");
    });
    if (!vm || vm->power() != Power::running) {
      return;
    }
    check([&] {
      Journal journal(context_.state_dir, Journal::Access::read);
      GuestLink link(lume_, journal, context_.console, vm->name, options_.target.login, GuestLink::Pinning::check_only);
      link.connect(Deadline::in(answer), GuestLink::Wait::up);
      add("guest-login", Level::good,
          fmt::format("{} at {} by {}", options_.target.login.user, link.address(), link.session().login_method()));
      add("guest-algorithms", Level::good, algorithms(link.session()));
      check_guest(link.guest().facts(Deadline::in(answer)));
      check_twins(journal, vm->name);
    });
  }

  /// What was agreed on; both lists with --verbose and in JSON.
  std::string algorithms(const Session& session) const {
    std::string text;
    for (const auto& one : session.algorithms()) {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", one.what, one.chosen);
      if (context_.console.json() || context_.console.verbose()) {
        text += fmt::format(" (ours: {}; the guest's: {})", one.ours, one.theirs);
      }
    }
    return text;
  }

  void check_guest(const GuestFacts& facts) {
    add("guest-system", Level::good, fmt::format("macOS {} ({}), {}", facts.os, facts.build, facts.chip));
    // Reports of empty or wrong text from mapped model files stop with macOS 15.
    if (facts.os.starts_with("13.") || facts.os.starts_with("14.")) {
      add("guest-mmap", Level::warning, "on macOS 14 and older, large mapped model files can read as stale data",
          "run llama.cpp with --no-mmap, and compare its text with the CPU's");
    }
    add("guest-sip", Level::good,
        !facts.sip   ? "System Integrity Protection: not known"
        : *facts.sip ? "System Integrity Protection on: DYLD variables never reach system tools"
                     : "System Integrity Protection off: children of an injected process that are system tools need inherit: false");
    const bool domain = facts.gui_domain || facts.user_domain;
    add("guest-domain", domain ? Level::good : Level::bad,
        domain ? fmt::format("agents go to {}", facts.domain()) : "launchd knows neither gui nor user domain of this account",
        domain ? "" : "log in to the guest once");
    const auto room = facts.disk_free;
    add("guest-disk",
        !room                  ? Level::warning
        : *room >= enough_disk ? Level::good
                               : Level::bad,
        room ? fmt::format("{} free", shown_bytes(*room)) : "the guest's df gave no figure: free space is not known",
        !room                  ? "look in the guest: df -k ~"
        : *room >= enough_disk ? ""
                               : "make room in the guest");
  }

  void check_twins(const Journal& journal, const std::string& name) {
    const auto own = journal.pin(name);
    for (const auto& pin : journal.pins()) {
      if (own && pin.vm != name && pinned_fingerprint(pin.fingerprint) == pinned_fingerprint(own->fingerprint)) {
        add("guest-host-key-shared", Level::warning,
            fmt::format("'{}' and '{}' have one SSH host key: one is a clone of the other", name, pin.vm),
            "make new host keys in one of them");
      }
    }
  }

  void print() const {
    if (context_.console.json()) {
      json object = {{"schema", 1}, {"findings", json::array()}};
      for (const auto& f : findings_) {
        object["findings"].push_back(
            {{"id", f.id}, {"level", word(f.level)}, {"evidence", f.evidence}, {"fix", f.fix}, {"manual", manual(f.id)}});
      }
      context_.console.result_json(object.dump(-1, ' ', false, json::error_handler_t::replace));
      return;
    }
    std::vector<std::vector<std::string>> rows;
    for (const auto& f : findings_) {
      const Style style = f.level == Level::good ? Style::good : f.level == Level::warning ? Style::warn : Style::bad;
      rows.push_back(
          {context_.console.styled(word(f.level), style), f.id, cleaned(f.evidence) + (f.fix.empty() ? "" : "   next: " + cleaned(f.fix))});
    }
    context_.console.result(table(rows));
    const auto trouble = std::find_if(findings_.begin(), findings_.end(), [](const Finding& f) { return f.level != Level::good; });
    if (trouble != findings_.end()) {
      context_.console.result("Each finding is explained under its id: " + manual(trouble->id));
    }
  }

  /// Where an id is explained: the installed page, or the one of the sources.
  [[nodiscard]] std::string manual(const std::string& id) const {
    const auto installed = (context_.templates.parent_path() / "doc" / "lumelift" / "docs" / "errors.md").lexically_normal();
    std::error_code fault;
    return (std::filesystem::exists(installed, fault) ? installed.string() : "docs/errors.md") + "#" + id;
  }

  Context& context_;
  const DoctorOptions& options_;
  Host host_;
  Lume lume_;
  bool lume_works_ = false;
  std::vector<Finding> findings_;
};

}  // namespace

int run_doctor(Context& context, const DoctorOptions& options) {
  return Doctor(context, options).go();
}

}  // namespace lumelift
