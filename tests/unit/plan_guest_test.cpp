#include <doctest/doctest.h>

#include "cli/plan.hpp"
#include "host/sys/error.hpp"
#include "host/sys/file.hpp"
#include "host/sys/hash.hpp"
#include "tests/unit/golden.hpp"
#include "tests/unit/plans.hpp"

using namespace lumelift;
using namespace lumelift::test;

namespace {

const std::string home = "/Users/lume", root = home + "/.local/share/lumelift", agents = home + "/Library/LaunchAgents";

GuestFacts facts(bool gui = true) {
  GuestFacts out;
  out.user = "lume";
  out.home = home;
  out.uid = 501;
  out.gui_domain = gui;
  out.user_domain = true;
  return out;
}

Source source(const std::string& to, unsigned mode = 0644) {
  return {"/host/" + to, to, {sys::sha256(to), mode, 1000 + to.size()}};
}

std::vector<Source> kit() {
  return {source("liblumelift-metal.dylib", 0755), source("lumelift-probe", 0755)};
}

Workload server() {
  WorkloadAgent agent;
  agent.label = "io.lumelift.server";
  agent.executable = "bin/llama-server";
  agent.arguments = {"--model", "~/models/m.gguf", "--port", "8080", "a <b> & 'c'"};
  agent.environment = {{"LOG", "1"}, {"CACHE", "~/cache"}};
  return {"server", {}, {agent}};
}

std::string skeleton() {
  return sys::read_file(LUMELIFT_SOURCE_DIR "/templates/agent.plist", 1u << 16);
}

GuestGoal goal_of(const std::optional<Workload>& workload, const std::vector<Source>& sources = {}, bool gui = true) {
  return guest_goal({"tested"}, workload, kit(), sources, facts(gui), skeleton());
}

GuestGoal server_goal() {
  return goal_of(server(), {source("bin/llama-server"), source("m.gguf")});
}

/// What would be seen after the goal was reached.
std::vector<PathSeen> reached(const GuestGoal& goal) {
  std::vector<PathSeen> seen;
  for (const auto& folder : goal.folders) {
    seen.push_back({PathKind::folder, std::nullopt, folder.mode, 501});
  }
  for (const auto& file : goal.files) {
    seen.push_back({PathKind::file, file.state, file.state.mode, 501});
  }
  return seen;
}

std::vector<PathSeen> nothing(const GuestGoal& goal) {
  return std::vector<PathSeen>(goal.paths().size());
}

std::size_t index_of(const GuestGoal& goal, const std::string& path) {
  const auto paths = goal.paths();
  const auto found = std::find(paths.begin(), paths.end(), path);
  REQUIRE(found != paths.end());
  return static_cast<std::size_t>(found - paths.begin());
}

AgentSeen loaded(const std::string& plist, std::optional<int> pid = 77) {
  AgentSeen seen;
  seen.loaded = true;
  seen.path = plist;
  seen.pid = pid;
  return seen;
}

std::string sketch(const Plan& plan) {
  std::string out;
  for (const auto& step : plan.steps) {
    if (const auto* folder = std::get_if<MakeFolder>(&step)) {
      out += "+" + folder->path.substr(home.size()) + " ";
    }
    if (const auto* file = std::get_if<PutFile>(&step)) {
      out += (file->before ? "~" : "+") + std::filesystem::path(file->path).filename().string() + " ";
    }
    if (const auto* agent = std::get_if<SetAgent>(&step)) {
      const char* words[] = {"disabled", "unloaded", "loaded"};
      out += std::string("agent:") + words[static_cast<int>(agent->before)] + ">" + words[static_cast<int>(agent->after)] + " ";
    }
  }
  return out.empty() ? out : out.substr(0, out.size() - 1);
}

}  // namespace

TEST_CASE("a fresh guest: folders from the top down, then files, then the agent") {
  const GuestGoal goal = server_goal();
  const Plan plan = plan_guest("ci-1", goal, nothing(goal), {AgentSeen{}}, facts());
  CHECK(plan == plan_guest("ci-1", server_goal(), nothing(goal), {AgentSeen{}}, facts()));
  check_golden("plan/guest-fresh.txt", text_of(plan));
  check_golden("plan/agent.plist", goal.files.back().content);
  CHECK(goal.files.back().path == agents + "/io.lumelift.server.plist");
  CHECK(goal.files.back().state.sha256 == sys::sha256(goal.files.back().content));
}

