#include "cli/samples.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/json_text.hpp"
#include "cli/samples_document.hpp"
#include "cli/statistics.hpp"

namespace lumelift {
namespace {

using nlohmann::json;

constexpr std::array<std::pair<Role, std::string_view>, 5> role_names{
    {{Role::host, "host"}, {Role::stock, "stock"}, {Role::unlocked, "unlocked"}, {Role::cpu, "cpu"}, {Role::unknown, "unknown"}}};

/// A reason to refuse the arm; stays inside this file.
struct Refusal {
  std::string reason;
};

std::string last_part(std::string_view path) {
  const auto slash = path.find_last_of("/\\");
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

std::string text_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::int64_t integer_of(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) throw Refusal{fmt::format("the key {} is missing", key)};
  if (!found->is_number_integer()) throw Refusal{fmt::format("{} is no integer", key)};
  const auto value = found->get<std::int64_t>();
  if (value < 0 || value > (std::int64_t{1} << 48)) throw Refusal{fmt::format("{} is {}", key, value)};
  return value;
}

std::vector<double> numbers_of(const json& object, const char* key) {
  std::vector<double> values;
  const auto found = object.find(key);
  if (found == object.end()) return values;
  if (!found->is_array()) throw Refusal{fmt::format("{} is no list", key)};
  values.reserve(found->size());
  for (const auto& entry : *found) {
    if (!entry.is_number()) throw Refusal{fmt::format("{} holds something that is no number", key)};
    values.push_back(entry.get<double>());
    if (!std::isfinite(values.back()) || values.back() <= 0) {
      throw Refusal{fmt::format("{} holds {}, which no measurement gives", key, entry.dump())};
    }
  }
  return values;
}

std::string label(std::int64_t prompt, std::int64_t generated, std::int64_t depth) {
  std::string text;
  if (prompt > 0) text = fmt::format("pp{}", prompt);
  if (generated > 0) text += fmt::format("{}tg{}", text.empty() ? "" : "+", generated);
  if (text.empty()) throw Refusal{"n_prompt and n_gen are both 0"};
  return depth > 0 ? text + fmt::format(" @ d{}", depth) : text;
}

/// Half a unit of the sixth digit, with a little room for the decimal notation itself.
bool agrees_to_six_digits(double rate, double printed) {
  const auto unit = std::pow(10.0, std::floor(std::log10(rate)) - 5);
  return std::abs(rate - printed) <= 0.5001 * unit;
}

/// A figure that llama-bench derived from the samples must follow from them, else the file was edited.
void check_averages(const json& object, const std::vector<double>& times, const std::vector<double>& exact) {
  double time_sum = 0, rate_sum = 0;
  for (const auto time : times) time_sum += time;
  for (const auto rate : exact) rate_sum += rate;
  const auto count = static_cast<double>(times.size());
  const auto mean_time = object.find("avg_ns"), mean_rate = object.find("avg_ts");
  if (mean_time != object.end() && mean_time->is_number() && std::abs(mean_time->get<double>() - time_sum / count) > 1.0) {
    throw Refusal{fmt::format("avg_ns {} does not follow from samples_ns: the file was edited", mean_time->dump())};
  }
  const auto rate = rate_sum / count;
  if (mean_rate != object.end() && mean_rate->is_number() && std::abs(mean_rate->get<double>() - rate) > 1e-6 + 1e-9 * rate) {
    throw Refusal{fmt::format("avg_ts {} does not follow from samples_ns: the file was edited", mean_rate->dump())};
  }
}

std::vector<double> llama_rates(const json& object, double tokens) {
  const auto times = numbers_of(object, "samples_ns");
  auto printed = numbers_of(object, "samples_ts");
  if (times.empty() && printed.empty()) throw Refusal{"neither samples_ns nor samples_ts is there"};
  if (times.empty()) return printed;
  if (!printed.empty() && printed.size() != times.size()) {
    throw Refusal{fmt::format("{} samples_ns but {} samples_ts", times.size(), printed.size())};
  }
  std::vector<double> exact, rates;
  exact.reserve(times.size());
  rates.reserve(times.size());
  for (std::size_t i = 0; i < times.size(); ++i) {
    exact.push_back(1e9 * tokens / times[i]);
    if (!printed.empty() && !agrees_to_six_digits(exact.back(), printed[i])) {
      throw Refusal{fmt::format("sample {} is {:.6g} tokens/s by samples_ns but {:.6g} by samples_ts: the file was edited", i + 1,
                                exact.back(), printed[i])};
    }
    rates.push_back(six_digits(exact.back()));
  }
  check_averages(object, times, exact);
  return rates;
}

/// json::dump builds a serialiser each time, which is most of the cost of a small value.
std::string setting_text(const json& value) {
  if (value.is_string()) return "\"" + value.get_ref<const std::string&>() + "\"";
  if (value.is_number_integer()) return std::to_string(value.get<std::int64_t>());
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  return value.dump();
}

Row llama_row(const json& object) {
  static const std::set<std::string, std::less<>> not_settings{"build_commit", "build_number", "cpu_info", "gpu_info", "model_filename",
                                                               "model_type",   "test_time",    "n_prompt", "n_gen",    "n_depth",
                                                               "avg_ns",       "stddev_ns",    "avg_ts",   "stddev_ts"};
  Row row;
  const auto prompt = integer_of(object, "n_prompt"), generated = integer_of(object, "n_gen");
  // Builds before the option -d have no depth, which is the same as 0.
  const auto depth = object.contains("n_depth") ? integer_of(object, "n_depth") : 0;
  row.test = label(prompt, generated, depth);
  row.rates = llama_rates(object, static_cast<double>(prompt + generated));
  for (const auto& [key, value] : object.items()) {
    if (!value.is_structured() && !not_settings.contains(key)) {
      row.settings.emplace_hint(row.settings.end(), key, setting_text(value));
    }
  }
  return row;
}

std::string plain_chip(std::string cpu_info, bool& is_virtual) {
  // "Accelerate, Apple M1 Ultra (Virtual)": the part behind the last comma, without the mark.
  if (const auto comma = cpu_info.rfind(", "); comma != std::string::npos) cpu_info.erase(0, comma + 2);
  constexpr std::string_view mark = " (Virtual)";
  is_virtual = cpu_info.ends_with(mark);
  if (is_virtual) cpu_info.erase(cpu_info.size() - mark.size());
  return cpu_info;
}

void describe_llama(const json& object, Arm& arm) {
  arm.tool = "llama.cpp";
  arm.kind = text_of(object, "model_type");
  arm.model = last_part(text_of(object, "model_filename"));
  if (arm.model.ends_with(".gguf")) arm.model.erase(arm.model.size() - 5);
  if (arm.model.empty()) arm.model = arm.kind;
  if (arm.model.empty()) throw Refusal{"neither model_type nor model_filename is there"};
  const auto commit = text_of(object, "build_commit");
  if (commit.empty()) throw Refusal{"the key build_commit is missing"};
  arm.build = fmt::format("{} ({})", commit, integer_of(object, "build_number"));
  arm.chip = plain_chip(text_of(object, "cpu_info"), arm.virtual_cpu);
  arm.gpu = text_of(object, "gpu_info");
  arm.first_time = text_of(object, "test_time");
}

/// Two rows of one run that bear the same label (several batch sizes, say) are told apart by the settings that differ.
void tell_apart(std::vector<Row>& rows) {
  std::map<std::string, std::vector<Row*>> by_test;
  for (auto& row : rows) by_test[row.test].push_back(&row);
  for (auto& [test, same] : by_test) {
    if (same.size() < 2) continue;
    std::set<std::string> differing;
    for (const auto* row : same) {
      for (const auto& [key, value] : row->settings) {
        const auto other = same.front()->settings.find(key);
        if (other == same.front()->settings.end() || other->second != value) differing.insert(key);
      }
    }
    for (auto* row : same) {
      for (const auto& key : differing) {
        if (const auto found = row->settings.find(key); found != row->settings.end()) {
          row->test += fmt::format(" {}={}", key, found->second);
        }
      }
    }
  }
}

Arm llama_arm(const std::vector<json>& objects, std::string source) {
  Arm arm;
  arm.source = std::move(source);
  arm.tool = "llama.cpp";
  for (std::size_t i = 0; i < objects.size(); ++i) {
    try {
      Arm seen;
      describe_llama(objects[i], seen);
      auto row = llama_row(objects[i]);
      if (arm.rows.empty()) {
        seen.source = std::move(arm.source);
        seen.refusals = std::move(arm.refusals);
        arm = std::move(seen);
      } else if (seen.build != arm.build || seen.model != arm.model) {
        throw Refusal{"another build or model than the first row"};
      }
      arm.rows.push_back(std::move(row));
    } catch (const Refusal& refusal) {
      arm.refusals.push_back(fmt::format("row {}: {}", i + 1, refusal.reason));
    }
  }
  if (objects.empty()) arm.refusals.emplace_back("no test in it: the program ended before the first result");
  tell_apart(arm.rows);
  return arm;
}

/// The objects at the top level of a list or of lines that stand there in full; for files that end in the middle.
std::vector<json> complete_objects(std::string_view text) {
  std::vector<json> objects;
  int depth = 0;
  bool in_string = false, escaped = false;
  std::size_t start = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (!escaped && c == '"') in_string = false;
      escaped = !escaped && c == '\\';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{') {
      if (depth++ == 0) start = i;
    } else if (c == '}' && depth > 0 && --depth == 0) {
      auto object = json::parse(text.substr(start, i - start + 1), nullptr, false);
      if (!object.is_discarded()) objects.push_back(std::move(object));
    }
  }
  return objects;
}

bool looks_like_llama(const json& object) {
  return object.is_object() && object.contains("n_prompt") &&
         (object.contains("build_commit") || object.contains("samples_ns") || object.contains("samples_ts"));
}

}  // namespace

