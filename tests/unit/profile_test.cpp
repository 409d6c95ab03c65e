#include "cli/profile.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "cli/yaml_reader.hpp"
#include "host/sys/error.hpp"
#include "tests/unit/plans.hpp"
#include "tests/unit/scratch.hpp"

using namespace lumelift;
using namespace lumelift::test;

namespace {

const std::filesystem::path templates = LUMELIFT_SOURCE_DIR "/templates";
const std::string good_profile = "schema: 1\nname: mine\napple_family_max: 1009\n";

/// Where and why a text is refused: "3:7: words".
std::string refused_profile(const std::string& text) {
  const Scratch scratch;
  const auto file = scratch.write("p.yaml", text);
  const Error error = thrown([&] { (void)load_profile(file.string(), templates); });
  if (error.id() == "nothing-thrown") {
    return "accepted";
  }
  CHECK(error.id() == "profile-invalid");
  CHECK(error.kind() == ErrorKind::usage);
  REQUIRE(error.message().starts_with(file.string() + ":"));
  return error.message().substr(file.string().size() + 1);
}

std::string refused_workload(const std::string& text) {
  const Scratch scratch;
  scratch.write("server", "x", 0755);
  scratch.write("folder/bin/tool", "x", 0755);
  const auto file = scratch.write("w.yaml", text);
  const Error error = thrown([&] { (void)load_workload(file); });
  if (error.id() == "nothing-thrown") {
    return "accepted";
  }
  CHECK(error.id() == "workload-invalid");
  REQUIRE(error.message().starts_with(file.string() + ":"));
  std::string out = error.message().substr(file.string().size() + 1);
  for (auto at = out.find(scratch.path().string()); at != std::string::npos; at = out.find(scratch.path().string())) {
    out.replace(at, scratch.path().string().size(), "DIR");
  }
  return out;
}

/// A workload of these lines, which begin on line 4.
std::string with(const std::string& lines) {
  return "schema: 1\nname: w\nexecutable: { host: server }\n" + lines;
}

Workload accepted(const std::string& lines) {
  const Scratch scratch;
  scratch.write("server", "x", 0755);
  scratch.write("folder/bin/tool", "x", 0755);
  return load_workload(scratch.write("w.yaml", with(lines)));
}

struct Wrong {
  std::string text, where;
};

}  // namespace

TEST_CASE("the profiles that come along are valid and are what they are documented to be") {
  CHECK(load_profile("tested", templates) == Profile{"tested", 1009, 65536, 0});
  CHECK(load_profile("minimal", templates) == Profile{"minimal", 1007, 0, 0});
  int found = 0;
  for (const auto& entry : fs::directory_iterator(templates / "profiles")) {
    CHECK(load_profile(entry.path().stem().string(), templates) == load_profile(entry.path().string(), templates));
    CHECK(load_profile(entry.path().string(), templates).name == entry.path().stem().string());
    ++found;
  }
  CHECK(found >= 2);
}

TEST_CASE("a profile that does not exist lists those that do") {
  const Error error = thrown([] { (void)load_profile("testde", templates); });
  CHECK(error.id() == "profile-unknown");
  const auto all = error.message() + fmt::format("{}", fmt::join(error.details(), " ")) + error.fix();
  CHECK(all.find("tested") != std::string::npos);
  CHECK(all.find("minimal") != std::string::npos);
  CHECK(thrown([] { (void)load_profile("./absent.yaml", templates); }).id() == "file-unreadable");
}

TEST_CASE("a profile is told to the library by the published names") {
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  CHECK(profile_environment({"p", 1007, 0, 0}) ==
        Pairs{{"LUME_METAL_APPLE_FAMILY_MAX", "1007"}, {"LUME_METAL_MAX_THREADGROUP_MEMORY", "0"}});
  CHECK(profile_environment({"p", 1009, 65536, 5}).back() == Pairs::value_type{"LUME_METAL_RECOMMENDED_WORKING_SET_SIZE", "5"});
}