TEST_CASE("without a workload only library and probe are put") {
  const GuestGoal goal = goal_of(std::nullopt);
  CHECK(goal.agents.empty());
  CHECK(sketch(plan_guest("ci-1", goal, nothing(goal), {}, facts())) ==
        "+/.local +/.local/share +/.local/share/lumelift +/.local/share/lumelift/run +liblumelift-metal.dylib +lumelift-probe");
  CHECK(goal.library == root + "/liblumelift-metal.dylib");
  CHECK(goal.probe_receipt == root + "/run/probe.json");
}

TEST_CASE("what stands there as wanted makes an empty plan") {
  const GuestGoal goal = server_goal();
  CHECK(plan_guest("ci-1", goal, reached(goal), {loaded(goal.agents[0].plist)}, facts()).steps.empty());
  CHECK(plan_guest("ci-1", goal_of(std::nullopt), reached(goal_of(std::nullopt)), {}, facts()).steps.empty());
}

TEST_CASE("one file that differs in bytes, mode or size is put again, and the agent goes down for it") {
  const GuestGoal goal = server_goal();
  for (std::size_t i = 0; i < goal.files.size(); ++i) {
    const std::string name = std::filesystem::path(goal.files[i].path).filename().string();
    CAPTURE(name);
    for (int how = 0; how < 4; ++how) {
      auto seen = reached(goal);
      auto& now = seen[goal.folders.size() + i];
      if (how == 0) {
        now.file->sha256 = std::string(64, '0');
      }
      if (how == 1) {
        now.file->mode = 0600;
      }
      if (how == 2) {
        now.file->size += 1;
      }
      if (how == 3) {
        now = {};
      }
      const Plan plan = plan_guest("ci-1", goal, seen, {loaded(goal.agents[0].plist)}, facts());
      CHECK(sketch(plan) == "agent:loaded>unloaded " + std::string(how == 3 ? "+" : "~") + name + " agent:unloaded>loaded");
      CHECK(std::get<PutFile>(plan.steps[1]).before == now.file);
      // A stopped job has nothing to stop.
      CHECK(sketch(plan_guest("ci-1", goal, seen, {AgentSeen{}}, facts())) ==
            std::string(how == 3 ? "+" : "~") + name + " agent:unloaded>loaded");
    }
  }
}

TEST_CASE("a file that cannot be read counts as another one") {
  const GuestGoal goal = goal_of(std::nullopt);
  auto seen = reached(goal);
  seen.back().file.reset();
  CHECK(sketch(plan_guest("ci-1", goal, seen, {}, facts())) == "+lumelift-probe");
}

TEST_CASE("the agent as launchd has it decides what is done about it") {
  const GuestGoal goal = server_goal();
  const auto with = [&](const AgentSeen& agent) { return sketch(plan_guest("ci-1", goal, reached(goal), {agent}, facts())); };
  CHECK(with({}) == "agent:unloaded>loaded");
  CHECK(with(loaded(goal.agents[0].plist, std::nullopt)) == "agent:loaded>unloaded agent:unloaded>loaded");
  CHECK(with(loaded("")).empty());
  AgentSeen disabled;
  disabled.disabled = true;
  CHECK(with(disabled) == "agent:disabled>unloaded agent:unloaded>loaded");
  const auto foreign = thrown([&] { (void)with(loaded("/Library/LaunchAgents/io.lumelift.server.plist")); });
  CHECK(foreign.id() == "agent-label-taken");
  CHECK(foreign.message().find("/Library/LaunchAgents/") != std::string::npos);
}

TEST_CASE("nothing is written where something else than a file or folder stands") {
  const GuestGoal goal = server_goal();
  for (std::size_t i = 0; i < goal.paths().size(); ++i) {
    const bool folder = i < goal.folders.size();
    for (const PathKind kind : {PathKind::link, PathKind::other, folder ? PathKind::file : PathKind::folder}) {
      auto seen = reached(goal);
      seen[i] = {};
      seen[i].kind = kind;
      const auto error = thrown([&] { (void)plan_guest("ci-1", goal, seen, {AgentSeen{}}, facts()); });
      CAPTURE(goal.paths()[i]);
      CHECK(error.id() == "guest-path-unsafe");
      CHECK(error.message().find(goal.paths()[i]) != std::string::npos);
    }
  }
}

