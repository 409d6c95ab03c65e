#include "cli/evidence.hpp"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "cli/sanitise.hpp"
#include "host/sys/error.hpp"
#include "host/sys/file.hpp"
#include "host/sys/hash.hpp"
#include "tests/unit/golden.hpp"
#include "tests/unit/scratch.hpp"

using namespace lumelift;
namespace fs = std::filesystem;

namespace {

const fs::path published = LUMELIFT_SOURCE_DIR "/tests/data/evidence/m1-ultra-tinyllama";

std::string clean(std::string_view text) {
  Sanitiser sanitiser;
  sanitiser.learn(text);
  const auto once = sanitiser.clean(text);
  CHECK(sanitiser.clean(once) == once);
  return once;
}

bool has(const std::vector<std::string>& problems, std::string_view part) {
  for (const auto& problem : problems) {
    if (problem.find(part) != std::string::npos) return true;
  }
  return false;
}

/// Makes SHA256SUMS right again after a file was changed: the forger's second step.
void sign(const fs::path& bundle) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(bundle)) {
    if (entry.is_regular_file() && entry.path().filename() != "SHA256SUMS") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::string sums;
  for (const auto& file : files) sums += sys::sha256_file(file) + "  " + file.lexically_relative(bundle).generic_string() + "\n";
  std::ofstream(bundle / "SHA256SUMS", std::ios::binary) << sums;
}