TEST_CASE("R129: what is not a plain number in range is refused where it stands") {
  CHECK(refused_profile(good_profile) == "accepted");
  for (const std::string& value : std::vector<std::string>{
           "01009",      "0x3f1", "0o1761", "1009.0", "1.009e3", "+1009", "-1009", "1_009", "16:49",  "\"1009\"", "'1009'",
           "!!str 1009", "1010",  "1000",   "0",      "",        "~",     "null",  "true",  "[1009]", "{a: 1}",   "99999999999999999999999",
           "1009x",      "๑๐๐๙"}) {
    CAPTURE(value);
    const auto why = refused_profile(fmt::format("schema: 1\nname: mine\napple_family_max: {}\n", value));
    CHECK(why.starts_with("3:1"));
    CHECK(why.find("a whole number from 1001 to 1009 is needed here") != std::string::npos);
  }
  CHECK(refused_profile("schema: 1\nname: mine\napple_family_max: 01009\n") ==
        "3:19: a whole number from 1001 to 1009 is needed here, not 01009");
  CHECK(refused_profile(good_profile + "threadgroup_memory: 65537\n").starts_with("4:21: a whole number from 0 to 65536"));
  CHECK(refused_profile(good_profile + "working_set:   -1\n").starts_with("4:16: a whole number from 0 to"));
}

TEST_CASE("R129: a word that some YAML reads as something else is no name") {
  for (const std::string& value : std::vector<std::string>{"no", "NO", "off", "y", "true", "~", "null", ""}) {
    CAPTURE(value);
    const auto why = refused_profile(fmt::format("schema: 1\nname: {}\napple_family_max: 1009\n", value));
    CHECK(why.starts_with("2:"));
    CHECK(why.find("a string is needed here") != std::string::npos);
  }
  for (const std::string& value : std::vector<std::string>{"1009", "1.10", "12:30", "0x1f", "1e3", ".5", ".inf", "1_000", "007"}) {
    CAPTURE(value);
    CHECK(refused_profile(fmt::format("schema: 1\nname: {}\napple_family_max: 1009\n", value))
              .find("2:7: a string is needed here, and YAML reads") == 0);
  }
  CHECK(refused_profile("schema: 1\nname: \"no\"\napple_family_max: 1009\n") == "accepted");
  CHECK(refused_profile("schema: 1\nname: '1009'\napple_family_max: 1009\n") == "accepted");
  CHECK(refused_profile("schema: 1\nname: !!str no\napple_family_max: 1009\n") == "accepted");
  CHECK(refused_profile("schema: 1\nname: !!binary bm8=\napple_family_max: 1009\n")
            .starts_with("2:7: a string is needed here, without the tag"));
  CHECK(refused_profile("schema: 1\nname: 7zip-run\napple_family_max: 1009\n") == "accepted");
}

TEST_CASE("R138: names with a slash, dots, a leading hyphen, nothing, too long or other letters") {
  for (const auto& value : std::vector<std::string>{"../up", "a/b", "-x", ".x", "..", "\"\"", "a b", "Ä", "UPPER", "\"a\\nb\"", "\"a\\0b\"",
                                                    std::string(65, 'a')}) {
    CAPTURE(value);
    CHECK(refused_profile(fmt::format("schema: 1\nname: {}\napple_family_max: 1009\n", value)).starts_with("2:7: "));
  }
  CHECK(refused_profile(fmt::format("schema: 1\nname: {}\napple_family_max: 1009\n", std::string(64, 'a'))) == "accepted");
}

TEST_CASE("keys: unknown, near, twice, missing, merged") {
  const std::vector<Wrong> cases = {
      {good_profile + "colour: red\n", "4:1: unknown key 'colour'; known here: "},
      {good_profile + "apple_family: 1009\n", "4:1: unknown key 'apple_family'; did you mean 'apple_family_max'?"},
      {good_profile + "threadgroup_memry: 0\n", "4:1: unknown key 'threadgroup_memry'; did you mean 'threadgroup_memory'?"},
      {good_profile + "Name: x\n", "4:1: unknown key 'Name'; did you mean 'name'?"},
      {good_profile + "name: again\n", "4:1: the key 'name' stands twice"},
      {good_profile + "\"name\": again\n", "4:1: the key 'name' stands twice"},
      {good_profile + "? [a]\n: x\n", "4:3: a key must be plain text"},
      {good_profile + "<<: {threadgroup_memory: 0}\n", "4:1: unknown key '<<'"},
      {"schema: 1\nname: mine\n", "1:1: the key 'apple_family_max' is missing"},
      {"name: mine\napple_family_max: 1009\n", "1:1: the key 'schema' is missing"},
      {"schema: 2\nname: mine\napple_family_max: 1009\n", "1:9: this lumelift reads schema 1, and the file says 2"},
      {"schema: \"1\"\nname: mine\napple_family_max: 1009\n", "1:9: a whole number"},
      {"schema: 1.0\nname: mine\napple_family_max: 1009\n", "1:9: a whole number"},
  };
  for (const auto& [text, where] : cases) {
    CAPTURE(text);
    const auto why = refused_profile(text);
    CAPTURE(why);
    CHECK(why.starts_with(where));
  }
}