TEST_CASE("R55: LaunchAgents of another owner or writable by others is refused, others are not looked at") {
  const GuestGoal goal = server_goal();
  struct Case {
    unsigned mode, owner;
    bool right;
  };
  for (const Case& c : {Case{0755, 501, true}, Case{0700, 501, true}, Case{0775, 501, false}, Case{0757, 501, false}, Case{0755, 0, false},
                        Case{0755, 502, false}}) {
    CAPTURE(c.mode);
    CAPTURE(c.owner);
    auto seen = reached(goal);
    auto& folder = seen[index_of(goal, agents)];
    folder.mode = c.mode;
    folder.owner = c.owner;
    CHECK(thrown([&] { (void)plan_guest("ci-1", goal, seen, {AgentSeen{}}, facts()); }).id() ==
          (c.right ? "nothing-thrown" : "agent-folder-unsafe"));
  }
  auto seen = reached(goal);
  seen[index_of(goal, home + "/.local")].mode = 0777;
  CHECK(plan_guest("ci-1", goal, seen, {loaded(goal.agents[0].plist)}, facts()).steps.empty());
}

TEST_CASE("where a workload's files go") {
  Workload workload = server();
  const auto path_of = [&](const std::string& to) { return goal_of(workload, {source(to)}).files.at(2).path; };
  CHECK(path_of("m.gguf") == root + "/server/m.gguf");
  CHECK(path_of("~/models/m.gguf") == home + "/models/m.gguf");
  CHECK(path_of(home + "/x") == home + "/x");
  for (const char* outside : {"/etc/x", "/Users/lumen/x", "/Users/other/x", "/tmp/x"}) {
    const auto error = thrown([&] { (void)path_of(outside); });
    CHECK(error.id() == "workload-invalid");
    CHECK(error.kind() == ErrorKind::usage);
  }
  // The program may be run, whatever mode it has here; what else is copied keeps its own.
  const GuestGoal goal = goal_of(workload, {source("bin/llama-server", 0644), source("tool", 0755), source("m.gguf", 0644)});
  CHECK(goal.files[2].state.mode == 0755);
  CHECK(goal.files[3].state.mode == 0755);
  CHECK(goal.files[4].state.mode == 0644);
}

TEST_CASE("two things at one place in the guest are refused, however they are spelled") {
  for (const std::vector<Source>& sources :
       std::vector<std::vector<Source>>{{source("m.gguf"), source("~/.local/share/lumelift/server/m.gguf")},
                                        {source("bin"), source("bin/llama-server")},
                                        {source("~/A/m.gguf"), source("~/a/m.gguf")},
                                        {source("~/.local/share/lumelift/liblumelift-metal.dylib")},
                                        {source("run")},
                                        {source("~/Library/LaunchAgents")},
                                        {source("~/Library/LaunchAgents/io.lumelift.server.plist")}}) {
    CAPTURE(sources.back().to);
    CHECK(thrown([&] { (void)goal_of(server(), sources); }).id() == "workload-invalid");
  }
}

TEST_CASE("folders are listed once, parents first, and none above the home folder") {
  Workload workload = server();
  workload.agents[0].stdout_log = "~/logs/deep/out.log";
  workload.agents[0].stderr_log = "/var/log/err.log";
  const GuestGoal goal = goal_of(workload, {source("a/b/c/1"), source("a/b/2"), source("~/models/m.gguf")});
  std::vector<std::string> known{home};
  for (const auto& folder : goal.folders) {
    CAPTURE(folder.path);
    CHECK(std::find(known.begin(), known.end(), folder.path) == known.end());
    CHECK(std::find(known.begin(), known.end(), std::filesystem::path(folder.path).parent_path().string()) != known.end());
    known.push_back(folder.path);
  }
  for (const auto& file : goal.files) {
    CHECK(std::find(known.begin(), known.end(), std::filesystem::path(file.path).parent_path().string()) != known.end());
  }
  CHECK(std::find(known.begin(), known.end(), home + "/logs/deep") != known.end());
  for (const auto& folder : goal.folders) {
    const bool ours_alone = folder.path.ends_with("/run");
    CHECK(folder.with_content == ours_alone);
    CHECK(folder.mode == (ours_alone ? 0700u : 0755u));
  }
}

