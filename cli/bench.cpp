#include "cli/bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "cli/console.hpp"
#include "host/sys/error.hpp"

namespace lumelift {
namespace {

constexpr std::array columns{Role::stock, Role::unlocked, Role::cpu, Role::host};

Error refused(std::string message) {
  return Error(ErrorKind::usage, "bench-settings", std::move(message));
}

std::vector<int> numbers(const std::string& text, const char* option) {
  std::vector<int> out;
  for (std::size_t at = 0; at <= text.size();) {
    const auto comma = std::min(text.find(',', at), text.size());
    int value = -1;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + comma, value);
    if (error != std::errc{} || end != text.data() + comma || value < 0) {
      throw refused(fmt::format("{} wants whole numbers with commas between, not '{}'", option, text)).fix("example: -p 512 -n 128,256");
    }
    out.push_back(value);
    at = comma + 1;
  }
  return out;
}

std::size_t tests_in(const std::string& text, const char* option) {
  const auto all = numbers(text, option);
  return static_cast<std::size_t>(std::count_if(all.begin(), all.end(), [](int n) { return n > 0; }));
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> out;
  constexpr std::string_view blank = " \t\r\n";
  for (auto at = text.find_first_not_of(blank); at != text.npos;) {
    const auto end = std::min(text.find_first_of(blank, at), text.size());
    out.push_back(text.substr(at, end - at));
    at = text.find_first_not_of(blank, end);
  }
  return out;
}

void add_cpu(Subject subject, std::vector<std::string>& words) {
  if (subject == Subject::mlx) {
    words.emplace_back("--cpu");
  } else {
    words.insert(words.end(), {"-dev", "none", "-ngl", "0"});
  }
}

bool begins_with_any(std::string_view text, std::initializer_list<std::string_view> starts) {
  return std::any_of(starts.begin(), starts.end(), [&](std::string_view start) { return text.starts_with(start); });
}

/// Four digits where the first is not lost: 4871.99 is 4872, 12.63 stays 12.6.
std::string short_rate(double rate) {
  return rate < 10 ? fmt::format("{:.2f}", rate) : fmt::format("{:.1f}", rate);
}

std::string cell_text(const Cell& cell) {
  const double half = cell.summary.spread() * 50;
  return fmt::format("{} ±{} %{}", short_rate(cell.summary.median), half < 10 ? fmt::format("{:.1f}", half) : fmt::format("{:.0f}", half),
                     cell.rejected  ? " ✗"
                     : cell.flagged ? " !"
                                    : "");
}

std::string_view heading(Role role) {
  return role == Role::cpu ? "guest CPU" : role_name(role);
}

void add_workload(const WorkloadReport& workload, std::vector<std::vector<std::string>>& rows) {
  std::vector<std::string> head{""};
  for (const auto role : columns) {
    if (workload.sides.contains(role)) {
      head.emplace_back(heading(role));
    }
  }
  for (const char* ratio : {"unlocked/stock", "unlocked/CPU", "of host"}) {
    head.emplace_back(ratio);
  }
  rows.push_back(head);
  for (const auto& test : workload.tests) {
    std::vector<std::string> row{cleaned(test.test)};
    for (const auto role : columns) {
      if (!workload.sides.contains(role)) {
        continue;
      }
      const auto cell = test.cells.find(role);
      row.push_back(cell == test.cells.end() ? "–" : cell_text(cell->second));
    }
    const auto *stock = test.against(Role::stock), *cpu = test.against(Role::cpu), *host = test.against(Role::host);
    row.push_back(stock ? fmt::format("{:.2f}×", stock->ratio.value) : "–");
    row.push_back(cpu ? fmt::format("{:.2f}×", cpu->ratio.value) : "–");
    row.push_back(host ? fmt::format("{:.1f} %", host->ratio.value * 100) : "–");
    rows.push_back(row);
  }
}

}  // namespace

std::string_view subject_name(Subject subject) {
  switch (subject) {
    case Subject::llama_bench:
      return "llama.cpp";
    case Subject::mlx:
      return "MLX-LM";
    case Subject::llama_server:
      return "llama-server";
    case Subject::ollama:
      break;
  }
  return "Ollama";
}

int target_port(std::string_view url) {
  const auto wrong = [&] {
    return Error(ErrorKind::usage, "bench-target", fmt::format("'{}' is no address inside the guest", url))
        .fix("example: --target http://127.0.0.1:8080");
  };
  const std::string_view whole = url;
  for (const std::string_view start : {"http://127.0.0.1:", "http://localhost:"}) {
    if (whole.starts_with(start)) {
      url.remove_prefix(start.size());
    }
  }
  if (url.size() == whole.size()) {
    throw wrong();
  }
  if (url.ends_with('/')) {
    url.remove_suffix(1);
  }
  int port = 0;
  const auto [end, error] = std::from_chars(url.data(), url.data() + url.size(), port);
  if (error != std::errc{} || end != url.data() + url.size() || port < 1 || port > 65535) {
    throw wrong();
  }
  return port;
}

