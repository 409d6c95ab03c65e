#include "cli/explanation.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "host/sys/error.hpp"
#include "tests/unit/plans.hpp"
#include "tests/unit/scratch.hpp"

using namespace lumelift;
using namespace lumelift::test;

namespace {

const std::filesystem::path templates = LUMELIFT_SOURCE_DIR "/templates";

Question family(std::int64_t value, bool stock, std::uint64_t count = 1) {
  return {Question::About::family, value, stock ? 1u : 0u, count};
}

Trace trace_of(std::vector<Question> questions) {
  return {std::move(questions), 0, true, "/x"};
}

Profile profile(int ceiling, std::uint64_t memory = 0) {
  Profile out;
  out.name = "p";
  out.apple_family_max = ceiling;
  out.threadgroup_memory = memory;
  return out;
}

std::string words(const Explanation& explanation) {
  std::string out;
  for (const Outlook outlook : explanation.outlooks) {
    out += (out.empty() ? "" : " ") + std::string(name_of(outlook));
  }
  return out;
}

std::vector<Runtime> table() {
  return load_runtimes(templates);
}

}  // namespace

TEST_CASE("the table of runtimes has a row for each that people ask about, with source and date") {
  std::vector<std::string> names;
  for (const auto& row : table()) {
    names.push_back(row.name);
    CAPTURE(row.name);
    CHECK((!row.source.empty() && row.date.size() == 10 && !row.meaning.empty()));
  }
  CHECK(names == std::vector<std::string>{"whisper.cpp", "stable-diffusion.cpp", "Ollama", "llama.cpp", "MLX", "PyTorch", "wgpu",
                                          "MoltenVK", "tinygrad"});
  CHECK(thrown([] { (void)named_runtime(table(), "llama"); }).id() == "runtime-unknown");
}

TEST_CASE("what an unlock brings, by runtime and by what was asked") {
  struct Case {
    const char* runtime;
    std::vector<Question> asked;
    int ceiling;
    const char* verdict;
  };
  const std::vector<Case> cases = {
      {"llama.cpp", {family(1007, false), family(5001, false), family(1006, false)}, 1009, "large-gain"},
      {"llama.cpp", {family(1007, false)}, 1007, "large-gain"},
      {"llama.cpp", {family(1007, false), family(1006, false)}, 1006, "unknown"},
      {"llama.cpp", {family(1007, true), family(1009, false)}, 1009, "no-gain"},
      {"llama.cpp", {family(3001, true)}, 1009, "no-gain"},
      {"llama.cpp", {family(1008, false)}, 1009, "unknown"},
      {"llama.cpp", {}, 1009, "unknown"},
      {"whisper.cpp", {family(1007, false)}, 1009, "large-gain"},
      {"Ollama", {family(1007, false)}, 1009, "large-gain"},
      {"stable-diffusion.cpp", {family(1007, false)}, 1009, "large-gain"},
      {"MLX", {family(5001, false)}, 1009, "no-gain breaks-with-metal3"},
      {"MLX", {family(1009, false)}, 1009, "no-gain"},
      {"PyTorch", {family(2002, true), family(1010, false)}, 1009, "no-gain"},
      {"wgpu", {family(1007, false)}, 1009, "unknown"},
      {"MoltenVK", {family(1006, false)}, 1009, "unknown"},
      {"tinygrad", {family(1007, false)}, 1009, "unknown"},
      {nullptr, {family(1007, false)}, 1009, "unknown"},
      {nullptr, {family(1010, false), family(5001, false)}, 1009, "no-gain"},
  };
  const auto rows = table();
  for (const Case& c : cases) {
    CAPTURE(c.runtime ? c.runtime : "none");
    CAPTURE(c.ceiling);
    const auto found = explain(trace_of(c.asked), profile(c.ceiling), c.runtime ? &named_runtime(rows, c.runtime) : nullptr);
    CHECK(words(found) == c.verdict);
    CHECK_FALSE(found.reason.empty());
  }
}

TEST_CASE("what is granted is what was refused and lies below the ceiling") {
  const auto found =
      explain(trace_of({family(1009, false), family(1005, true), family(1007, false), family(1010, false), family(3003, false)}),
              profile(1009), nullptr);
  CHECK(found.granted == std::vector<std::int64_t>{1007, 1009});
  // Sizes count too, though no family does.
  CHECK(words(explain(trace_of({{Question::About::threadgroup_memory, 0, 32768, 3}}), profile(1009, 65536), nullptr)) == "unknown");
  CHECK(words(explain(trace_of({{Question::About::threadgroup_memory, 0, 32768, 3}}), profile(1009), nullptr)) == "no-gain");
  // A question that the trace had no room for might have been the one.
  Trace full = trace_of({family(1005, true)});
  full.lost = 1;
  CHECK(words(explain(full, profile(1009), nullptr)) == "unknown");
}

