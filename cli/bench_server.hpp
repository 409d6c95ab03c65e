#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "cli/bench.hpp"
#include "cli/bench_guest.hpp"

namespace lumelift {

/// One request for a continuation: greedy, with a fixed seed, whole in one reply.
struct ServerQuestion {
  std::string path, body;
};

/// `prompt` continued by `tokens` tokens. The CPU side of Ollama is a matter of the request. Pure.
[[nodiscard]] ServerQuestion server_question(Subject subject, const std::string& model, const std::string& prompt, int tokens, Role role);

/// `words` words, each a token in most vocabularies, another text for each `number`: from its first word on, so that no repetition
/// is answered from a cache. The same on every machine. Pure.
[[nodiscard]] std::string server_prompt(int words, int number);

/// Asks a running server of the guest as a run of llama-bench would measure: a warm-up, then the repetitions, each with a prompt
/// of its own; the rates are in its own replies. Returns the JSON object that parse_arm() reads: the replies' figures as they came,
/// version, model and parameters. `limit` is for one reply. Throws Error "bench-server" (what it answered), and what http() throws.
[[nodiscard]] std::string ask_server(Session& session, const BenchSettings& settings, const BenchRun& run, const std::string& model,
                                     sys::Milliseconds limit);

/// The text that it continues `prompt` with. Throws likewise.
[[nodiscard]] std::string ask_server_text(Session& session, const BenchSettings& settings, Role role, const std::string& model,
                                          const std::string& prompt, int tokens, sys::Milliseconds limit);

/// Starts a server of the guest, waits until it is ready, lets `ask` ask it, and ends it. `out` is what `ask` returned; what the
/// server printed is in `err`. A server that ends too early, or does not answer within `limit`, is a defect of the run. Throws
/// Error "bench-port-taken" (usage) when something listens there already, what Session throws, sys::Interrupted.
[[nodiscard]] Watched run_served(Session& session, const Launch& launch, const BenchSettings& settings, sys::Milliseconds limit,
                                 const std::function<std::string()>& ask);

}  // namespace lumelift
