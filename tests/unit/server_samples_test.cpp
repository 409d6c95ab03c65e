#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "cli/bench_server.hpp"
#include "cli/receipt.hpp"
#include "cli/samples.hpp"
#include "host/sys/error.hpp"

using namespace lumelift;
using nlohmann::json;

namespace {

json results(json replies) {
  return {{"schema_version", 1},
          {"kind", "lumelift-server"},
          {"server", {{"name", "Ollama"}, {"version", "0.9.1"}}},
          {"model", {{"name", "tiny:1b"}, {"digest", "abc"}}},
          {"configuration", {{"prompt_words", 100}, {"generation_tokens", 20}, {"seed", 42}}},
          {"replies", std::move(replies)}};
}

json ollama(int prompt, int generated) {
  return {{"prompt_eval_count", prompt}, {"prompt_eval_duration", 500'000'000}, {"eval_count", generated}, {"eval_duration", 250'000'000}};
}

std::string refusal(const json& document) {
  const auto arm = parse_arm(document.dump(), "stock-1.json");
  REQUIRE(arm);
  return arm->refusals.empty() ? "" : arm->refusals.front();
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("rates come from a server's own replies") {
  const auto arm = parse_arm(results({ollama(110, 20), ollama(100, 20)}).dump(), "stock-1.json");
  REQUIRE(arm);
  CHECK(arm->refusals.empty());
  CHECK(arm->tool == "Ollama");
  CHECK(arm->model == "tiny:1b");
  CHECK(arm->build == "0.9.1");
  REQUIRE(arm->rows.size() == 2);
  CHECK(arm->rows[0].test == "prompt ~100");
  CHECK(arm->rows[0].rates == std::vector<double>{220, 200});
  CHECK(arm->rows[1].test == "generate 20");
  CHECK(arm->rows[1].rates == std::vector<double>{80, 80});
  CHECK(arm->rows[0].settings.at("model_digest") == "\"abc\"");

  auto reply = json{{"timings",
                     {{"prompt_n", 100},
                      {"prompt_ms", 50.0},
                      {"prompt_per_second", 2000.0},
                      {"predicted_n", 20},
                      {"predicted_ms", 100.0},
                      {"predicted_per_second", 200.0}}}};
  CHECK(parse_arm(results({reply}).dump(), "x")->rows[0].rates == std::vector<double>{2000});
  reply["timings"]["predicted_ms"] = 101.0;
  CHECK(has(refusal(results({reply})), "edited"));
}

TEST_CASE("replies out of a cache, short or missing ones are refused") {
  auto cached = ollama(110, 20);
  cached["prompt_eval_cached_count"] = 60;
  CHECK(has(refusal(results({cached})), "only 50 tokens"));
  CHECK(has(refusal(results({ollama(30, 20)})), "out of a cache"));
  CHECK(has(refusal(results({ollama(110, 3)})), "ended after 3 of 20"));
  CHECK(has(refusal(results(json::array())), "empty"));
  CHECK(has(refusal(results({json{{"error", "x"}}})), "has no prompt_eval_count"));
  for (const char* key : {"server", "model", "configuration", "replies"}) {
    auto less = results({ollama(110, 20)});
    less.erase(key);
    CHECK_FALSE(refusal(less).empty());
  }
  auto unnamed = results({ollama(110, 20)});
  unnamed["server"]["version"] = "";
  CHECK(has(refusal(unnamed), "version"));
}

TEST_CASE("prompts are the same everywhere and differ from their first word on") {
  CHECK(server_prompt(3, 7) == server_prompt(3, 7));
  for (int number = 0; number < 30; ++number) {
    const auto one = server_prompt(40, number), next = server_prompt(40, number + 1);
    CHECK(one.substr(0, one.find(' ')) != next.substr(0, next.find(' ')));
    CHECK(std::count(one.begin(), one.end(), ' ') == 39);
  }
}

TEST_CASE("a question is greedy, seeded, uncached and whole") {
  const auto llama = json::parse(server_question(Subject::llama_server, "/m.gguf", "a \"b\"", 5, Role::cpu).body);
  CHECK(llama["prompt"] == "a \"b\"");
  CHECK(llama["n_predict"] == 5);
  CHECK(llama["cache_prompt"] == false);
  CHECK(llama["ignore_eos"] == true);
  const auto asked = server_question(Subject::ollama, "tiny", "a", 5, Role::cpu);
  CHECK(asked.path == "/api/generate");
  CHECK(json::parse(asked.body)["options"]["num_gpu"] == 0);
  CHECK_FALSE(json::parse(server_question(Subject::ollama, "tiny", "a", 5, Role::stock).body)["options"].contains("num_gpu"));
}

TEST_CASE("a target lies inside the guest") {
  CHECK(target_port("http://127.0.0.1:8080") == 8080);
  CHECK(target_port("http://localhost:11434/") == 11434);
  for (const char* wrong : {"", "8080", "http://127.0.0.1", "http://127.0.0.1:", "http://127.0.0.1:0", "http://127.0.0.1:99999",
                            "https://127.0.0.1:80", "http://10.0.0.1:80", "http://127.0.0.1:80/x"}) {
    CHECK_THROWS_AS((void)target_port(wrong), Error);
  }
}

TEST_CASE("one process of a tree with raised answers proves it") {
  const std::string armed = R"({"pid": 1, "outcome": "armed"})", active = R"({"pid": 2, "outcome": "active"})";
  CHECK(receipts_defect(armed + "\n" + active + "\n").empty());
  CHECK(has(receipts_defect(armed + "\n"), "none of them asked"));
  CHECK(has(receipts_defect(""), "wrote no receipt"));
  CHECK(has(receipts_defect("nonsense\n"), "wrote no receipt"));
}
