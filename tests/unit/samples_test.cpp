#include "cli/samples.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "cli/arms.hpp"
#include "host/sys/error.hpp"
#include "host/sys/file.hpp"

using namespace lumelift;

namespace {

const std::filesystem::path evidence = LUMELIFT_SOURCE_DIR "/tests/data/evidence/m1-ultra-tinyllama";

std::string file(const char* name) {
  return sys::read_file(evidence / name, 1 << 20);
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const auto at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

/// The only refusal of a text, or "" where it is good.
std::string refusal(const std::string& text) {
  const auto arm = parse_arm(text, "x.json");
  REQUIRE(arm);
  return arm->refusals.empty() ? "" : arm->refusals.front();
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

const std::string minimal = R"({"build_commit":"abc","build_number":1,"model_type":"llama 1B","n_prompt":512,"n_gen":0,"n_depth":0,)"
                            R"("samples_ns":[1000000000,1010000000],"samples_ts":[512,506.931]})";

}  // namespace

TEST_CASE("the published llama-bench files are read") {
  const auto arm = parse_arm(file("tiny-stock-minimal.json"), "tiny-stock-minimal.json");
  REQUIRE(arm);
  CHECK(arm->refusals.empty());
  CHECK(arm->tool == "llama.cpp");
  CHECK(arm->model == "tinyllama-1.1b-chat-v1.0.Q4_K_M");
  CHECK(arm->build == "ee3d1b54c (10167)");
  CHECK(arm->chip == "Apple M1 Ultra");
  CHECK(arm->virtual_cpu);
  REQUIRE(arm->rows.size() == 2);
  CHECK(arm->rows[0].test == "pp512");
  CHECK(arm->rows[1].test == "tg128");
  CHECK(arm->rows[0].rates.front() == 433.539);
  CHECK(arm->rows[0].settings.at("n_batch") == "2048");
  CHECK_FALSE(arm->rows[0].settings.contains("stddev_ns"));
}

TEST_CASE("the published MLX-LM files are read") {
  const auto arm = parse_arm(file("mlx-stock-10x.json"), "mlx-stock-10x.json");
  REQUIRE(arm);
  CHECK(arm->refusals.empty());
  CHECK(arm->tool == "MLX-LM");
  CHECK(arm->model == "Llama-3.2-3B-Instruct-4bit");
  REQUIRE(arm->rows.size() == 2);
  CHECK(arm->rows[1].test == "tg128");
  CHECK(arm->rows[1].rates.size() == 10);
}

TEST_CASE("lines of objects, a lone object, other key sets and later keys are read by name") {
  CHECK(refusal(minimal).empty());
  CHECK(refusal(minimal + "\n" + replaced(minimal, "512,\"n_gen\":0", "0,\"n_gen\":512") + "\n\n").empty());
  CHECK(refusal("[" + replaced(minimal, "\"n_depth\":0", "\"moe_cache\":[1],\"flash_attn\":true") + "]\n\n").empty());
  const auto no_times = replaced(minimal, R"("samples_ns":[1000000000,1010000000],)", "");
  const auto arm = parse_arm(no_times, "x");
  REQUIRE(arm);
  CHECK(arm->refusals.empty());
  CHECK(arm->rows[0].rates == std::vector<double>{512, 506.931});
  CHECK(parse_arm(replaced(minimal, "\"n_depth\":0", "\"n_depth\":4096"), "x")->rows[0].test == "pp512 @ d4096");
}

TEST_CASE("rows that share a label are told apart by what differs") {
  const auto one = replaced(minimal, "\"n_depth\":0", "\"n_depth\":0,\"n_batch\":512");
  const auto two = replaced(minimal, "\"n_depth\":0", "\"n_depth\":0,\"n_batch\":2048");
  const auto arm = parse_arm("[" + one + "," + two + "]", "x");
  REQUIRE(arm);
  CHECK(arm->rows[0].test == "pp512 n_batch=512");
  CHECK(arm->rows[1].test == "pp512 n_batch=2048");
}

TEST_CASE("what is JSON but no benchmark is none") {
  for (const auto* text : {"{}", "[1,2]", "null", "3", R"({"schema_version":1,"device":"Apple Paravirtual device"})"}) {
    CHECK_FALSE(parse_arm(text, "probe.json"));
  }
}

TEST_CASE("damage is refused with its reason") {
  CHECK(has(refusal(""), "ended before the first result"));
  CHECK(has(refusal("[]"), "ended before the first result"));
  CHECK(has(refusal("[\n" + minimal + ",\n"), "1 complete test"));
  CHECK(has(refusal("[\n" + minimal + "\n"), "cut short"));
  CHECK(has(refusal(minimal + "\n{\"build_commit\":"), "cut short"));
  CHECK(has(refusal(replaced(minimal, "\"build_commit\":\"abc\",", "")), "build_commit"));
  CHECK(has(refusal(replaced(minimal, "\"n_gen\":0", "\"n_gen\":\"0\"")), "n_gen is no integer"));
  CHECK(has(refusal(replaced(minimal, "512,\"n_gen\"", "0,\"n_gen\"")), "both 0"));
  CHECK(has(refusal(replaced(minimal, "1000000000,", "0,")), "no measurement gives"));
  CHECK(has(refusal(replaced(minimal, "1000000000,", "null,")), "no number"));
  CHECK(has(refusal(replaced(minimal, "[512,506.931]", "[512]")), "2 samples_ns but 1 samples_ts"));
  CHECK(has(refusal(replaced(minimal, "506.931", "506.932")), "edited"));
  CHECK(has(refusal("[" + minimal + "," + replaced(minimal, "abc", "abd") + "]"), "another build"));
}

TEST_CASE("a file cut at every byte is refused or has lost nothing") {
  const auto whole = file("tiny-host-minimal.json");
  const auto full = parse_arm(whole, "x");
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const auto arm = parse_arm(whole.substr(0, length), "x");
    REQUIRE(arm);
    if (arm->refusals.empty()) CHECK(arm->rows == full->rows);
  }
}

TEST_CASE("an edited sample does not pass: the file contradicts itself") {
  const auto stock = file("tiny-stock-minimal.json");
  CHECK(has(refusal(replaced(stock, "1180977334", "1180077334")), "edited"));
  CHECK(has(refusal(replaced(stock, "433.539", "433.538")), "edited"));
  CHECK(has(refusal(replaced(stock, "431.322577", "431.322677")), "avg_ts"));
  CHECK(has(refusal(replaced(stock, "1187070466", "1187070566")), "avg_ns"));
  const auto mlx = file("mlx-stock-10x.json");
  CHECK(has(refusal(replaced(mlx, "1656.2691566773349", "1650.2691566773349")), "median prompt_tps"));
  CHECK(has(refusal(replaced(mlx, "\"generation_tokens\": 128,\n      \"generation_tps\"",
                             "\"generation_tokens\": 127,\n      \"generation_tps\"")),
            "127"));
}

TEST_CASE("banners of all ages") {
  const auto host = parse_banner(file("tiny-host-minimal.stderr"));
  CHECK(host.device == "Apple M1 Ultra");
  CHECK(host.apple == 1007);
  CHECK(host.metal == 5002);
  CHECK(host.fast_path());
  CHECK(host.working_set_mb.value() == doctest::Approx(115448.73));
  const auto stock = parse_banner(file("tiny-stock-minimal.stderr"));
  CHECK(stock.apple == 1005);
  CHECK_FALSE(stock.metal);
  CHECK_FALSE(stock.fast_path());
  CHECK(stock.present());
  const auto unlocked = parse_banner(file("tiny-safe-shim-10x-final.stderr"));
  CHECK(unlocked.apple == 1009);
  CHECK(unlocked.fast_path());
  CHECK_FALSE(unlocked.same_answers(stock));
  const auto old = parse_banner(
      "ggml_metal_init: GPU name:   Apple M1\r\nx: ggml_metal_init: GPU family: MTLGPUFamilyApple7  (1007)\n"
      "ggml_metal_init: simdgroup reduction support   = true\nggml_metal_init: simdgroup matrix mul. support = false\n");
  CHECK(old.device == "Apple M1");
  CHECK(old.simdgroup_reduction == true);
  CHECK(old.simdgroup_matrix == false);
  CHECK(parse_banner("GPU family: MTLGPUFamilyApple21 (1021)\n").over_broad());
  CHECK(parse_banner("warning: asserts enabled, performance may be affected\n").debug_build);
  CHECK_FALSE(parse_banner("GPU family: MTLGPUFamilyApple(\nsimdgroup reduction =\nGPU family: MTLGPUFamilyApple7 (x)\n").present());
}

TEST_CASE("roles by name, nearest word first, contradictions unknown") {
  CHECK(role_in_name("tiny-host-minimal.json") == Role::host);
  CHECK(role_in_name("tiny-safe-shim-10x-final.json") == Role::unlocked);
  CHECK(role_in_name("tiny-hooked-minimal.json") == Role::unlocked);
  CHECK(role_in_name("clean-stock-pp512.json") == Role::stock);
  CHECK(role_in_name("guest_cpu.json") == Role::cpu);
  CHECK(role_in_name("stock/run1.json") == Role::stock);
  CHECK(role_in_name("host/unlocked.json") == Role::unlocked);
  CHECK(role_in_name("stock-cpu.json") == Role::cpu);
  CHECK(role_in_name("stock-unlocked.json") == Role::unknown);
  CHECK_FALSE(role_in_name("ghostly.json"));
  CHECK_FALSE(role_in_name(""));
}

TEST_CASE("status and banner beside a run speak for or against it") {
  const auto judged = [](const char* path, const char* stderr_name, std::optional<std::string> status) {
    auto arm = *parse_arm(file("tiny-stock-minimal.json"), path);
    std::optional<std::string> banner;
    if (stderr_name) banner = file(stderr_name);
    complete_arm(arm, std::nullopt, path, {banner, status, std::nullopt, std::nullopt});
    return arm;
  };
  CHECK(judged("stock.json", "tiny-stock-minimal.stderr", "0\n").refusals.empty());
  CHECK(has(judged("stock.json", nullptr, "134\n").refusals.at(0), "exit status 134"));
  auto dropped = *parse_arm(file("tiny-stock-minimal.json"), "stock.json");
  complete_arm(dropped, std::nullopt, "stock.json", {std::nullopt, "0\n", "dropped: the clocks went apart", std::nullopt});
  CHECK(dropped.refusals == std::vector<std::string>{"dropped: the clocks went apart"});
  CHECK(has(judged("stock.json", nullptr, "").refusals.at(0), "no number"));
  CHECK(has(judged("stock.json", "tiny-safe-shim-10x-final.stderr", {}).refusals.at(0), "called stock"));
  CHECK(has(judged("unlocked.json", "tiny-stock-minimal.stderr", {}).refusals.at(0), "called unlocked"));
  CHECK(has(judged("host.json", nullptr, {}).refusals.at(0), "virtual"));
  CHECK(has(judged("run1.json", nullptr, {}).refusals.at(0), "which side"));
  CHECK(judged("run1.json", "tiny-stock-minimal.stderr", {}).role == Role::stock);
  CHECK(judged("run1.json", "tiny-stock-minimal.stderr", {}).role_from == "banner");
}

TEST_CASE("--arm") {
  CHECK(arm_option("stock=a=b.json").path == "a=b.json");
  CHECK(arm_option("cpu=x").role == Role::cpu);
  for (const auto* wrong : {"", "stock", "stock=", "guest=x", "unknown=x", "=x"}) CHECK_THROWS_AS((void)arm_option(wrong), Error);
}
