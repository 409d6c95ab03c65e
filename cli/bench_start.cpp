#include "cli/bench_start.hpp"

#include <fmt/format.h>

#include "cli/bench_server.hpp"
#include "cli/receipt.hpp"

namespace lumelift {
namespace {

constexpr std::size_t receipt_cap = 64u << 10;
constexpr sys::Milliseconds tool_limit{15'000};

/// Receipts of all processes of a server: Ollama's own process never asks for the GPU, the runners that it starts do. Each is one
/// line. The name holds a token that only they were told.
std::string take_receipts(Session& session, const std::string& start) {
  const std::string files = quote(start) + "*.json";
  // Not in the login shell, which may take a pattern without a match for an error.
  return session.exec(quote({"/bin/sh", "-c", "/bin/cat " + files + "; /bin/rm -f " + files}), sys::Deadline::in(tool_limit)).out;
}

}  // namespace

Launch BenchStarter::launch(std::vector<std::string> program, const std::vector<std::string>& words) const {
  program.insert(program.end(), words.begin(), words.end());
  Launch made{std::move(program), {}, place_.folder};
  if (settings_.subject == Subject::ollama) {
    made.environment.emplace_back("OLLAMA_HOST", fmt::format("127.0.0.1:{}", settings_.port));
  }
  return made;
}

Started BenchStarter::start(Role role, Launch launch, const std::function<Watched(const Launch&)>& run) {
  Started started;
  started.launch = std::move(launch);
  if (role != Role::unlocked) {
    started.ran = run(started.launch);
    started.why = started.ran.defect;
    return started;
  }
  const bool whole_tree = settings_.subject == Subject::ollama;
  const std::string token = guest_root(place_.folder) + "/run/bench-" + fresh_token();
  const std::string path = token + (whole_tree ? "-%p.json" : ".json");
  auto& environment = started.launch.environment;
  const auto policy = profile_environment(profile_);
  environment.emplace_back("DYLD_INSERT_LIBRARIES", place_.goal.library);
  environment.insert(environment.end(), policy.begin(), policy.end());
  environment.emplace_back("LUMELIFT_RECEIPT", path);
  if (!whole_tree) {
    environment.emplace_back("LUMELIFT_INHERIT", "0");
  }
  started.ran = run(started.launch);
  if (whole_tree) {
    started.receipt = take_receipts(link_.session(), token);
    started.why = receipts_defect(started.receipt);
  } else {
    started.receipt = link_.transfer().read(path, receipt_cap).value_or("");
    link_.guest().remove_file(path);
    started.why = receipt_defect(started.receipt, started.ran.pid);
  }
  if (!started.ran.defect.empty()) {
    started.why = started.ran.defect;
  }
  return started;
}

Started BenchStarter::measure(const BenchRun& run) {
  auto made = launch(place_.program(), bench_words(settings_, run, place_.model));
  Session& session = link_.session();
  if (is_server(settings_.subject)) {
    return start(run.role, std::move(made), [&](const Launch& what) {
      return run_served(session, what, settings_, repetition_,
                        [&] { return ask_server(session, settings_, run, place_.model, repetition_); });
    });
  }
  // What prints only at its end may be silent for all of it.
  const auto silence = silence_limit(run, repetition_) * (settings_.subject == Subject::mlx ? 2 : 1);
  return start(run.role, std::move(made), [&](const Launch& what) { return run_watched(session, what, {.silence = silence}); });
}

Started BenchStarter::write_text(Role role, const std::string& prompt, int tokens) {
  Session& session = link_.session();
  if (is_server(settings_.subject)) {
    const BenchRun run{role, 1, 1};
    return start(role, launch(place_.program(), bench_words(settings_, run, place_.model)), [&](const Launch& what) {
      return run_served(session, what, settings_, repetition_,
                        [&] { return ask_server_text(session, settings_, role, place_.model, prompt, tokens, repetition_); });
    });
  }
  const auto words = text_words(settings_.subject, place_.model, prompt, tokens, role);
  // One token is never slower than one repetition; loading and prompt come first.
  return start(role, launch(place_.text_program(), words),
               [&](const Launch& what) { return run_watched(session, what, {.silence = repetition_ * 2}); });
}

}  // namespace lumelift