void check_bench(const BenchSettings& settings) {
  if (tests_in(settings.prompts, "-p") + tests_in(settings.generations, "-n") == 0) {
    throw refused("nothing to measure: both -p and -n are 0").fix("leave one of them as it is: -p 512 -n 128");
  }
  if (settings.subject != Subject::llama_bench) {
    for (const auto& [text, option] : {std::pair(settings.prompts, "-p"), std::pair(settings.generations, "-n")}) {
      if (tests_in(text, option) != 1 || text.find(',') != text.npos) {
        throw refused(fmt::format("{} takes one length for {}, not '{}'", subject_name(settings.subject), option, text));
      }
    }
  }
  if (settings.subject == Subject::ollama && !settings.extra.empty()) {
    throw refused("Ollama is started as `ollama serve`, without --arg");
  }
  if (settings.repetitions < 1 || settings.rounds < 1) {
    throw refused("-r and --rounds want a number above 0");
  }
  static constexpr std::array ours{"-m",          "--model",  "-p",     "--n-prompt",   "-n",    "--n-gen",  "-r",    "--repetitions",
                                   "-o",          "--output", "-oe",    "--output-err", "-dev",  "--device", "-ngl",  "--n-gpu-layers",
                                   "--no-warmup", "-pg",      "--host", "--port",       "--cpu", "--text",   "--seed"};
  for (const auto& word : settings.extra) {
    if (std::find(ours.begin(), ours.end(), word) != ours.end()) {
      throw refused(fmt::format("'{}' is decided by lumelift", word)).fix("leave it out of --arg");
    }
  }
}

std::string BenchRun::name() const {
  return fmt::format("{}-{}", role_name(role), round);
}

std::vector<BenchRun> bench_runs(const BenchSettings& settings, const std::vector<Role>& roles) {
  std::vector<BenchRun> runs;
  for (int round = 1; round <= settings.rounds; ++round) {
    // What does not divide goes to the first rounds.
    const int share = settings.repetitions / settings.rounds + (round <= settings.repetitions % settings.rounds ? 1 : 0);
    if (share == 0) {
      break;
    }
    for (const auto role : roles) {
      runs.push_back({role, round, share});
    }
  }
  if (settings.arm_by_arm) {
    const auto place = [&](const BenchRun& run) { return std::find(roles.begin(), roles.end(), run.role) - roles.begin(); };
    std::stable_sort(runs.begin(), runs.end(), [&](const BenchRun& a, const BenchRun& b) { return place(a) < place(b); });
  }
  return runs;
}

std::vector<std::string> bench_words(const BenchSettings& settings, const BenchRun& run, const std::string& model) {
  if (settings.subject == Subject::ollama) {
    return {"serve"};
  }
  const bool mlx = settings.subject == Subject::mlx;
  std::vector<std::string> words{mlx ? "--model" : "-m", model};
  if (settings.subject == Subject::llama_server) {
    words.insert(words.end(), {"--host", "127.0.0.1", "--port", std::to_string(settings.port)});
  } else {
    words.insert(words.end(), {"-p", settings.prompts, "-n", settings.generations, "-r", std::to_string(run.repetitions)});
    if (!mlx) {
      words.insert(words.end(), {"-o", "json"});
    }
    if (!settings.warm_up) {
      words.emplace_back("--no-warmup");
    }
  }
  if (run.role == Role::cpu) {
    add_cpu(settings.subject, words);
  }
  words.insert(words.end(), settings.extra.begin(), settings.extra.end());
  return words;
}

sys::Milliseconds silence_limit(const BenchRun& run, sys::Milliseconds repetition) {
  return repetition * (run.repetitions + 2);
}

int test_count(const BenchSettings& settings) {
  return static_cast<int>(tests_in(settings.prompts, "-p") + tests_in(settings.generations, "-n"));
}

std::vector<std::string> text_words(Subject subject, const std::string& model, const std::string& prompt, int tokens, Role role) {
  std::vector<std::string> words;
  if (subject == Subject::mlx) {
    words = {"--model", model, "--text", prompt, "-n", std::to_string(tokens)};
  } else {
    words = {"-m", model, "-p", prompt, "-n", std::to_string(tokens), "--temp", "0", "-s", "1", "-no-cnv", "--no-display-prompt"};
  }
  if (role == Role::cpu) {
    add_cpu(subject, words);
  }
  return words;
}

Agreement agreement(std::string_view a, std::string_view b) {
  const auto left = words_of(a), right = words_of(b);
  Agreement out;
  out.words = std::max(left.size(), right.size());
  const auto end = std::mismatch(left.begin(), left.end(), right.begin(), right.end());
  out.common = static_cast<std::size_t>(end.first - left.begin());
  return out;
}

std::vector<std::string> relevant_variables(std::string_view env_text) {
  std::vector<std::string> out;
  while (!env_text.empty()) {
    const auto end = std::min(env_text.find('\n'), env_text.size());
    const auto line = env_text.substr(0, end);
    env_text.remove_prefix(std::min(end + 1, env_text.size()));
    if (begins_with_any(line, {"GGML_", "LLAMA_", "DYLD_", "MTL_", "METAL_", "LUME"})) {
      out.emplace_back(line);
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<std::string> forbidden_in_stock(const std::vector<std::string>& variables) {
  std::vector<std::string> out;
  std::copy_if(variables.begin(), variables.end(), std::back_inserter(out), [](const std::string& line) {
    return begins_with_any(line, {"DYLD_", "LUME_METAL_", "LUMELIFT_"});
  });
  return out;
}

std::string bench_table(const Report& report) {
  std::string text;
  for (const auto& workload : report.workloads) {
    std::vector<std::vector<std::string>> rows;
    add_workload(workload, rows);
    text += fmt::format("{}, median {}\n{}", cleaned(workload.name), workload.unit, table(rows));
  }
  for (const auto& finding : report.findings) {
    const char* mark = finding.level == Level::refused ? "✗" : finding.level == Level::flagged ? "!" : "·";
    text += fmt::format("{} {}: {}\n", mark, cleaned(finding.subject), cleaned(finding.text));
  }
  return text;
}

}  // namespace lumelift
