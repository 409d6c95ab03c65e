#include "cli/bench.hpp"

#include <doctest/doctest.h>

#include "cli/bench_folder.hpp"
#include "cli/bench_programs.hpp"
#include "cli/receipt.hpp"
#include "host/sys/error.hpp"
#include "tests/unit/scratch.hpp"

using namespace lumelift;
using lumelift::test::Scratch;

namespace {

std::string order(const BenchSettings& settings, const std::vector<Role>& roles) {
  std::string text;
  for (const auto& run : bench_runs(settings, roles)) {
    text += run.name() + "x" + std::to_string(run.repetitions) + " ";
  }
  return text;
}

}  // namespace

TEST_CASE("arms take turns, or come one after another, with the same runs") {
  BenchSettings settings;
  settings.repetitions = 5;
  CHECK(order(settings, {Role::stock, Role::unlocked}) == "stock-1x3 unlocked-1x3 stock-2x2 unlocked-2x2 ");
  settings.arm_by_arm = true;
  CHECK(order(settings, {Role::stock, Role::unlocked}) == "stock-1x3 stock-2x2 unlocked-1x3 unlocked-2x2 ");
  settings.repetitions = 1;
  CHECK(order(settings, {Role::stock, Role::cpu}) == "stock-1x1 cpu-1x1 ");
}

TEST_CASE("the CPU arm is kept off the GPU by both options") {
  BenchSettings settings;
  settings.warm_up = false;
  settings.extra = {"-fa", "1"};
  CHECK(bench_words(settings, {Role::cpu, 1, 4}, "/m.gguf") == std::vector<std::string>{"-m", "/m.gguf", "-p", "512", "-n", "128", "-r",
                                                                                        "4", "-o", "json", "--no-warmup", "-dev", "none",
                                                                                        "-ngl", "0", "-fa", "1"});
  CHECK(bench_words(BenchSettings{}, {Role::stock, 1, 5}, "m").size() == 10);
}

TEST_CASE("settings that measure nothing, or decide what lumelift decides, are refused") {
  const auto refused = [](auto change) {
    BenchSettings settings;
    change(settings);
    try {
      check_bench(settings);
    } catch (const Error& error) {
      return error.id() == "bench-settings" && error.kind() == ErrorKind::usage;
    }
    return false;
  };
  CHECK_FALSE(refused([](BenchSettings& s) { s.prompts = "0"; }));
  CHECK_FALSE(refused([](BenchSettings& s) { s.prompts = "16,512"; }));
  CHECK(refused([](BenchSettings& s) { s.prompts = s.generations = "0"; }));
  for (const char* text : {"", "x", "1,", "-1", "1 2", "99999999999"}) {
    CHECK(refused([&](BenchSettings& s) { s.generations = text; }));
  }
  for (const char* word : {"-ngl", "-dev", "-o", "-r", "-m"}) {
    CHECK(refused([&](BenchSettings& s) { s.extra = {word}; }));
  }
}

TEST_CASE("texts agree up to the first word that differs") {
  CHECK(agreement("a b c\n", "a  b c").share() == 1);
  CHECK(agreement("a b c d", "a b x d").share() == 0.5);
  CHECK(agreement("a b", "a b c d").share() == 0.5);
  CHECK(agreement("", "").share() == 0);
  CHECK(agreement("a", "").share() == 0);
}

TEST_CASE("only variables that matter are recorded, and only injection is forbidden in a stock process") {
  const auto found =
      relevant_variables("HOME=/x\nMTL_DEBUG=1\nGGML_METAL_NO_RESIDENCY=0\nDYLD_INSERT_LIBRARIES=/a\nLUMELIFT_ONLY=b\nXGGML_A=1\n");
  CHECK(found == std::vector<std::string>{"DYLD_INSERT_LIBRARIES=/a", "GGML_METAL_NO_RESIDENCY=0", "LUMELIFT_ONLY=b", "MTL_DEBUG=1"});
  CHECK(forbidden_in_stock(found) == std::vector<std::string>{"DYLD_INSERT_LIBRARIES=/a", "LUMELIFT_ONLY=b"});
}

TEST_CASE("a receipt proves only the process that it names") {
  CHECK(receipt_defect(R"({"pid": 7, "outcome": "active"})", 7).empty());
  CHECK(receipt_defect(R"({"pid": 7, "outcome": "active"})", 8) == "the library's receipt is of another process");
  CHECK(receipt_defect(R"({"pid": 7, "outcome": "stock", "reason": "real GPU"})", 7) == "the library was stock: real GPU");
  CHECK(receipt_defect("", 7) == "the library wrote no receipt: it was not in the process");
  CHECK_FALSE(receipt_defect(R"({"pid": 7, "outcome": "active"})", std::nullopt).empty());
}

TEST_CASE("an unfinished folder of the same parameters is taken up, any other is left alone") {
  const Scratch scratch;
  const auto open = [&](const char* parameters) { return BenchFolder::open(std::nullopt, scratch.path(), "ci-1", parameters); };
  const auto first = open("{1}");
  CHECK_FALSE(first.resumed());
  CHECK(open("{1}").path() == first.path());
  CHECK(open("{1}").resumed());
  CHECK(open("{2}").path() != first.path());
  first.write("result.json", "{}");
  CHECK(open("{1}").path() != first.path());
  CHECK_THROWS_AS(BenchFolder::open(first.path(), scratch.path(), "ci-1", "{2}"), Error);
  CHECK(BenchFolder::open(first.path(), scratch.path(), "ci-1", "{1}").resumed());
}

TEST_CASE("a run counts when its status is there, and with every refusal") {
  const Scratch scratch;
  const auto folder = BenchFolder::open(std::nullopt, scratch.path(), "ci-1", "{}");
  const BenchRun run{Role::stock, 1, 2};
  const char* rows =
      R"([{"build_commit": "a", "build_number": 1, "model_type": "t", "model_filename": "m.gguf", "n_prompt": 8, "n_gen": 0, "n_depth": 0,
                          "samples_ns": [1000000000, 2000000000]}])";
  folder.write("stock-1.json", rows);
  CHECK_FALSE(folder.arm(run));
  folder.write("stock-1.status", "0\n");
  CHECK(folder.arm(run)->refusals.empty());
  CHECK(folder.arm({Role::stock, 1, 3})->refusals == std::vector<std::string>{"pp8 has 2 samples, not 3"});
  folder.write("stock-1.refused", "dropped: the clocks went apart");
  CHECK(folder.arm(run)->refusals == std::vector<std::string>{"dropped: the clocks went apart"});
  folder.set_aside(run);
  CHECK_FALSE(folder.arm(run));
  CHECK_FALSE(folder.read("stock-1.json"));
  CHECK(folder.read("stock-1.json.rejected-1"));
  folder.write("stock-1.json", "");
  folder.write("stock-1.status", "137\n");
  CHECK(folder.arm(run)->refusals.size() == 2);
  folder.set_aside(run);
  CHECK(folder.read("stock-1.status.rejected-2"));
}