std::string_view role_name(Role role) {
  for (const auto& [value, name] : role_names) {
    if (value == role) return name;
  }
  return "unknown";
}

std::optional<Role> role_of(std::string_view name) {
  for (const auto& [value, known] : role_names) {
    if (known == name && value != Role::unknown) return value;
  }
  return std::nullopt;
}

std::optional<Arm> parse_arm(std::string_view text, std::string source) {
  if (json_text(text).empty() && !text.empty()) {
    return std::nullopt;
  }
  auto document = json::parse(text, nullptr, false);
  if (document.is_array()) {
    if (!document.empty() && !looks_like_llama(document.front())) return std::nullopt;
    return llama_arm(document.get_ref<const json::array_t&>(), std::move(source));
  }
  if (looks_like_llama(document)) return llama_arm({document}, std::move(source));
  if (document.is_object()) return document_arm(text, std::move(source));
  if (!document.is_discarded()) return std::nullopt;

  // Not one JSON value: lines of them, or the list of a run that was killed.
  auto objects = complete_objects(text);
  std::size_t lines = 0;
  bool every_line_parses = true;
  for (std::string_view rest = text; !rest.empty();) {
    const auto line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    ++lines;
    every_line_parses = every_line_parses && line.front() == '{' && json::accept(line);
  }
  if (!objects.empty() && !looks_like_llama(objects.front())) return std::nullopt;
  auto arm = llama_arm(objects, std::move(source));
  if (!every_line_parses || lines != objects.size()) {
    arm.refusals.assign(1, fmt::format("truncated or damaged JSON, {} complete {} in it: the run was cut short", objects.size(),
                                       objects.size() == 1 ? "test" : "tests"));
  }
  return arm;
}

}  // namespace lumelift