TEST_CASE("a trace file is read strictly") {
  const std::string good = R"({"schema":1,"library":"1","pid":7,"executable":"/x","ceiling":0,"complete":true,"queries":[)"
                           R"({"selector":"supportsFamily:","argument":1007,"stock":false,"given":false,"count":2},)"
                           R"({"selector":"maxThreadgroupMemoryLength","argument":null,"stock":32768,"given":32768,"count":14}],"lost":0})";
  const Trace trace = parse_trace(good);
  CHECK(trace.questions == std::vector<Question>{family(1007, false, 2), {Question::About::threadgroup_memory, 0, 32768, 14}});
  CHECK((trace.complete && trace.executable == "/x"));
  for (std::size_t cut = 0; cut < good.size(); ++cut) {
    CHECK(thrown([&] { (void)parse_trace(good.substr(0, cut)); }).id() == "trace-unreadable");
  }
  for (const char* bad :
       {"[]", "7", "{}", R"({"schema":2,"complete":true,"lost":0,"queries":[]})", R"({"schema":1,"complete":1,"lost":0,"queries":[]})",
        R"({"schema":1,"complete":true,"lost":0,"queries":{"a":1}})",
        R"({"schema":1,"complete":true,"lost":0,"queries":[{"selector":"x"}]})",
        R"({"schema":1,"complete":true,"lost":0,"queries":[{"selector":"supportsFamily:","argument":"a","stock":true,"count":1}]})"}) {
    CAPTURE(bad);
    CHECK(thrown([&] { (void)parse_trace(bad); }).id() == "trace-unreadable");
  }
}

TEST_CASE("families have names") {
  CHECK(family_name(1007) == "Apple 7");
  CHECK(family_name(1021) == "Apple 21");
  CHECK(family_name(2002) == "Mac 2");
  CHECK(family_name(3003) == "Common 3");
  CHECK(family_name(5001) == "Metal 3");
  CHECK(family_name(5002) == "Metal 4");
  CHECK(family_name(77) == "family 77");
}

TEST_CASE("a program is recognised by name, by a text within it, and by the command's words") {
  const auto rows = table();
  const auto name = [&](const std::string& path, const std::vector<std::string>& command, std::string_view content) {
    Program program;
    program.chain.links.push_back({ChainLink::Role::program, path, 0755, false});
    const Runtime* runtime = recognise(rows, program, command, content);
    return runtime == nullptr ? std::string("none") : runtime->name;
  };
  CHECK(name("/x/llama-bench", {}, "") == "llama.cpp");
  CHECK(name("/x/whisper-cli", {}, "ggml_metal_device_init") == "whisper.cpp");
  CHECK(name("/x/mine", {}, "..ggml_metal_device_init..") == "llama.cpp");
  CHECK(name("/x/python3", {"python3", "-m", "mlx_lm.generate"}, "") == "MLX");
  CHECK(name("/x/python3", {"python3", "/x/bin/mlx_lm"}, "") == "MLX");
  CHECK(name("/x/python3", {"python3", "train.py"}, "") == "none");
  CHECK(name("/x/sdk", {}, "") == "none");
}

TEST_CASE("a broken table is refused where it is broken") {
  const Scratch scratch;
  const auto refused = [&](const std::string& gain, const std::string& from, const std::string& source) {
    scratch.write("runtimes.yaml", fmt::format("schema: 1\nruntimes:\n  - name: a\n    recognised_by: {{ libraries: [], programs: [], "
                                               "words: [], text: [] }}\n    gain: {}\n    fast_from: {}\n"
                                               "    with_metal3: unknown\n    meaning: m\n    source: {}\n    date: \"2026-08-21\"\n",
                                               gain, from, source));
    return thrown([&] { (void)load_runtimes(scratch.path()); });
  };
  CHECK(refused("large", "[1007]", "s").id() == "nothing-thrown");
  CHECK(refused("huge", "[]", "s").message().find(":5:11") != std::string::npos);
  CHECK(refused("large", "[]", "s").message().find("from which family") != std::string::npos);
  CHECK(refused("none", "[7]", "s").id() == "runtimes-invalid");
  CHECK(refused("none", "[]", "\"\"").message().find("its source") != std::string::npos);
}
