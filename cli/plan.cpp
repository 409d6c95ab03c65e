#include "cli/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "cli/console.hpp"
#include "host/sys/hash.hpp"
#include "remote/launch_agent.hpp"

namespace lumelift {
namespace {

const PrefValue unlocked_value = true;
// A guest's clock and ours read the same boot a little apart.
constexpr std::int64_t clock_slack_s = 2;

template <class... Parts>
struct Overloaded : Parts... {
  using Parts::operator()...;
};
template <class... Parts>
Overloaded(Parts...) -> Overloaded<Parts...>;

const char* shown(AgentState state) {
  switch (state) {
    case AgentState::disabled:
      return "disabled";
    case AgentState::unloaded:
      return "not loaded";
    case AgentState::loaded:
      return "loaded";
  }
  return "?";
}

/// "~/x" and relative paths as absolute ones.
std::string absolute(const std::string& path, const std::string& home, const std::string& base) {
  if (path == ".") {
    return base;
  }
  if (path.starts_with("~/")) {
    return home + path.substr(1);
  }
  return path.starts_with("/") ? path : base + "/" + path;
}

std::string expanded(const std::string& text, const std::string& home) {
  return text.starts_with("~/") ? home + text.substr(1) : text;
}

/// Adds `path` and those of its parents that are not there yet in the list, down from `stop` (which exists).
void add_folder(GuestGoal& goal, std::set<std::string>& known, const std::string& path, const std::string& stop, unsigned mode,
                bool with_content = false) {
  if (path == stop || path.empty() || path == "/" || known.contains(path)) {
    return;
  }
  add_folder(goal, known, std::filesystem::path(path).parent_path().string(), stop, 0755);
  known.insert(path);
  goal.folders.push_back({path, mode, with_content});
}

/// Two spellings of one place, or a file where a folder is needed, would never come to rest.
void check_distinct(const GuestGoal& goal) {
  std::map<std::string, std::string> taken;
  for (const auto& path : goal.paths()) {
    const auto [other, is_new] = taken.emplace(without_case(path), path);
    if (!is_new) {
      throw Error(ErrorKind::usage, "workload-invalid",
                  other->second == path
                      ? fmt::format("two things would stand at {} in the guest", path)
                      : fmt::format("{} and {} differ in case only, which a Mac's disk takes for one name", other->second, path))
          .fix("give one of the workload's files another destination");
    }
  }
}

/// Where an agent of the workload in folder `own` stands and what it leaves there.
GuestGoal::Agent agent_goal(const WorkloadAgent& agent, const std::string& own, const GuestFacts& facts) {
  const std::string run = own + "/run/" + (agent.name.empty() ? "" : agent.name + ".");
  GuestGoal::Agent out;
  out.domain = facts.domain();
  out.label = agent.label;
  out.plist = facts.home + "/Library/LaunchAgents/" + agent.label + ".plist";
  out.receipt = run + "receipt.json";
  out.command = {absolute(agent.executable, facts.home, own)};
  for (const auto& argument : agent.arguments) {
    out.command.push_back(expanded(argument, facts.home));
  }
  out.stdout_log = agent.stdout_log.empty() ? run + "stdout.log" : absolute(agent.stdout_log, facts.home, own);
  out.stderr_log = agent.stderr_log.empty() ? run + "stderr.log" : absolute(agent.stderr_log, facts.home, own);
  out.ready = agent.ready;
  for (auto& word : out.ready.command) {
    word = expanded(word, facts.home);
  }
  return out;
}

AgentSpec agent_spec(const Profile& profile, const WorkloadAgent& agent, const GuestGoal::Agent& at, const std::string& library,
                     const std::string& own, const GuestFacts& facts) {
  AgentSpec spec;
  spec.label = at.label;
  spec.arguments = at.command;
  spec.environment = profile_environment(profile);
  spec.environment.insert(spec.environment.begin(), {"DYLD_INSERT_LIBRARIES", library});
  spec.environment.emplace_back("LUMELIFT_RECEIPT", at.receipt);
  if (!agent.inherit) {
    spec.environment.emplace_back("LUMELIFT_INHERIT", "0");
  }
  for (const auto& [name, value] : agent.environment) {
    spec.environment.emplace_back(name, expanded(value, facts.home));
  }
  spec.working_directory = agent.working_directory.empty() ? own : absolute(agent.working_directory, facts.home, own);
  spec.stdout_path = at.stdout_log;
  spec.stderr_path = at.stderr_log;
  spec.keep_alive = agent.keep_alive;
  spec.any_session = at.domain.starts_with("user/");
  return spec;
}

}  // namespace

bool in_guest(const Step& step) {
  return !std::holds_alternative<SetPower>(step) && !std::holds_alternative<SetPreference>(step) &&
         !std::holds_alternative<StageShare>(step);
}

std::string described(const Step& step) {
  return std::visit(
      Overloaded{
          [](const SetPower& s) { return fmt::format("VM {} → {}", shown(s.before), shown(s.after)); },
          [](const SetPreference& s) { return fmt::format("host preference {}  {} → {}", s.key.key, shown(s.before), shown(s.after)); },
          [](const MakeFolder& s) { return fmt::format("make folder {}", s.path); },
          [](const PutFile& s) {
            return fmt::format("{} {}  {}{}", s.before ? "replace" : "put", s.path, shown_bytes(s.after.size),
                               s.after.sha256.empty() ? "" : "  sha256 " + s.after.sha256.substr(0, 12));
          },
          [](const AddLine& s) { return fmt::format("add a line to {}", s.path); },
          [](const StageShare& s) {
            return fmt::format("share {} read-only, with {} of this Mac", s.folder,
                               s.items.size() == 2 ? "a file" : fmt::format("{} files", s.items.size() - 1));
          },
          [](const SetAgent& s) { return fmt::format("agent {} in {}  {} → {}", s.label, s.domain, shown(s.before), shown(s.after)); },
      },
      step);
}

std::string described_undo(const Step& step) {
  return std::visit(
      Overloaded{
          [](const SetPower& s) {
            return described(SetPower{s.after, s.before, s.start});
          },
          [](const SetPreference& s) {
            return described(SetPreference{s.key, s.after, s.before});
          },
          [](const MakeFolder& s) { return fmt::format("remove folder {}", s.path); },
          [](const PutFile& s) { return s.before ? fmt::format("put {} back as it was", s.path) : fmt::format("remove {}", s.path); },
          [](const AddLine& s) { return fmt::format("take a line out of {}", s.path); },
          [](const StageShare& s) { return fmt::format("remove the shared folder {}", s.folder); },
          [](const SetAgent& s) { return fmt::format("agent {} in {}  {} → {}", s.label, s.domain, shown(s.after), shown(s.before)); },
      },
      step);
}

Plan plan_host(const HostView& view, Restart restart, bool set_preference) {
  Plan plan;
  plan.vm = view.vm.name;
  const auto power = view.vm.power();
  if (!power) {
    throw Error(ErrorKind::busy, "vm-not-ready", fmt::format("'{}' is {}", view.vm.name, view.vm.status))
        .fix("wait until lume lists it as stopped or running, then try again");
  }
  if (const auto* container = std::get_if<PrefContainer>(&view.preference); container && set_preference) {
    throw Error(
        ErrorKind::usage, "preference-foreign",
        fmt::format("the host preference {} holds a {}, which lumelift could not put back", feature_level_key().key, container->type))
        .note("domain " + feature_level_key().domain)
        .fix("look at it with: defaults read " + feature_level_key().domain + "; or go on without it: --host-preference keep");
  }
  const auto own = std::find_if(view.claims.begin(), view.claims.end(), [&](const Claim& c) { return c.vm == view.vm.name; });
  const auto other = std::find_if(view.claims.begin(), view.claims.end(), [&](const Claim& c) { return c.vm != view.vm.name; });
  const bool must_write = set_preference && view.preference != unlocked_value;
  const bool must_claim = set_preference && own == view.claims.end();

  const bool running = *power == Power::running;
  const bool stale = running && set_preference && !must_write && view.running_since && view.preference_since &&
                     *view.running_since + clock_slack_s < *view.preference_since;
  const bool cycle = running && (restart == Restart::always || (restart == Restart::automatic && (must_write || stale)));
  if (running && restart == Restart::never && (must_write || stale)) {
    plan.notes.emplace_back("the VM keeps running: the preference takes effect at its next start (--restart never)");
  }
  if (stale && cycle) {
    plan.notes.emplace_back("restart: the VM was started before the preference was set");
  }
  if (!set_preference) {
    plan.notes.push_back(fmt::format("host preference left as it is: {}", shown(view.preference)));
  }

  const StartOptions start = start_options(view.vm);
  if (cycle) {
    plan.steps.emplace_back(SetPower{Power::running, Power::stopped, start});
  }
  if (must_write || must_claim) {
    // Whoever claimed it first knows what was there before any of us.
    const PrefValue before = other != view.claims.end() ? pref_from_json(other->before) : view.preference;
    plan.steps.emplace_back(SetPreference{feature_level_key(), before, unlocked_value});
  }
  if (cycle || !running) {
    plan.steps.emplace_back(SetPower{Power::stopped, Power::running, start});
  }
  return plan;
}

std::string authorized_keys(const std::string& home) {
  return home + "/.ssh/authorized_keys";
}

std::vector<Step> plan_key(const std::string& home, const std::string& key, const PathSeen& ssh_folder, LineSeen line) {
  if (ssh_folder.kind != PathKind::absent && ssh_folder.kind != PathKind::folder) {
    throw Error(ErrorKind::failed, "guest-path-unsafe", fmt::format("in the guest, {}/.ssh is not a folder", home))
        .fix("look at it in the guest and move it away");
  }
  std::vector<Step> steps;
  if (line == LineSeen::present) {
    return steps;
  }
  if (ssh_folder.kind == PathKind::absent) {
    steps.emplace_back(MakeFolder{home + "/.ssh", 0700});
  }
  steps.emplace_back(AddLine{authorized_keys(home), key, line == LineSeen::no_file});
  return steps;
}

std::string guest_root(const std::string& home) {
  return home + "/.local/share/lumelift";
}

std::vector<std::string> GuestGoal::paths() const {
  std::vector<std::string> out;
  for (const auto& folder : folders) {
    out.push_back(folder.path);
  }
  for (const auto& file : files) {
    out.push_back(file.path);
  }
  return out;
}

GuestGoal guest_goal(const Profile& profile, const std::optional<Workload>& workload, const std::vector<Source>& kit,
                     const std::vector<Source>& sources, const GuestFacts& facts, std::string_view agent_skeleton) {
  GuestGoal goal;
  const std::string root = guest_root(facts.home);
  std::set<std::string> known;
  add_folder(goal, known, root, facts.home, 0755);
  const auto add_file = [&](const Source& source, const std::string& path, unsigned mode) {
    add_folder(goal, known, std::filesystem::path(path).parent_path().string(), facts.home, 0755);
    FileState state = source.state;
    state.mode = mode;
    goal.files.push_back({path, source.file, {}, state});
  };
  for (const auto& source : kit) {
    add_file(source, root + "/" + source.to, source.state.mode);
  }
  goal.library = root + "/liblumelift-metal.dylib";
  goal.probe = root + "/lumelift-probe";
  goal.probe_receipt = root + "/run/probe.json";
  add_folder(goal, known, root + "/run", facts.home, 0700, true);
  if (!workload) {
    return goal;
  }

  const std::string own = root + "/" + workload->name;
  std::set<std::string> programs;
  for (const auto& agent : workload->agents) {
    programs.insert(absolute(agent.executable, facts.home, own));
  }
  add_folder(goal, known, own, facts.home, 0755);
  add_folder(goal, known, own + "/run", facts.home, 0700, true);
  for (const auto& source : sources) {
    if (source.delivery == Delivery::share) {
      continue;
    }
    const std::string path = absolute(source.to, facts.home, own);
    if (!path.starts_with(facts.home + "/")) {
      throw Error(ErrorKind::usage, "workload-invalid",
                  fmt::format("'{}' would be written to {}, outside the guest user's home", source.file.string(), path))
          .fix("use a relative destination, or one beginning with ~/");
    }
    add_file(source, path, programs.contains(path) ? 0755 : source.state.mode);
  }

  for (const auto& agent : workload->agents) {
    goal.agents.push_back(agent_goal(agent, own, facts));
    for (const auto& log : {goal.agents.back().stdout_log, goal.agents.back().stderr_log}) {
      if (log.starts_with(facts.home + "/")) {
        add_folder(goal, known, std::filesystem::path(log).parent_path().string(), facts.home, 0755);
      }
    }
  }
  add_folder(goal, known, facts.home + "/Library/LaunchAgents", facts.home, 0755);
  for (std::size_t i = 0; i < goal.agents.size(); ++i) {
    const std::string plist =
        render_agent(agent_skeleton, agent_spec(profile, workload->agents[i], goal.agents[i], goal.library, own, facts));
    goal.files.push_back({goal.agents[i].plist, {}, plist, {sys::sha256(plist), 0644, plist.size()}});
  }
  // A cache of checksums; it goes with the rest when it was not there before.
  if (std::any_of(goal.files.begin(), goal.files.end(), [](const GuestGoal::File& file) { return file.state.size >= large_file; })) {
    add_folder(goal, known, fmt::format("{}/{}", facts.home, Manifest::folder), facts.home, 0700, true);
  }
  check_distinct(goal);
  return goal;
}

namespace {

void check_folder(const GuestGoal::Folder& folder, const PathSeen& seen, const GuestFacts& facts) {
  if (seen.kind != PathKind::absent && seen.kind != PathKind::folder) {
    throw Error(ErrorKind::failed, "guest-path-unsafe", fmt::format("in the guest, {} is not a folder", folder.path))
        .fix("look at it in the guest and move it away; a link there could lead our files elsewhere");
  }
  if (!folder.path.ends_with("/Library/LaunchAgents") || seen.kind == PathKind::absent) {
    return;
  }
  if (seen.owner != facts.uid || (seen.mode & 0022) != 0) {
    throw Error(ErrorKind::failed, "agent-folder-unsafe",
                fmt::format("launchd would refuse agents in {}: owner {} (needs {}), mode {:04o} (must not be writable by others)",
                            folder.path, seen.owner, facts.uid, seen.mode))
        .fix(fmt::format("in the guest: sudo chown {} {} && chmod 755 {}", facts.user, folder.path, folder.path));
  }
}

void check_file(const GuestGoal::File& file, const PathSeen& seen) {
  if (seen.kind == PathKind::absent || seen.kind == PathKind::file) {
    return;
  }
  throw Error(ErrorKind::failed, "guest-path-unsafe",
              fmt::format("in the guest, {} is a {}, not a file", file.path,
                          seen.kind == PathKind::link     ? "link"
                          : seen.kind == PathKind::folder ? "folder"
                                                          : "special file"))
      .fix("look at it in the guest and move it away");
}

}  // namespace

Plan plan_guest(const std::string& vm, const GuestGoal& goal, const std::vector<PathSeen>& seen, const std::vector<AgentSeen>& agents,
                const GuestFacts& facts) {
  Plan plan;
  plan.vm = vm;
  std::vector<Step> files;
  std::set<std::string> changed_plists;
  for (std::size_t i = 0; i < goal.folders.size(); ++i) {
    const auto& folder = goal.folders[i];
    check_folder(folder, seen.at(i), facts);
    if (seen[i].kind == PathKind::absent) {
      plan.steps.emplace_back(MakeFolder{folder.path, folder.mode, folder.with_content});
    }
  }
  const auto is_plist = [&](const std::string& path) {
    return std::any_of(goal.agents.begin(), goal.agents.end(), [&](const GuestGoal::Agent& agent) { return agent.plist == path; });
  };
  bool changed = false;
  for (std::size_t i = 0; i < goal.files.size(); ++i) {
    const auto& file = goal.files[i];
    const PathSeen& now = seen.at(goal.folders.size() + i);
    check_file(file, now);
    if (now.file == file.state) {
      continue;
    }
    files.emplace_back(PutFile{file.path, file.source, now.file, file.state, file.content});
    if (is_plist(file.path)) {
      changed_plists.insert(file.path);
    } else {
      changed = true;
    }
  }
  std::vector<Step> loads;
  for (std::size_t i = 0; i < goal.agents.size(); ++i) {
    const auto& want = goal.agents[i];
    const AgentSeen& now = agents.at(i);
    if (now.loaded && !now.path.empty() && now.path != want.plist) {
      throw Error(ErrorKind::failed, "agent-label-taken",
                  fmt::format("the label {} is loaded from {}, which lumelift did not install", want.label, now.path))
          .fix("give the workload another 'label'");
    }
    const bool alive = now.loaded && now.pid.has_value();
    const bool reload = now.loaded && (changed || changed_plists.contains(want.plist) || !alive);
    if (reload) {
      plan.steps.emplace_back(SetAgent{want.domain, want.label, want.plist, AgentState::loaded, AgentState::unloaded});
    }
    if (now.disabled) {
      loads.emplace_back(SetAgent{want.domain, want.label, want.plist, AgentState::disabled, AgentState::unloaded});
    }
    if (!now.loaded || reload) {
      loads.emplace_back(SetAgent{want.domain, want.label, want.plist, AgentState::unloaded, AgentState::loaded});
    }
  }
  plan.steps.insert(plan.steps.end(), files.begin(), files.end());
  plan.steps.insert(plan.steps.end(), loads.begin(), loads.end());
  return plan;
}

}  // namespace lumelift
