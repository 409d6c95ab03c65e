#include <doctest/doctest.h>
#include <fmt/format.h>

#include <functional>

#include "cli/plan.hpp"
#include "host/sys/error.hpp"
#include "tests/unit/golden.hpp"
#include "tests/unit/plans.hpp"

using namespace lumelift;
using namespace lumelift::test;

namespace {

constexpr std::int64_t noon = 1'790'000'000;

HostView seen(const char* status, PrefValue preference, std::vector<Claim> claims = {}) {
  HostView view;
  view.vm.name = "ci-1";
  view.vm.os = "macOS";
  view.vm.status = status;
  view.vm.storage = "home";
  view.preference = std::move(preference);
  view.claims = std::move(claims);
  return view;
}

Claim claim(const char* vm, const PrefValue& before) {
  return {"domain key", vm, to_json(before), noon};
}

const std::vector<PrefValue> formers = {PrefAbsent{}, false, std::int64_t{1}, PrefReal{"1"}, std::string("1"), std::string()};

std::string kinds(const Plan& plan) {
  std::string out;
  for (const auto& step : plan.steps) {
    if (const auto* power = std::get_if<SetPower>(&step)) {
      out += power->after == Power::running ? "start " : "stop ";
    }
    if (std::holds_alternative<SetPreference>(step)) {
      out += "preference ";
    }
  }
  return out.empty() ? out : out.substr(0, out.size() - 1);
}

const SetPreference& preference_of(const Plan& plan) {
  for (const auto& step : plan.steps) {
    if (const auto* found = std::get_if<SetPreference>(&step)) {
      return *found;
    }
  }
  throw std::runtime_error("no preference step");
}

}  // namespace

TEST_CASE("a preference that is not true is written between stop and start, with what was there before") {
  for (const auto& former : formers) {
    CAPTURE(shown(former));
    const Plan running = plan_host(seen("running", former), Restart::automatic, true);
    CHECK(kinds(running) == "stop preference start");
    CHECK(preference_of(running).before == former);
    CHECK(preference_of(running).after == PrefValue(true));
    CHECK(kinds(plan_host(seen("stopped", former), Restart::automatic, true)) == "preference start");
    const Plan never = plan_host(seen("running", former), Restart::never, true);
    CHECK(kinds(never) == "preference");
    REQUIRE(never.notes.size() == 1);
    CHECK(never.notes[0].find("takes effect at its next start") != std::string::npos);
    CHECK(kinds(plan_host(seen("running", former), Restart::always, true)) == "stop preference start");
    CHECK(kinds(plan_host(seen("stopped", former), Restart::never, true)) == "preference start");
  }
}

TEST_CASE("a preference that is true already is claimed once and restarts nothing") {
  const Plan first = plan_host(seen("running", true), Restart::automatic, true);
  CHECK(kinds(first) == "preference");
  CHECK(preference_of(first).before == PrefValue(true));
  CHECK(first.notes.empty());
  CHECK(kinds(plan_host(seen("running", true, {claim("ci-1", PrefAbsent{})}), Restart::automatic, true)).empty());
  CHECK(kinds(plan_host(seen("stopped", true, {claim("ci-1", PrefAbsent{})}), Restart::automatic, true)) == "start");
  CHECK(kinds(plan_host(seen("running", true, {claim("ci-1", PrefAbsent{})}), Restart::always, true)) == "stop start");
}

TEST_CASE("R111: another VM's claim hands down the former value, not the one that it set") {
  const Plan plan = plan_host(seen("running", true, {claim("ci-2", std::string("1"))}), Restart::automatic, true);
  CHECK(kinds(plan) == "preference");
  CHECK(preference_of(plan).before == PrefValue(std::string("1")));
  // Also where somebody has taken the preference away meanwhile.
  const Plan lost = plan_host(seen("running", PrefAbsent{}, {claim("ci-2", false), claim("ci-1", false)}), Restart::automatic, true);
  CHECK(kinds(lost) == "stop preference start");
  CHECK(preference_of(lost).before == PrefValue(false));
}

