#include <doctest/doctest.h>

#include "host/sys/error.hpp"
#include "host/sys/file.hpp"
#include "host/sys/process.hpp"
#include "remote/launch_agent.hpp"

using namespace lumelift;

namespace {

AgentSpec spec() {
  AgentSpec agent;
  agent.label = "io.lumelift.test";
  agent.arguments = {"/usr/local/bin/server", "--port", "8080"};
  agent.environment = {{"Z", "last"}, {"A", "first"}};
  agent.working_directory = "/Users/lume";
  agent.stdout_path = "/Users/lume/out.log";
  agent.stderr_path = "/Users/lume/err.log";
  return agent;
}

std::string skeleton() {
  return sys::read_file(LUMELIFT_SOURCE_DIR "/templates/agent.plist", 1u << 20);
}

std::string render(const AgentSpec& agent) {
  return render_agent(skeleton(), agent);
}

/// The plist as Python's plistlib reads it, one "path: type value" a line.
std::string read_back(const std::string& plist) {
  const auto outcome =
      sys::run({.argv = {"/usr/bin/python3", "-I", "-c",
                         "import plistlib, sys\n"
                         "for key, value in sorted(plistlib.loads(sys.stdin.buffer.read()).items()): print(key, ascii(value))"},
                .input = plist},
               sys::Deadline::in(std::chrono::seconds(30)));
  INFO(outcome.err);
  REQUIRE(outcome.ok());
  return outcome.out;
}

std::string refusal(const AgentSpec& agent) {
  try {
    (void)render(agent);
  } catch (const Error& error) {
    CHECK(error.id() == "agent-invalid");
    CHECK(error.kind() == ErrorKind::usage);
    return error.message();
  }
  return "accepted";
}

bool refuses(const AgentSpec& agent, const char* what) {
  return refusal(agent).find(what) != std::string::npos;
}

}  // namespace

TEST_CASE("R58, R59: the plist says what launchd needs to hear") {
  CHECK(read_back(render(spec())) ==
        "EnvironmentVariables {'A': 'first', 'Z': 'last'}\n"
        "KeepAlive False\n"
        "Label 'io.lumelift.test'\n"
        "ProcessType 'Interactive'\n"
        "ProgramArguments ['/usr/local/bin/server', '--port', '8080']\n"
        "RunAtLoad True\n"
        "StandardErrorPath '/Users/lume/err.log'\n"
        "StandardOutPath '/Users/lume/out.log'\n"
        "WorkingDirectory '/Users/lume'\n");
}

TEST_CASE("R46: session types are named for the user domain only") {
  auto agent = spec();
  agent.any_session = true;
  agent.keep_alive = true;
  const auto text = read_back(render(agent));
  CHECK(text.find("LimitLoadToSessionType ['Aqua', 'Background']\n") != std::string::npos);
  CHECK(text.find("KeepAlive True\n") != std::string::npos);
  CHECK(render(spec()).find("LimitLoadToSessionType") == std::string::npos);
}

TEST_CASE("equal agents give equal text, whatever the order of their variables") {
  auto agent = spec();
  std::swap(agent.environment[0], agent.environment[1]);
  CHECK(render(agent) == render(spec()));
  agent.environment.clear();
  CHECK(read_back(render(agent)).find("EnvironmentVariables {}") != std::string::npos);
}

TEST_CASE("R54: every value comes back byte for byte") {
  auto agent = spec();
  agent.arguments = {"/a&b/<c>",
                     "R&D <x> \"q\" 'a'",
                     "@LABEL@",
                     "&amp;",
                     "line\nbreak",
                     "tab\t",
                     "cr\rlf\r\n",
                     "caf\xc3\xa9 cafe\xcc\x81 \xf0\x9f\x92\xa1",
                     "",
                     " lead",
                     "]]>",
                     "<!-- -->"};
  agent.environment = {{"K&<>", "@ARGUMENTS@ & <>"}};
  const auto text = read_back(render(agent));
  CHECK(text.find("ProgramArguments ['/a&b/<c>', 'R&D <x> \"q\" \\'a\\'', '@LABEL@', '&amp;', 'line\\nbreak', 'tab\\t', "
                  "'cr\\rlf\\r\\n', 'caf\\xe9 cafe\\u0301 \\U0001f4a1', '', ' lead', ']]>', '<!-- -->']\n") != std::string::npos);
  CHECK(text.find("EnvironmentVariables {'K&<>': '@ARGUMENTS@ & <>'}\n") != std::string::npos);
}

TEST_CASE("what a property list cannot carry is refused by name") {
  const auto with_argument = [](std::string text) {
    auto agent = spec();
    agent.arguments.push_back(std::move(text));
    return agent;
  };
  for (const auto* bad : {"\x01", "\x1b[31m", "\x7f", "\xff", "\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf5\x80\x80\x80", "\xe0\x80\x80",
                          "\xef\xbf\xbe", "a\xc3("}) {
    CHECK(refuses(with_argument(bad), "argument 3 holds the byte 0x"));
  }
  CHECK(refuses(with_argument(std::string("\0", 1)), "0x00"));
  const auto changed = [](auto change) {
    auto agent = spec();
    change(agent);
    return agent;
  };
  CHECK(refuses(changed([](auto& a) { a.arguments.clear(); }), "program is empty"));
  CHECK(refuses(changed([](auto& a) { a.arguments[0] = ""; }), "program is empty"));
  CHECK(refuses(changed([](auto& a) { a.arguments[0] = "server"; }), "program must be an absolute path"));
  CHECK(refuses(changed([](auto& a) { a.stdout_path = "out.log"; }), "standard output path must be an absolute path"));
  CHECK(refuses(changed([](auto& a) { a.stderr_path = "~/x"; }), "standard error path must be an absolute path"));
  CHECK(refuses(changed([](auto& a) { a.working_directory = ""; }), "working directory must be an absolute path"));
  for (const auto* label : {"", "a b", "a/b", "a&b", "\xc3\xa9", "a\n"}) {
    CHECK(refuses(changed([&](auto& a) { a.label = label; }), "label"));
  }
  CHECK(refuses(changed([](auto& a) { a.environment = {{"", "x"}}; }), "variable"));
  CHECK(refuses(changed([](auto& a) { a.environment = {{"A=B", "x"}}; }), "variable"));
  CHECK(refuses(changed([](auto& a) { a.environment = {{"A", "x"}, {"A", "y"}}; }), "given twice"));
}

TEST_CASE("a skeleton that does not fit is refused") {
  CHECK_THROWS_AS((void)render_agent("<string>@LABLE@</string>\n", spec()), Error);
  CHECK_THROWS_AS((void)render_agent("<string>@LABEL@</string>\n", spec()), Error);
  CHECK_THROWS_AS((void)render_agent("", spec()), Error);
}