TEST_CASE("the agent carries the profile, the library and its own receipt") {
  const GuestGoal goal = server_goal();
  const std::string& plist = goal.files.back().content;
  for (const char* part :
       {"DYLD_INSERT_LIBRARIES", "LUME_METAL_APPLE_FAMILY_MAX", "<string>1009</string>", "<string>65536</string>", "LUMELIFT_RECEIPT",
        "LUMELIFT_INHERIT", "/Users/lume/cache", "/Users/lume/models/m.gguf", "a &lt;b&gt; &amp; ", "Interactive"}) {
    CAPTURE(part);
    CHECK(plist.find(part) != std::string::npos);
  }
  CHECK(plist.find("~/") == std::string::npos);
  CHECK(plist.find("LimitLoadToSessionType") == std::string::npos);
  CHECK(goal.agents[0].command ==
        std::vector<std::string>{root + "/server/bin/llama-server", "--model", home + "/models/m.gguf", "--port", "8080", "a <b> & 'c'"});
  CHECK(goal.agents[0].stdout_log == root + "/server/run/stdout.log");
  Workload shared = server();
  shared.agents[0].inherit = true;
  CHECK(goal_of(shared).files.back().content.find("LUMELIFT_INHERIT") == std::string::npos);
}

TEST_CASE("R60: without a session on the screen the agent goes to the user's own domain") {
  const GuestGoal goal = goal_of(server(), {}, false);
  CHECK(goal.agents[0].domain == "user/501");
  CHECK(goal.files.back().content.find("LimitLoadToSessionType") != std::string::npos);
  CHECK(server_goal().agents[0].domain == "gui/501");
}

TEST_CASE("several agents: a changed file restarts all of them, a changed plist its own") {
  Workload pair = server();
  pair.agents.push_back(pair.agents[0]);
  pair.agents[0].name = "front";
  pair.agents[1].name = "back";
  pair.agents[1].label = "io.lumelift.server.back";
  pair.agents[1].arguments.clear();
  const GuestGoal goal = goal_of(pair, {source("bin/llama-server"), source("m.gguf")});
  REQUIRE(goal.agents.size() == 2);
  CHECK(goal.agents[0].receipt == root + "/server/run/front.receipt.json");
  CHECK(goal.agents[1].stderr_log == root + "/server/run/back.stderr.log");
  const std::vector<AgentSeen> up{loaded(goal.agents[0].plist), loaded(goal.agents[1].plist, 78)};
  const auto with = [&](std::size_t changed, const std::vector<AgentSeen>& agents_seen) {
    auto seen = reached(goal);
    seen.at(changed).file->size += 1;
    return sketch(plan_guest("ci-1", goal, seen, agents_seen, facts()));
  };
  const std::size_t last = goal.paths().size() - 1;
  CHECK(plan_guest("ci-1", goal, reached(goal), up, facts()).steps.empty());
  CHECK(with(last, up) == "agent:loaded>unloaded ~io.lumelift.server.back.plist agent:unloaded>loaded");
  CHECK(with(last - 1, up) == "agent:loaded>unloaded ~io.lumelift.server.plist agent:unloaded>loaded");
  CHECK(with(last - 2, up) == "agent:loaded>unloaded agent:loaded>unloaded ~m.gguf agent:unloaded>loaded agent:unloaded>loaded");
  // One that is down comes up without touching the other.
  CHECK(sketch(plan_guest("ci-1", goal, reached(goal), {up[0], AgentSeen{}}, facts())) == "agent:unloaded>loaded");
}

TEST_CASE("a key of our own: only what is missing, in an order that can be undone") {
  const std::string key = "ssh-ed25519 AAAA lumelift", file = home + "/.ssh/authorized_keys";
  const auto at = [](PathKind kind) {
    PathSeen seen;
    seen.kind = kind;
    return seen;
  };
  CHECK(plan_key(home, key, at(PathKind::folder), LineSeen::present).empty());
  CHECK(plan_key(home, key, at(PathKind::folder), LineSeen::missing) == std::vector<Step>{AddLine{file, key, false}});
  CHECK(plan_key(home, key, at(PathKind::folder), LineSeen::no_file) == std::vector<Step>{AddLine{file, key, true}});
  CHECK(plan_key(home, key, at(PathKind::absent), LineSeen::no_file) ==
        std::vector<Step>{MakeFolder{home + "/.ssh", 0700}, AddLine{file, key, true}});
  CHECK(thrown([&] { (void)plan_key(home, key, at(PathKind::link), LineSeen::no_file); }).id() == "guest-path-unsafe");
}

TEST_CASE("a line that was added comes back from the journal as it was") {
  const Step step = AddLine{"/Users/lume/.ssh/authorized_keys", "ssh-ed25519 AAAA \"quoted\" lumelift", true};
  CHECK(step_from_json(to_json(step)) == step);
  CHECK(in_guest(step));
}