TEST_CASE("a VM that was started before the preference was set is restarted, and told why") {
  HostView view = seen("running", true, {claim("ci-1", PrefAbsent{})});
  view.preference_since = noon;
  struct Case {
    std::int64_t since;
    const char* automatic;
  };
  // The two clocks may differ by two seconds.
  for (const Case& c :
       {Case{noon - 3600, "stop start"}, Case{noon - 3, "stop start"}, Case{noon - 2, ""}, Case{noon, ""}, Case{noon + 60, ""}}) {
    CAPTURE(c.since - noon);
    view.running_since = c.since;
    CHECK(kinds(plan_host(view, Restart::automatic, true)) == c.automatic);
    CHECK(kinds(plan_host(view, Restart::never, true)).empty());
    CHECK(kinds(plan_host(view, Restart::automatic, false)).empty());
  }
  view.running_since = noon - 3600;
  CHECK(plan_host(view, Restart::automatic, true).notes.at(0).find("before the preference was set") != std::string::npos);
  CHECK(plan_host(view, Restart::never, true).notes.at(0).find("next start") != std::string::npos);
  view.running_since.reset();
  CHECK(kinds(plan_host(view, Restart::automatic, true)).empty());
}

TEST_CASE("--host-preference keep touches and claims nothing, whatever is there") {
  for (const PrefValue& former : std::vector<PrefValue>{PrefAbsent{}, false, true, PrefContainer{"dictionary", "abc"}}) {
    CAPTURE(shown(former));
    CHECK(kinds(plan_host(seen("running", former), Restart::automatic, false)).empty());
    CHECK(kinds(plan_host(seen("stopped", former), Restart::automatic, false)) == "start");
    const Plan always = plan_host(seen("running", former), Restart::always, false);
    CHECK(kinds(always) == "stop start");
    CHECK(always.notes.at(0).find(shown(former)) != std::string::npos);
  }
}

TEST_CASE("R107, R110: a container is never overwritten") {
  for (const char* type : {"dictionary", "array", "data", "date"}) {
    const auto error = thrown([&] { (void)plan_host(seen("stopped", PrefContainer{type, "d"}), Restart::automatic, true); });
    CHECK(error.id() == "preference-foreign");
    CHECK(error.kind() == ErrorKind::usage);
    CHECK(error.message().find(type) != std::string::npos);
  }
}

TEST_CASE("R03: only stopped and running can be acted on") {
  for (const char* status : {"provisioning", "provisioning (stale)", "pulling", "paused", "", "Running", "running "}) {
    for (const bool set : {true, false}) {
      const auto error = thrown([&] { (void)plan_host(seen(status, PrefAbsent{}), Restart::automatic, set); });
      CHECK(error.id() == "vm-not-ready");
      CHECK(error.kind() == ErrorKind::busy);
    }
  }
}

TEST_CASE("every host plan is sound: power steps chain, the preference never changes under a VM that is to be restarted") {
  int plans = 0;
  std::vector<PrefValue> values = formers;
  values.emplace_back(true);
  for (const char* status : {"running", "stopped"}) {
    for (const auto& value : values) {
      for (const bool own : {false, true}) {
        for (const bool other : {false, true}) {
          for (const bool stale : {false, true}) {
            for (const Restart restart : {Restart::automatic, Restart::always, Restart::never}) {
              for (const bool set : {false, true}) {
                HostView view = seen(status, value);
                if (other) {
                  view.claims.push_back(claim("ci-2", false));
                }
                if (own) {
                  view.claims.push_back(claim("ci-1", false));
                }
                view.running_since = stale ? noon - 100 : noon + 100;
                view.preference_since = noon;
                const Plan plan = plan_host(view, restart, set);
                CHECK(plan == plan_host(view, restart, set));
                ++plans;
                Power power = *view.vm.power();
                const bool restarts = kinds(plan).starts_with("stop");
                bool right = true;
                for (const auto& step : plan.steps) {
                  if (const auto* p = std::get_if<SetPower>(&step)) {
                    right = right && p->before == power && p->after != power;
                    power = p->after;
                  } else {
                    right = right && set && !(restarts && power == Power::running);
                  }
                }
                // In the end the VM runs, and a written preference is true.
                CHECK((right && power == Power::running && (restart != Restart::never || !restarts)));
              }
            }
          }
        }
      }
    }
  }
  CHECK(plans == 2 * 7 * 2 * 2 * 2 * 3 * 2);
}

