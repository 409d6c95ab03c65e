#include <cmath>
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/samples_document.hpp"
#include "cli/statistics.hpp"

namespace lumelift {
namespace {

using nlohmann::json;

/// A reason to refuse the arm; stays inside this file.
struct Refusal {
  std::string reason;
};

/// Empty where it is absent; a value of another type is json's exception, as everywhere below.
std::string text_of(const json& object, const char* key) {
  return object.value(key, "");
}

std::string last_part(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

void mlx_row(const json& document, const char* rate_key, const char* tokens_key, const char* prefix, Arm& arm) {
  Row row;
  const auto& configuration = document.at("configuration");
  const auto tokens = configuration.at(tokens_key).get<std::int64_t>();
  row.test = fmt::format("{}{}", prefix, tokens);
  for (const auto& sample : document.at("samples")) {
    if (!sample.is_object() || !sample.contains(rate_key) || !sample[rate_key].is_number()) {
      throw Refusal{fmt::format("sample {} has no {}", row.rates.size() + 1, rate_key)};
    }
    row.rates.push_back(sample[rate_key].get<double>());
    if (!std::isfinite(row.rates.back()) || row.rates.back() <= 0) {
      throw Refusal{fmt::format("{} holds {}, which no measurement gives", rate_key, row.rates.back())};
    }
    if (sample.contains(tokens_key) && sample[tokens_key] != tokens) {
      throw Refusal{fmt::format("sample {} ran {} tokens, not {}", row.rates.size(), sample[tokens_key].dump(), tokens)};
    }
  }
  if (row.rates.empty()) throw Refusal{"samples is empty"};
  if (const auto medians = document.find("median"); medians != document.end() && medians->contains(rate_key)) {
    const auto median = summarise(row.rates).median;
    if (!medians->at(rate_key).is_number() || std::abs(medians->at(rate_key).get<double>() - median) > 1e-9 * median) {
      throw Refusal{fmt::format("median {} does not follow from the samples: the file was edited", rate_key)};
    }
  }
  for (const auto& [key, value] : configuration.items()) {
    if (!value.is_structured()) row.settings[key] = value.dump();
  }
  if (const auto& model = document.at("model"); model.contains("revision")) {
    row.settings["model_revision"] = model["revision"].dump();
  }
  arm.rows.push_back(std::move(row));
}

double number_of(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) throw Refusal{fmt::format("a reply has no {}", key)};
  const auto value = found->get<double>();
  if (!std::isfinite(value) || value <= 0)
    throw Refusal{fmt::format("a reply says {} for {}, which no measurement gives", found->dump(), key)};
  return value;
}

/// Tokens and seconds of one half of a reply.
struct Half {
  double tokens = 0, seconds = 0;
  [[nodiscard]] double rate() const { return tokens / seconds; }
};

struct Reply {
  Half prompt, generation;
};

/// llama-server counts only the tokens of the prompt that it evaluated, and says the rate as well.
Reply llama_server_reply(const json& timings) {
  const auto half = [&](const char* tokens, const char* milliseconds, const char* rate) {
    const Half made{number_of(timings, tokens), number_of(timings, milliseconds) / 1000};
    if (timings.contains(rate) && std::abs(number_of(timings, rate) - made.rate()) > 0.002 * made.rate()) {
      throw Refusal{fmt::format("{} does not follow from {} and {}: the file was edited", rate, tokens, milliseconds)};
    }
    return made;
  };
  return {half("prompt_n", "prompt_ms", "prompt_per_second"), half("predicted_n", "predicted_ms", "predicted_per_second")};
}

/// Ollama's durations are nanoseconds; of late its count holds the tokens from the cache as well, which took no time.
Reply ollama_reply(const json& reply) {
  const auto cached = reply.value("prompt_eval_cached_count", std::int64_t{0});
  return {{number_of(reply, "prompt_eval_count") - static_cast<double>(cached), number_of(reply, "prompt_eval_duration") / 1e9},
          {number_of(reply, "eval_count"), number_of(reply, "eval_duration") / 1e9}};
}

void server_rows(const json& document, Arm& arm) {
  const auto& configuration = document.at("configuration");
  const auto words = configuration.at("prompt_words").get<std::int64_t>(),
             tokens = configuration.at("generation_tokens").get<std::int64_t>();
  Row prompt, generation;
  prompt.test = fmt::format("prompt ~{}", words);
  generation.test = fmt::format("generate {}", tokens);
  for (const auto& entry : document.at("replies")) {
    const auto reply = entry.contains("timings") ? llama_server_reply(entry["timings"]) : ollama_reply(entry);
    // A word is a token or two; far fewer were not evaluated now but came out of a cache.
    if (reply.prompt.tokens < 0.75 * static_cast<double>(words)) {
      throw Refusal{
          fmt::format("only {} tokens of a prompt of {} words were evaluated: the rest came out of a cache", reply.prompt.tokens, words)};
    }
    if (reply.generation.tokens < 0.5 * static_cast<double>(tokens)) {
      throw Refusal{fmt::format("a reply ended after {} of {} tokens", reply.generation.tokens, tokens)};
    }
    prompt.rates.push_back(six_digits(reply.prompt.rate()));
    generation.rates.push_back(six_digits(reply.generation.rate()));
  }
  if (prompt.rates.empty()) throw Refusal{"replies is empty"};
  for (const auto& [key, value] : configuration.items()) {
    if (!value.is_structured()) prompt.settings[key] = value.dump();
  }
  if (const auto digest = text_of(document.at("model"), "digest"); !digest.empty()) prompt.settings["model_digest"] = json(digest).dump();
  generation.settings = prompt.settings;
  arm.rows = {std::move(prompt), std::move(generation)};
}

void read_mlx(const json& document, Arm& arm) {
  const auto& model = document.at("model");
  if (!model.is_object() || !document.at("configuration").is_object()) throw Refusal{"model or configuration is no object"};
  arm.model = last_part(text_of(model, "id"));
  if (arm.model.empty()) throw Refusal{"the model has no id"};
  if (const auto runtime = document.find("runtime"); runtime != document.end() && runtime->is_object()) {
    for (const auto* key : {"python", "mlx", "mlx_lm"}) {
      if (const auto version = text_of(*runtime, key); !version.empty()) {
        arm.build += fmt::format("{}{} {}", arm.build.empty() ? "" : ", ", key, version);
      }
    }
    arm.platform = text_of(*runtime, "platform");
  }
  if (arm.build.empty()) throw Refusal{"the runtime does not say its versions"};
  mlx_row(document, "prompt_tps", "prompt_tokens", "pp", arm);
  mlx_row(document, "generation_tps", "generation_tokens", "tg", arm);
}

void read_server(const json& document, Arm& arm) {
  arm.tool = text_of(document.at("server"), "name");
  arm.model = last_part(text_of(document.at("model"), "name"));
  if (arm.model.ends_with(".gguf")) arm.model.erase(arm.model.size() - 5);
  arm.build = text_of(document.at("server"), "version");
  if (arm.tool.empty() || arm.model.empty()) throw Refusal{"server or model has no name"};
  if (arm.build.empty()) throw Refusal{"the server does not say its version"};
  server_rows(document, arm);
}

bool looks_like_mlx(const json& document) {
  return document.contains("samples") && document["samples"].is_array() && document.contains("configuration") && document.contains("model");
}

bool looks_like_server(const json& document) {
  return document.contains("kind") && document["kind"] == "lumelift-server";
}

}  // namespace

std::optional<Arm> document_arm(std::string_view text, std::string source) {
  const auto document = json::parse(text, nullptr, false);
  if (!document.is_object()) return std::nullopt;
  const bool mlx = looks_like_mlx(document);
  if (!mlx && !looks_like_server(document)) return std::nullopt;
  Arm arm;
  arm.source = std::move(source);
  if (mlx) arm.tool = "MLX-LM";
  try {
    mlx ? read_mlx(document, arm) : read_server(document, arm);
  } catch (const Refusal& refusal) {
    arm.refusals.push_back(refusal.reason);
  } catch (const json::exception&) {
    arm.refusals.emplace_back("keys of the benchmark are missing or have other types");
  }
  return arm;
}

}  // namespace lumelift