TEST_CASE("texts that are not one mapping") {
  const std::vector<Wrong> cases = {
      {"", "1:1: the file is empty"},
      {"\n# only a comment\n", "1:1: the file is empty"},
      {"---\n...\n", "1:1: the file is empty"},
      {"- schema: 1\n", "1:1: a mapping with the key 'schema' is needed"},
      {"just text\n", "1:1: a mapping with the key 'schema' is needed"},
      {good_profile + "---\n" + good_profile, "1:1: the file holds more than one document"},
      {good_profile + "\tdescription: x\n", "4:1"},
      {"schema: 1\nname: mine\n\tapple_family_max: 1009\n", "3:"},
      {"schema: 1\nname: [mine\n", "3:1"},
      {"schema: 1\nname: \"mine\n", "2:7"},
      {"schema: 1\n name: mine\n", "2:"},
      {"schema: 1\nname: *nobody\n", "2:7"},
      {std::string("schema: 1\0\n", 11), "1:1: the file holds a NUL byte"},
      // yaml-cpp reads this one without end.
      {"&a: ~\n? b", "2:"},
  };
  for (const auto& [text, where] : cases) {
    CAPTURE(text);
    const auto why = refused_profile(text);
    CAPTURE(why);
    CHECK(why.starts_with(where));
  }
}

TEST_CASE("a byte order mark, CRLF, comments, flow style and anchors change nothing") {
  for (const std::string& text : {"\xef\xbb\xbf" + good_profile, std::string("schema: 1\r\nname: mine\r\napple_family_max: 1009\r\n"),
                                  std::string("{schema: 1, name: mine, apple_family_max: 1009}"),
                                  std::string("# c\n---\nschema: 1 # c\nname: mine\napple_family_max: 1009\n...\n"),
                                  std::string("schema: &one 1\nname: mine\napple_family_max: 1009\n")}) {
    CAPTURE(text);
    const Scratch scratch;
    CHECK(load_profile(scratch.write("p.yaml", text).string(), templates) == Profile{"mine", 1009, 0, 0});
  }
  CHECK(refused_profile("\xef\xbb\xbfschema: 1\r\nname: no\r\n").starts_with("2:7: "));
}