TEST_CASE("the VM starts as it ran before") {
  HostView view = seen("running", PrefAbsent{});
  view.vm.storage = "/Volumes/fast";
  view.vm.network = "bridged:en0";
  view.vm.shared_dirs = {{"/Users/me/models", "models", true}};
  const Plan plan = plan_host(view, Restart::automatic, true);
  CHECK(std::get<SetPower>(plan.steps.back()).start == start_options(view.vm));
  CHECK(start_options(view.vm).shared_dirs == view.vm.shared_dirs);
  check_golden("plan/host.txt", text_of(plan));
}

TEST_CASE("every kind of step survives its way through the journal") {
  const StartOptions start{"/Volumes/fast", "bridged:en0", {{"/a b/\"c\"", "tag", false}, {"/d", "", true}}};
  std::vector<Step> steps = {
      SetPower{Power::running, Power::stopped, start},
      SetPower{Power::stopped, Power::running, {"home", std::nullopt, {}}},
      MakeFolder{"/Users/lume/ä ö/'x'", 0700, true},
      MakeFolder{"/Users/lume/x", 0755, false},
      PutFile{"/Users/lume/f",
              "/host/\"f\"\n",
              FileState{std::string(64, 'a'), 0600, 12},
              FileState{std::string(64, 'b'), 0755, 1ull << 40},
              {}},
      PutFile{"/Users/lume/g", {}, std::nullopt, FileState{std::string(64, 'c'), 0644, 0}, {}},
  };
  std::vector<PrefValue> values = formers;
  values.insert(values.end(),
                {true, std::int64_t{-9'000'000'000}, PrefReal{"0.30000001192092896"}, PrefContainer{"data", "ff"}, std::string("é\"\\\n")});
  for (const auto& value : values) {
    steps.push_back(SetPreference{feature_level_key(), value, true});
    CHECK(pref_from_json(to_json(value)) == value);
  }
  for (const auto before : {AgentState::disabled, AgentState::unloaded, AgentState::loaded}) {
    for (const auto after : {AgentState::disabled, AgentState::unloaded, AgentState::loaded}) {
      steps.push_back(SetAgent{"gui/501", "io.x", "/p.plist", before, after});
    }
  }
  for (const auto& step : steps) {
    CAPTURE(to_json(step));
    CHECK(step_from_json(to_json(step)) == step);
    CHECK(to_json(step).find('\n') == std::string::npos);
    CHECK_FALSE(described(step).empty());
    CHECK(in_guest(step) == (step.index() >= 2));
  }
}

TEST_CASE("a share is a step of this Mac") {
  const Step step = StageShare{"/state/shares/a b/server", {{"/models/\"m\".gguf", ".send-0"}, {{}, ".lumelift-a b"}}};
  CHECK(step_from_json(to_json(step)) == step);
  CHECK_FALSE(in_guest(step));
  CHECK(described(step) == "share /state/shares/a b/server read-only, with a file of this Mac");
}

TEST_CASE("a file's content stays out of the journal") {
  const PutFile step{"/Users/lume/x.plist", {}, std::nullopt, {std::string(64, '0'), 0644, 6}, "secret"};
  CHECK(to_json(Step(step)).find("secret") == std::string::npos);
}

TEST_CASE("a record that cannot be read is said to be so, at every length") {
  const std::string whole = to_json(Step(SetPreference{feature_level_key(), std::string("1"), true}));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const auto error = thrown([&] { (void)step_from_json(whole.substr(0, length)); });
    REQUIRE(error.id() == "journal-unreadable");
    REQUIRE(error.kind() == ErrorKind::incomplete);
  }
  for (const std::string& body : std::vector<std::string>{
           "null", "[]", "{}", "7", R"({"kind":"firmware"})",
           R"({"kind":"agent","domain":"d","label":"l","plist":"p","before":"asleep","after":"loaded"})",
           R"({"kind":"power","before":"paused","after":"running","start":{"storage":"","network":null,"shared_dirs":[]}})",
           R"({"kind":"folder","path":1,"mode":493,"with_content":false})"}) {
    CAPTURE(body);
    CHECK(thrown([&] { (void)step_from_json(body); }).id() == "journal-unreadable");
  }
}