void replace_in(const fs::path& file, std::string_view from, std::string_view to) {
  auto text = test::slurp(file);
  const auto at = text.find(from);
  REQUIRE(at != std::string::npos);
  std::ofstream(file, std::ios::binary) << text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("names are taken out") {
  CHECK(clean("/Users/alice/gpu/x.gguf") == "~/gpu/x.gguf");
  CHECK(clean(R"("path": "\/Users\/alice\/x")") == R"("path": "~\/x")");
  CHECK(clean("/home/bob-smith and again bob-smith, bob-smithy") == "~ and again <user>, bob-smithy");
  CHECK(clean("/Users/lume/a by lume") == "~/a by lume");
  CHECK(clean("/private/var/folders/zz/abc_123/T/x") == "<tmp>/T/x");
  CHECK(clean("/var/root/x /root/y") == "~/x ~/y");
  CHECK(clean("Alices-Mac-mini.local said so, Alices-Mac-mini too") == "<host> said so, <host> too");
  CHECK(clean("ssh lume@192.168.64.7 port 22") == "ssh <address> port 22");
  CHECK(clean("at 192.168.64.7:22, 10.0.0.1.") == "at <address>:22, <address>.");
  CHECK(clean("mail a.b+c@example.com!") == "mail <address>!");
  CHECK(clean("fe80::1c2d:3e4f and 2001:db8:0:0:1:2:3:4") == "<address> and <address>");
  CHECK(clean("ether a2:b3:c4:d5:e6:f7") == "ether <address>");
  CHECK(clean("id 4C4C4544-0042-4710-8052-B4C04F4A5831") == "id <uuid>");
}

TEST_CASE("and nothing else") {
  for (const auto* text : {"2026-08-09 12:42:20.357 python[2758:55059]", "\"samples_ts\": [ 433.539, 432.314 ]", "macOS-26.5.2-arm64",
                           "127.0.0.1:8080", "0.0.0.0", "::1", "RuntimeError: [metal::Device] std::abs a::b", "~/.local/share/lumelift",
                           "/Users/Shared/x", "/usr/local/bin", "0x108997bc0", "~/Users/x", "ee3d1b54c", "1.2.3.4.5", "256.1.1.1",
                           "@rpath/liblumelift.dylib", "pp512 @ d4096", "\"avg_ns\": 1187070466,", "https://example.org/home/"}) {
    CHECK(clean(text) == text);
  }
}

TEST_CASE("known names go wherever they stand, ordinary ones stay") {
  Sanitiser sanitiser;
  sanitiser.learn_user("carol");
  sanitiser.learn_user("runner");
  sanitiser.learn_host("studio7");
  CHECK(sanitiser.clean("carol ran it on studio7 as runner; caroline") == "<user> ran it on <host> as runner; caroline");
}

TEST_CASE("names of algorithms are no addresses, and a home folder of another name is one") {
  CHECK(clean("curve25519-sha256@libssh.org,aes128-gcm@openssh.com of dana@example.org") ==
        "curve25519-sha256@libssh.org,aes128-gcm@openssh.com of <address>");
  Sanitiser sanitiser;
  sanitiser.learn_home("/srv/people/dana/");
  CHECK(sanitiser.clean("in /srv/people/dana/.ssh, /srv/people/dana, not /srv/people/danaos") == "in ~/.ssh, ~, not /srv/people/danaos");
  Sanitiser root;
  root.learn_home("/");
  CHECK(root.clean("/opt/x") == "/opt/x");
}

TEST_CASE("a bundle verifies, is the same each time, and reports") {
  test::Scratch scratch;
  const PackOptions options{{"guest_build=25F84", "profile=tested"}, "", "", {}};
  const auto packed = pack_evidence(published, scratch.path() / "a", options);
  (void)pack_evidence(published, scratch.path() / "b", options);
  CHECK(packed.environment.get("chip") == "Apple M1 Ultra");
  CHECK(packed.environment.get("guest_os") == "26.5.2");
  CHECK(packed.report.workloads.size() == 2);
  CHECK(test::slurp(scratch.path() / "a/SHA256SUMS") == test::slurp(scratch.path() / "b/SHA256SUMS"));
  const auto verified = verify_evidence(scratch.path() / "a");
  CHECK(verified.problems.empty());
  for (const auto& entry : fs::recursive_directory_iterator(scratch.path() / "a/raw")) {
    CHECK(test::slurp(entry.path()).find("/Users/") == std::string::npos);
  }
  check_golden("report/compatibility.md", compatibility_report(verified.bundle, std::string(64, '0')));
  check_golden("report/bundle-results.csv", test::slurp(scratch.path() / "a/results.csv"));
}

TEST_CASE("one changed digit anywhere fails") {
  test::Scratch scratch;
  const auto bundle = scratch.path() / "bundle";
  (void)pack_evidence(published, bundle, {});
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(bundle)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  // Each try computes every number again, so a sample of the digits has to do here; LUMELIFT_FULL=1 tries each one.
  const bool full = std::getenv("LUMELIFT_FULL") != nullptr;
  std::size_t changed = 0, missed = 0, count = 0;
  for (const auto& file : files) {
    const auto whole = test::slurp(file);
    const bool derived = file.filename() == "SHA256SUMS" || file.filename() == "results.csv";
    for (std::size_t at = 0; at < whole.size(); ++at) {
      if (whole[at] < '0' || whole[at] > '9' || (!full && ++count % (derived ? 13 : 199) != 0)) continue;
      auto text = whole;
      text[at] = text[at] == '9' ? '0' : static_cast<char>(text[at] + 1);
      std::ofstream(file, std::ios::binary) << text;
      ++changed;
      if (verify_evidence(bundle).problems.empty()) ++missed;
    }
    std::ofstream(file, std::ios::binary) << whole;
  }
  CHECK(changed > 90);
  CHECK(missed == 0);
  CHECK(verify_evidence(bundle).problems.empty());
}

TEST_CASE("a forger who also mends the checksums is caught by the numbers") {
  const auto forged = [](const char* file, std::string_view from, std::string_view to) {
    test::Scratch scratch;
    const auto bundle = scratch.path() / "bundle";
    (void)pack_evidence(published, bundle, {});
    replace_in(bundle / file, from, to);
    sign(bundle);
    return verify_evidence(bundle).problems;
  };
  CHECK(has(forged("results.csv", "16.3567", "17.3567"), "results.csv: line"));
  CHECK(has(forged("metadata.json", "206.5965", "209.5965"), "metadata.json: line"));
  CHECK(has(forged("raw/tiny-stock-minimal.json", "1180977334", "1180997334"), "was edited"));
  CHECK(has(forged("raw/tiny-stock-minimal.json", "433.539", "433.538"), "was edited"));
  CHECK(has(forged("raw/mlx-stock-10x.json", "1656.2691566773349", "1659.2691566773349"), "was edited"));
  CHECK(has(forged("raw/tiny-stock-minimal.stderr", "Apple5  (1005)", "Apple7  (1007)"), "metadata.json: line"));
  CHECK(has(forged("raw/mlx-stock-10x.json", "~/gpu-test", "/Users/dora/gpu-test"), "still names somebody"));
}

TEST_CASE("files added, lost, linked or badly listed are problems") {
  test::Scratch scratch;
  const auto bundle = scratch.path() / "bundle";
  (void)pack_evidence(published, bundle, {});
  std::ofstream(bundle / "raw/extra.txt") << "x";
  CHECK(has(verify_evidence(bundle).problems, "raw/extra.txt: is not in SHA256SUMS"));
  fs::remove(bundle / "raw/extra.txt");
  fs::create_symlink("/etc/hostname", bundle / "raw/link");
  CHECK(has(verify_evidence(bundle).problems, "raw/link: is no regular file"));
  fs::remove(bundle / "raw/link");
  const auto sums = test::slurp(bundle / "SHA256SUMS");
  std::ofstream(bundle / "SHA256SUMS") << sums + std::string(64, 'a') + "  ../outside\n";
  CHECK(has(verify_evidence(bundle).problems, "../outside: is in SHA256SUMS, but not there"));
  std::ofstream(bundle / "SHA256SUMS") << sums + "nonsense\n";
  CHECK(has(verify_evidence(bundle).problems, "is no checksum line"));
  std::ofstream(bundle / "SHA256SUMS") << sums;
  CHECK(verify_evidence(bundle).problems.empty());
  fs::remove(bundle / "README.md");
  CHECK(has(verify_evidence(bundle).problems, "README.md: is in SHA256SUMS, but not there"));
  CHECK_THROWS_AS((void)verify_evidence(published), Error);
}

TEST_CASE("a bundle that lost one of its own parts is a damaged bundle, not none") {
  test::Scratch scratch;
  const auto bundle = scratch.path() / "bundle";
  (void)pack_evidence(published, bundle, {});
  for (const auto* part : {"results.csv", "metadata.json"}) {
    fs::rename(bundle / part, scratch.path() / "kept");
    CHECK(has(verify_evidence(bundle).problems, std::string(part) + ": is in SHA256SUMS, but not there"));
    fs::rename(scratch.path() / "kept", bundle / part);
  }
  fs::rename(bundle / "raw", scratch.path() / "kept");
  CHECK(has(verify_evidence(bundle).problems, "raw/tiny-stock-minimal.json: is in SHA256SUMS, but not there"));
  fs::rename(scratch.path() / "kept", bundle / "raw");
  fs::remove(bundle / "results.csv");
  sign(bundle);
  CHECK(has(verify_evidence(bundle).problems, "results.csv: is not there"));
  scratch.write("release/SHA256SUMS", "");
  CHECK_THROWS_AS((void)verify_evidence(scratch.path() / "release"), Error);
}

TEST_CASE("a bundle may be made inside the folder that it is made of") {
  test::Scratch scratch;
  fs::copy(published, scratch.path() / "in");
  const auto elsewhere = pack_evidence(scratch.path() / "in", scratch.path() / "out", {});
  const auto inside = pack_evidence(scratch.path() / "in", scratch.path() / "in/bundle/", {});
  CHECK(inside.files == elsewhere.files);
  CHECK(test::slurp(scratch.path() / "in/bundle/SHA256SUMS") == test::slurp(scratch.path() / "out/SHA256SUMS"));
  CHECK(verify_evidence(scratch.path() / "in/bundle").problems.empty());

  // The next one holds the first one, whose runs are copies of those that lie beside it.
  const auto next = pack_evidence(scratch.path() / "in", scratch.path() / "next", {});
  REQUIRE(next.report.workloads.size() == inside.report.workloads.size());
  for (std::size_t i = 0; i < next.report.workloads.size(); ++i) {
    const auto &mine = next.report.workloads[i].tests, &theirs = inside.report.workloads[i].tests;
    REQUIRE(mine.size() == theirs.size());
    for (std::size_t t = 0; t < mine.size(); ++t) {
      for (const auto& [role, cell] : theirs[t].cells) CHECK(mine[t].cells.at(role).rates.size() == cell.rates.size());
    }
  }
  CHECK(verify_evidence(scratch.path() / "next").problems.empty());
}

TEST_CASE("a name that a list of checksums cannot carry is refused, and said") {
  for (const auto* name : {"a\nb.txt", "tab\t.json", "del\x7f", "sub\r/x.txt"}) {
    test::Scratch scratch;
    fs::copy(published, scratch.path() / "in");
    scratch.write(fs::path("in") / name, "x");
    try {
      (void)pack_evidence(scratch.path() / "in", scratch.path() / "out", {});
      FAIL("packed");
    } catch (const Error& error) {
      CHECK(error.id() == "evidence-file-name");
      CHECK(error.message().find('\n') == std::string::npos);
      CHECK(error.message().find("\\x") != std::string::npos);
    }
    CHECK_FALSE(fs::exists(scratch.path() / "out"));
  }
}

TEST_CASE("packing refuses what it cannot do, and leaves nothing behind") {
  test::Scratch scratch;
  const auto bundle = scratch.path() / "bundle";
  const auto id = [&](const fs::path& folder, const PackOptions& options) -> std::string {
    try {
      (void)pack_evidence(folder, bundle, options);
    } catch (const Error& error) {
      return error.id();
    }
    return "packed";
  };
  fs::create_directories(scratch.path() / "empty");
  CHECK(id(scratch.path() / "empty", {}) == "evidence-nothing");
  CHECK(id(scratch.path() / "absent", {}) == "evidence-folder");
  CHECK(id(published, {{"colour=red"}, "", "", {}}) == "evidence-fact");
  CHECK(id(published, {{}, "tokens", "", {}}) == "packed");  // a user called like a word of the files
  CHECK(id(published, {}) == "evidence-exists");
  std::size_t left = 0;
  for (const auto& entry : fs::directory_iterator(scratch.path()))
    left += entry.path().filename().string().find("partial") != std::string::npos;
  CHECK(left == 0);
}

TEST_CASE("a name that is also a key of the files stops the packing instead of changing a figure") {
  test::Scratch scratch;
  try {
    (void)pack_evidence(published, scratch.path() / "bundle", {{}, "n_gen", "", {}});
    FAIL("packed");
  } catch (const Error& error) {
    CHECK((error.id() == "evidence-figures-changed" || error.id() == "evidence-nothing"));
  }
  CHECK_FALSE(fs::exists(scratch.path() / "bundle"));
}

TEST_CASE("file names are cleaned, binary and hidden files stay out") {
  test::Scratch scratch;
  fs::create_directories(scratch.path() / "in");
  fs::copy(published, scratch.path() / "in");
  fs::rename(scratch.path() / "in/tiny-stock-minimal.json", scratch.path() / "in/erik-stock.json");
  fs::rename(scratch.path() / "in/tiny-stock-minimal.stderr", scratch.path() / "in/erik-stock.stderr");
  scratch.write("in/.DS_Store", "x");
  scratch.write("in/core.bin", std::string("a\0b", 3));
  const auto bundle = pack_evidence(scratch.path() / "in", scratch.path() / "out", {{}, "erik", "", {}});
  CHECK(fs::exists(scratch.path() / "out/raw/<user>-stock.json"));
  CHECK(bundle.left_out == std::vector<std::string>{".DS_Store", "core.bin"});
  CHECK(verify_evidence(scratch.path() / "out").problems.empty());
}