TEST_CASE("an alias bomb ends at once") {
  std::string bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n";
  for (char c = 'b'; c <= 'z'; ++c) {
    const std::string former(1, static_cast<char>(c - 1));
    bomb += fmt::format("{0}: &{0} [*{1},*{1},*{1},*{1},*{1},*{1},*{1},*{1},*{1}]\n", c, former);
  }
  const sys::Stopwatch watch;
  CHECK(refused_profile("schema: 1\nname: x\napple_family_max: 1009\n" + bomb).starts_with("4:1: unknown key 'a'"));
  CHECK(watch.elapsed() < sys::Milliseconds{2'000});
}

TEST_CASE("nesting without end and a file without end are refused, not followed") {
  CHECK(refused_profile("schema: 1\nname: " + std::string(100'000, '[') + "\n") != "accepted");
  CHECK(refused_profile("schema: 1\nname: " + std::string(100'000, '{') + "\n") != "accepted");
  const Scratch scratch;
  const auto big = scratch.write("big.yaml", std::string((1u << 20) + 1, '#'));
  CHECK(thrown([&] { (void)load_profile(big.string(), templates); }).id() == "file-unreadable");
  CHECK(thrown([&] { (void)load_profile(scratch.path().string() + "/", templates); }).id() == "file-unreadable");
}

TEST_CASE("every prefix of a profile is accepted or refused with a place") {
  const std::string text = "schema: 1\nname: mine\ndescription: \"a: b\"\napple_family_max: 1009\nthreadgroup_memory: 65536 # bytes\n";
  for (std::size_t length = 0; length < text.size(); ++length) {
    const auto why = refused_profile(text.substr(0, length));
    CHECK((why == "accepted" || (why[0] >= '1' && why[0] <= '9')));
  }
}

TEST_CASE("a workload with everything") {
  const Scratch scratch;
  scratch.write("server", "x", 0755);
  scratch.write("folder/bin/tool", "x");
  const Workload all = load_workload(scratch.write("w.yaml", R"(schema: 1
name: all
label: com.example.All_1
executable: { host: ./server, guest: bin/srv }
arguments: [--port, 8080, -1.5, "", "no", ~/m, 'it''s']
environment:
  PORT: 8080
  EMPTY: ""
  WORDS: "yes"
working_directory: ~/work
logs: { stdout: ~/l/out.log, stderr: /tmp/err.log }
keep_alive: true
inherit: true
files:
  - { from: folder, to: ~/data//x/./y }
  - from: server
    to: copy
)"));
  CHECK(all.name == "all");
  CHECK(all.agents.at(0).label == "com.example.All_1");
  CHECK(all.agents.at(0).executable == "bin/srv");
  CHECK(all.agents.at(0).arguments == std::vector<std::string>{"--port", "8080", "-1.5", "", "no", "~/m", "it's"});
  CHECK(all.agents.at(0).environment ==
        std::vector<std::pair<std::string, std::string>>{{"PORT", "8080"}, {"EMPTY", ""}, {"WORDS", "yes"}});
  CHECK(all.agents.at(0).working_directory == "~/work");
  CHECK(all.agents.at(0).stdout_log == "~/l/out.log");
  CHECK(all.agents.at(0).stderr_log == "/tmp/err.log");
  CHECK((all.agents.at(0).keep_alive && all.agents.at(0).inherit));
  REQUIRE(all.files.size() == 3);
  CHECK(all.files[0] == FileCopy{scratch.path() / "server", "bin/srv"});
  CHECK(all.files[1] == FileCopy{scratch.path() / "folder", "~/data/x/y"});
  CHECK(all.files[2] == FileCopy{scratch.path() / "server", "copy"});
}

TEST_CASE("what a workload leaves out has the safe value") {
  const Workload plain = accepted("");
  CHECK(plain.agents.at(0).label == "io.lumelift.w");
  CHECK(plain.agents.at(0).executable == "server");
  CHECK((!plain.agents.at(0).keep_alive && !plain.agents.at(0).inherit));
  CHECK((plain.agents.at(0).arguments.empty() && plain.agents.at(0).environment.empty() && plain.agents.at(0).working_directory.empty() &&
         plain.agents.at(0).stdout_log.empty()));
}

TEST_CASE("R32: a number in the environment is the text that was written") {
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  CHECK(accepted("environment: { A: 8080, B: 007, C: 1.10, D: 0x1F, E: 12:30 }\n").agents.at(0).environment ==
        Pairs{{"A", "8080"}, {"B", "007"}, {"C", "1.10"}, {"D", "0x1F"}, {"E", "12:30"}});
  for (const std::string& value : std::vector<std::string>{"yes", "no", "true", "null", "~", ""}) {
    CAPTURE(value);
    CHECK(refused_workload(with(fmt::format("environment:\n  A: {}\n", value))).starts_with("5:"));
  }
}

TEST_CASE("a workload that cannot be meant is refused where it stands") {
  const std::vector<Wrong> cases = {
      {with("label: a/b\n"), "4:8: a label must be"},
      {with("label: .hidden\n"), "4:8: a label must be"},
      {with("label: no\n"), "4:8: a string is needed here"},
      {with("keep_alive: yes\n"), "4:13: true or false is needed here"},
      {with("keep_alive: \"true\"\n"), "4:13: true or false is needed here"},
      {with("inherit: 1\n"), "4:10: true or false is needed here"},
      {with("inherit:\n"), "4:1: true or false"},
      {with("arguments: --port 1\n"), "4:12: a list is needed here"},
      {with("arguments: [a, no]\n"), "4:16: a string is needed here"},
      {with("arguments: [a, [b]]\n"), "4:16: a string is needed here"},
      {with("arguments: [a, null]\n"), "4:16: a string is needed here"},
      {with("argument: [a]\n"), "4:1: unknown key 'argument'; did you mean 'arguments'?"},
      {with("environment: [A]\n"), "4:14: a mapping is needed here"},
      {with("environment: { A: 1, A: 2 }\n"), "4:22: the key 'A' stands twice"},
      {with("environment: { 1A: x }\n"), "4:16: '1A' is not the name"},
      {with("environment: { \"A=B\": x }\n"), "4:16: 'A=B' is not the name"},
      {with("environment: { \"\": x }\n"), "4:16: "},
      {with("environment: { DYLD_INSERT_LIBRARIES: x }\n"), "4:16: 'DYLD_INSERT_LIBRARIES' is set by lumelift itself"},
      {with("environment: { LUMELIFT_RECEIPT: x }\n"), "4:16: 'LUMELIFT_RECEIPT' is set"},
      {with("environment: { LUME_METAL_APPLE_FAMILY_MAX: 1009 }\n"), "4:16: 'LUME_METAL_APPLE_FAMILY_MAX' is set"},
      {with("working_directory: ../x\n"), "4:20: a path in the guest must not hold '..'"},
      {with("working_directory: ~\n"), "4:20: "},
      {with("working_directory: ~root/x\n"), "4:20: a path in the guest is needed"},
      {with("working_directory: /\n"), "4:20: a path in the guest is needed"},
      {with("logs: { stdout: out.log }\n"), "4:17: an absolute path"},
      {with("logs: { stdot: /out.log }\n"), "4:9: unknown key 'stdot'; did you mean 'stdout'?"},
      {with("logs: { stdout: \"/a\\nb\" }\n"), "4:17: a path must not hold control characters"},
      {with("files: [server]\n"), "4:9: a mapping is needed here"},
      {with("files: [{ to: x }]\n"), "4:9: the key 'from' is missing"},
      {with("files: [{ from: absent }]\n"), "4:17: 'DIR/absent' does not exist"},
      {with("files: [{ from: /dev/null }]\n"), "4:17: '/dev/null' is neither a file nor a folder"},
      {with("files: [{ from: server }]\n"), "4:9: two files go to 'server'"},
      {with("files: [{ from: server, to: a/../../b }]\n"), "4:29: a path in the guest must not hold '..'"},
      {with(fmt::format("files: [{{ from: server, to: {} }}]\n", std::string(201, 'a'))), "4:29: a name in this path is longer"},
      {with("ready: {}\n"), "4:8: exactly one of 'port', 'log' and 'command'"},
      {with("ready: { port: 80, log: x }\n"), "4:8: exactly one of"},
      {with("ready: { port: 0 }\n"), "4:16: "},
      {with("ready: { port: \"80\" }\n"), "4:16: "},
      {with("ready: { log: \"\" }\n"), "4:15: a part of one line"},
      {with("ready: { log: \"a\\nb\" }\n"), "4:15: a part of one line"},
      {with("ready: { command: [] }\n"), "4:19: a command of the guest"},
      {with("ready: { command: [curl, x] }\n"), "4:19: a command of the guest"},
      {with("ready: { port: 80, within: 0 }\n"), "4:28: "},
      {with("ready: { prot: 80 }\n"), "4:10: unknown key 'prot'; did you mean 'port'?"},
      {with("agents: []\n"), "3:1: unknown key 'executable'"},
      {"schema: 1\nname: w\nagents: []\n", "3:9: at least one agent"},
      {"schema: 1\nname: w\nagents: [{ executable: /bin/x }]\n", "3:10: the key 'name' is missing"},
      {"schema: 1\nname: w\nagents: [{ name: a }]\n", "3:10: the key 'executable' is missing"},
      {"schema: 1\nname: w\nagents:\n  - { name: a, executable: /bin/x }\n  - { name: a, executable: /bin/y }\n",
       "5:13: two agents have the name 'a'"},
      {"schema: 1\nname: w\nagents:\n  - { name: a, executable: /bin/x, label: l }\n  - { name: b, executable: /bin/y, label: l }\n",
       "5:5: two agents have the label 'l'"},
      {"schema: 1\nname: w\nagents: [{ name: a, executable: /bin/x, files: [] }]\n", "3:41: unknown key 'files'"},
      {with("name: w\n"), "4:1: the key 'name' stands twice"},
      {"schema: 1\nname: w\n", "1:1: the key 'executable' is missing"},
      {"schema: 1\nname: w\nexecutable: server\n", "3:13: an absolute path in the guest"},
      {"schema: 1\nname: w\nexecutable: {}\n", "3:13: the key 'guest' is missing"},
      {"schema: 1\nname: w\nexecutable: { host: folder }\n", "3:13: for a folder, 'guest' must name the program"},
      {"schema: 1\nname: w\nexecutable: { host: absent }\n", "3:21: 'DIR/absent' does not exist"},
      {"schema: 1\nname: w\nexecutable: { hosts: server }\n", "3:15: unknown key 'hosts'; did you mean 'host'?"},
      {"schema: 1\nname: w\nexecutable: [server]\n", "3:13: a mapping is needed here"},
      {"schema: 1\nname: run\nexecutable: /bin/x\n", "2:7: 'run' is a name of lumelift's own"},
      {"schema: 1\nname: lumelift-probe\nexecutable: /bin/x\n", "2:7: 'lumelift-probe' is a name"},
      {"schema: 1\nname: W\nexecutable: /bin/x\n", "2:7: a workload's name must be"},
  };
  for (const auto& [text, where] : cases) {
    CAPTURE(text);
    const auto why = refused_workload(text);
    CAPTURE(why);
    CHECK(why.starts_with(where));
  }
}

TEST_CASE("a folder as the program's home, and a program that is in the guest already") {
  const Scratch scratch;
  scratch.write("folder/bin/tool", "x", 0755);
  const Workload folder = load_workload(scratch.write("w.yaml", "schema: 1\nname: w\nexecutable: { host: folder, guest: bin/tool }\n"));
  CHECK(folder.agents.at(0).executable == "bin/tool");
  CHECK(folder.files == std::vector<FileCopy>{{scratch.path() / "folder", "."}});
  const Workload there = load_workload(scratch.write("v.yaml", "schema: 1\nname: w\nexecutable: ~/bin/tool\n"));
  CHECK(there.agents.at(0).executable == "~/bin/tool");
  CHECK(there.files.empty());
}

TEST_CASE("the nearest known word is offered only when it is near") {
  const std::vector<std::string> words = {"ci-1", "ci-2", "sonoma-build"};
  CHECK(nearest("ci-3", words) == "ci-1");
  CHECK(nearest("sonoma-biuld", words) == "sonoma-build");
  CHECK_FALSE(nearest("tahoe", words));
  CHECK_FALSE(nearest("x", {}));
  CHECK_FALSE(nearest("", words));
}

TEST_CASE("a workload of several agents") {
  const Scratch scratch;
  scratch.write("tool", "x", 0755);
  const Workload pair = load_workload(scratch.write("w.yaml", R"(schema: 1
name: w
files: [{ from: tool, to: bin/other }]
agents:
  - name: front
    executable: { host: ./tool }
    ready: { port: 8080, within: 5 }
  - name: back
    label: com.example.back
    executable: { host: ./tool }
    inherit: true
    ready: { log: "is listening" }
  - name: third
    executable: bin/other
    ready: { command: [~/bin/check, "-q"] }
)"));
  REQUIRE(pair.agents.size() == 3);
  CHECK(pair.agents[0].label == "io.lumelift.w.front");
  CHECK(pair.agents[1].label == "com.example.back");
  CHECK((!pair.agents[0].inherit && pair.agents[1].inherit));
  CHECK(pair.agents[2].executable == "bin/other");
  CHECK(pair.agents[0].ready == Readiness{8080, {}, {}, 5});
  CHECK(pair.agents[1].ready == Readiness{{}, "is listening", {}, 60});
  CHECK(pair.agents[2].ready.command == std::vector<std::string>{"~/bin/check", "-q"});
  // Both programs are the same file, which is copied once.
  CHECK(pair.files == std::vector<FileCopy>{{scratch.path() / "tool", "tool"}, {scratch.path() / "tool", "bin/other"}});
  CHECK_FALSE(load_workload(scratch.write("v.yaml", "schema: 1\nname: w\nexecutable: /bin/x\n")).agents.at(0).ready.wanted());
}
