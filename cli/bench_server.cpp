#include "cli/bench_server.hpp"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "cli/json_text.hpp"
#include "host/sys/error.hpp"
#include "remote/http.hpp"

namespace lumelift {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using sys::Deadline;
using sys::Milliseconds;

constexpr int seed = 42;
constexpr Milliseconds question_limit{10'000}, end_limit{10'000}, look_every{100};
constexpr std::array vocabulary{"time",  "water", "house", "light", "right", "small", "large", "place", "world", "group", "point",
                                "hand",  "part",  "line",  "name",  "city",  "book",  "word",  "state", "night", "power", "white",
                                "music", "river", "table", "green", "field", "voice", "paper", "story", "money", "game"};

std::string dumped(const ordered_json& object) {
  return object.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

/// What the server answered, which must be a JSON object with status 200.
json answer(Session& session, int port, const ServerQuestion& question, const Deadline& deadline) {
  const auto reply = http(session, port, question.path, question.body, deadline);
  if (!reply) {
    throw Error(ErrorKind::unproven, "bench-server", fmt::format("nobody answers {} any more", question.path));
  }
  auto object = json::parse(json_text(reply->body), nullptr, false);
  if (reply->status == 200 && object.is_object()) {
    return object;
  }
  throw Error(ErrorKind::unproven, "bench-server",
              fmt::format("{} was answered with status {}: {}", question.path, reply->status, reply->body.substr(0, 200)));
}

std::string word(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// Only what was measured: the texts, and Ollama's list of token numbers, would be most of the file.
ordered_json figures(const json& reply) {
  if (reply.contains("timings")) {
    return {{"timings", reply["timings"]}};
  }
  ordered_json kept = ordered_json::object();
  for (const auto& [key, value] : reply.items()) {
    if (value.is_number()) {
      kept[key] = value;
    }
  }
  return kept;
}

/// Which program answers, and for Ollama which model stands behind the name.
void describe(Session& session, const BenchSettings& settings, const std::string& model, ordered_json& out) {
  const auto ask = [&](const char* path) { return answer(session, settings.port, {path, ""}, Deadline::in(question_limit)); };
  const bool ollama = settings.subject == Subject::ollama;
  const auto slash = model.rfind('/');
  out["server"] = {{"name", subject_name(settings.subject)},
                   {"version", ollama ? word(ask("/api/version"), "version") : word(ask("/props"), "build_info")}};
  out["model"] = {{"name", ollama || slash == model.npos ? model : model.substr(slash + 1)}};
  if (!ollama) {
    return;
  }
  const auto tags = ask("/api/tags");
  for (const auto& known : tags.value("models", json::array())) {
    const auto name = word(known, "name");
    if (name == model || name == model + ":latest") {
      out["model"]["digest"] = word(known, "digest");
    }
  }
}

bool ready(Session& session, const BenchSettings& settings) {
  const auto reply =
      http(session, settings.port, settings.subject == Subject::ollama ? "/api/version" : "/health", "", Deadline::in(question_limit));
  return reply && reply->status == 200;  // llama-server says 503 while it loads the model
}

void refuse_taken_port(Session& session, int port) {
  bool taken = true;
  try {
    taken = http(session, port, "/", "", Deadline::in(question_limit)).has_value();
  } catch (const Error& error) {
    if (error.id() != "guest-http" && error.id() != "guest-timeout") {
      throw;
    }
  }
  if (!taken) {
    return;
  }
  throw Error(ErrorKind::usage, "bench-port-taken",
              fmt::format("something listens on port {} of the guest already, and would be measured instead", port))
      .fix("stop it, or name another port with --target");
}

}  // namespace

ServerQuestion server_question(Subject subject, const std::string& model, const std::string& prompt, int tokens, Role role) {
  if (subject == Subject::llama_server) {
    return {"/completion", dumped({{"prompt", prompt},
                                   {"n_predict", tokens},
                                   {"temperature", 0},
                                   {"seed", seed},
                                   {"ignore_eos", true},
                                   {"cache_prompt", false},
                                   {"stream", false}})};
  }
  ordered_json options = {{"num_predict", tokens}, {"temperature", 0}, {"seed", seed}};
  if (role == Role::cpu) {
    options["num_gpu"] = 0;
  }
  return {"/api/generate", dumped({{"model", model}, {"prompt", prompt}, {"raw", true}, {"stream", false}, {"options", options}})};
}

std::string server_prompt(int words, int number) {
  // A linear congruential generator is random enough for words; the first one tells the prompts apart.
  std::uint32_t state = static_cast<std::uint32_t>(number) * 2654435761u + seed;
  std::string text = vocabulary[static_cast<std::size_t>(number) % vocabulary.size()];
  for (int i = 1; i < words; ++i) {
    state = state * 1664525u + 1013904223u;
    text += fmt::format(" {}", vocabulary[(state >> 16) % vocabulary.size()]);
  }
  return text;
}

std::string ask_server(Session& session, const BenchSettings& settings, const BenchRun& run, const std::string& model, Milliseconds limit) {
  const int words = std::stoi(settings.prompts), tokens = std::stoi(settings.generations);
  ordered_json out = {{"schema_version", 1}, {"kind", "lumelift-server"}};
  describe(session, settings, model, out);
  out["configuration"] = {
      {"prompt_words", words}, {"generation_tokens", tokens}, {"seed", seed}, {"temperature", 0}, {"warm_up", settings.warm_up}};
  if (run.role == Role::cpu) {
    out["configuration"]["devices"] = "none";
  }
  // Each round has prompts of its own, each arm the same ones.
  int number = run.round * 100'000;
  const auto ask = [&] {
    return figures(answer(session, settings.port,
                          server_question(settings.subject, model, server_prompt(words, number++), tokens, run.role), Deadline::in(limit)));
  };
  if (settings.warm_up) {
    out["warmup"] = ask();
  }
  auto replies = ordered_json::array();
  for (int i = 0; i < run.repetitions; ++i) {
    replies.push_back(ask());
  }
  out["replies"] = replies;
  return out.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string ask_server_text(Session& session, const BenchSettings& settings, Role role, const std::string& model, const std::string& prompt,
                            int tokens, Milliseconds limit) {
  const auto reply = answer(session, settings.port, server_question(settings.subject, model, prompt, tokens, role), Deadline::in(limit));
  return word(reply, settings.subject == Subject::ollama ? "response" : "content") + "\n";
}

Watched run_served(Session& session, const Launch& launch, const BenchSettings& settings, Milliseconds limit,
                   const std::function<std::string()>& ask) {
  refuse_taken_port(session, settings.port);
  std::optional<std::string> answered;
  std::string defect;
  sys::Stopwatch since_start, since_end;
  bool ending = false;
  const auto conduct = [&](int pid) {
    if (ending) {
      if (since_end.elapsed() > end_limit) {
        kill_in_guest(session, pid, "KILL");
      }
      return;
    }
    try {
      if (ready(session, settings)) {
        answered = ask();
      } else if (since_start.elapsed() > limit) {
        defect = fmt::format("the server was not ready within {} s", limit.count() / 1000);
      } else {
        return;
      }
    } catch (const Error& error) {
      if (error.id() == "guest-lost") {
        throw;
      }
      defect = error.message();
    }
    ending = true;
    since_end = sys::Stopwatch();
    kill_in_guest(session, pid, "TERM");
  };
  Watched ran = run_watched(session, launch, {.every = look_every, .conduct = conduct});
  ran.err += ran.out;
  ran.out = answered.value_or("");
  ran.defect = !defect.empty() || answered ? defect : "the server ended by itself: " + ran.ending;
  // It was told to end: how it did so says nothing.
  if (answered) {
    ran.status = 0;
  }
  return ran;
}

}  // namespace lumelift
