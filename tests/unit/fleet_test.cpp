#include "cli/fleet.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "host/sys/error.hpp"
#include "tests/unit/plans.hpp"
#include "tests/unit/scratch.hpp"

using namespace lumelift;
using namespace lumelift::test;

namespace {

std::vector<Vm> listed(const std::vector<std::string>& names) {
  std::vector<Vm> out;
  for (const auto& name : names) {
    Vm vm;
    vm.name = name;
    vm.os = name.starts_with("linux") ? "linux" : "macOS";
    vm.status = "stopped";
    out.push_back(vm);
  }
  return out;
}

struct Read {
  Scratch scratch;
  Fleet fleet;
  explicit Read(const std::string& text, const std::vector<std::pair<std::string, std::string>>& others = {}) {
    for (const auto& [name, content] : others) {
      scratch.write(name, content);
    }
    fleet = Fleet::load(scratch.write("fleet.yaml", text), "/home/me");
  }
  [[nodiscard]] std::vector<FleetVm> vms(const std::vector<std::string>& names, const std::string& host = "") {
    unmatched.clear();
    return fleet.vms(host, listed(names), unmatched);
  }
  std::vector<std::string> unmatched;
};

/// "LINE:COLUMN: words" of the refusal.
std::string refused(const std::string& text) {
  const Scratch scratch;
  const auto file = scratch.write("fleet.yaml", text);
  const Error error = thrown([&] { (void)Fleet::load(file, "/home/me"); });
  if (error.id() == "nothing-thrown") {
    return "accepted";
  }
  CHECK(error.id() == "fleet-invalid");
  CHECK(error.kind() == ErrorKind::usage);
  const std::string prefix = file.string() + ":";
  return error.message().starts_with(prefix) ? error.message().substr(prefix.size()) : error.message();
}

std::string names_of(const std::vector<FleetVm>& vms) {
  std::string out;
  for (const auto& vm : vms) {
    out += (out.empty() ? "" : " ") + vm.name;
  }
  return out;
}

const std::string head = "schema: 1\n";

}  // namespace

TEST_CASE("fleet: defaults, entries by name and by pattern, and what each fills in") {
  Read read(head + R"(defaults:
  profile: minimal
  workloads: [./server.yaml]
  user: builder
variables: { drain: "~/bin/drain", mark: "${vm}-on-${host}x" }
vms:
  - name: ci-2
    profile: ./mine.yaml
    port: 2222
    before_stop: ["${drain}", --runner, "${vm}", $$HOME, "a$b"]
  - match: "ci-*"
    workloads: []
    after_start: [mark, "${mark}"]
)");
  const auto vms = read.vms({"ci-3", "ci-1", "ci-2", "dev", "linux-ci-4"});
  REQUIRE(names_of(vms) == "ci-2 ci-1 ci-3");
  const std::string folder = read.scratch.path().string();
  CHECK(vms[0].profile == folder + "/mine.yaml");
  CHECK(vms[0].workloads == std::vector<std::filesystem::path>{folder + "/server.yaml"});
  CHECK(vms[0].user == "builder");
  CHECK(vms[0].port == 2222);
  CHECK(vms[0].before_stop == Hook{"/home/me/bin/drain", "--runner", "ci-2", "$HOME", "a$b"});
  CHECK(vms[0].place == folder + "/fleet.yaml:8:5");
  CHECK(vms[1].profile == "minimal");
  CHECK(vms[1].workloads.empty());
  CHECK(vms[1].after_start == Hook{"mark", "ci-1-on-x"});
  CHECK(read.unmatched.empty());
}

TEST_CASE("fleet: what an included file says counts where the including one is silent, relative to its own folder") {
  Read read(
      head + "include: [common/base.yaml]\ndefaults: { profile: tested }\nvms:\n  - name: a\n",
      {{"common/base.yaml",
        head +
            "guest_limit: 3\ndefaults: { profile: minimal, workloads: [w.yaml], timeout: 60 }\nvms:\n  - match: '*'\n    timeout: 99\n"}});
  const auto vms = read.vms({"a", "b"});
  REQUIRE(names_of(vms) == "a b");
  CHECK(vms[0].profile == "tested");
  CHECK(vms[0].timeout_s == 60);
  CHECK(vms[1].timeout_s == 99);
  CHECK(vms[0].workloads.front() == read.scratch.path() / "common/w.yaml");
  CHECK(read.fleet.guest_limit(std::nullopt) == 3);
}

TEST_CASE("fleet: hosts, and which of them this Mac is") {
  Read read(head + R"(hosts:
  - { name: mac-1, address: mac-1.example.org, user: admin, guest_limit: 4 }
  - { name: mac-2 }
vms:
  - { name: ci-1, host: mac-1 }
  - { name: ci-1, host: mac-2, profile: minimal }
  - match: "*"
)");
  CHECK(read.fleet.host("")->name == "mac-2");  // the only one without an address
  CHECK(read.fleet.host("mac-1")->user == "admin");
  CHECK(read.fleet.guest_limit(read.fleet.host("mac-1")) == 4);
  CHECK(read.fleet.guest_limit(read.fleet.host("mac-2")) == 2);
  CHECK(thrown([&] { (void)read.fleet.host("mac-9"); }).id() == "fleet-host-unknown");
  const auto vms = read.vms({"ci-1", "x"}, "mac-2");
  REQUIRE(names_of(vms) == "ci-1 x");
  CHECK(vms[0].profile == "minimal");
  Read two(head + "hosts: [{ name: a, address: a.x }, { name: b, address: b.x }]\nvms: [{ match: '*' }]\n");
  CHECK(thrown([&] { (void)two.fleet.host(""); }).id() == "fleet-host-needed");
}

TEST_CASE("fleet: a name that lume does not know is an error with its place, a pattern without a VM is told") {
  Read read(head + "vms:\n  - name: ci-1\n  - match: 'build-*'\n");
  const Error error = thrown([&] { (void)read.vms({"ci-2"}); });
  CHECK(error.id() == "vm-unknown");
  CHECK(error.message().find("fleet.yaml:3:5: lume knows no VM named 'ci-1'") != std::string::npos);
  CHECK(error.details() == std::vector<std::string>{"did you mean 'ci-2'?"});
  CHECK(names_of(read.vms({"ci-1"})) == "ci-1");
  REQUIRE(read.unmatched.size() == 1);
  CHECK(read.unmatched[0].find("fleet.yaml:4:5: no VM matches 'build-*'") != std::string::npos);
}

TEST_CASE("fleet: every error has its line and column") {
  struct Wrong {
    std::string text, where;
  };
  const std::vector<Wrong> wrongs = {
      {"", "1:1: the file is empty"},
      {"schema: 2\nvms: []\n", "1:9: this lumelift reads schema 1, and the file says 2"},
      {"- a\n", "1:1: a mapping with the key 'schema' is needed at the top of the file"},
      {head + "vmz: []\n", "2:1: unknown key 'vmz'; did you mean 'vms'?"},
      {head + "vms: []\nvms: []\n", "3:1: the key 'vms' stands twice"},
      {head + "vms:\n  - name: no\n", "3:11: a string is needed here, and YAML may read no as a boolean or as nothing: put it in quotes"},
      {head + "vms:\n  - name: 007\n", "3:11: a string is needed here, and YAML reads 007 as a number: put it in quotes"},
      {head + "vms:\n  - name: ../x\n", "3:11: '../x' cannot be the name of a VM"},
      {head + "vms:\n  - profile: tested\n", "3:5: either 'name' or 'match' is needed here"},
      {head + "vms:\n  - { name: a, match: b }\n", "3:5: either 'name' or 'match' is needed here"},
      {head + "vms:\n  - name: a:b\n  - name: a_b\n", "4:5: 'a_b' has an entry already at"},
      {head + "vms:\n  - { name: a, port: 22.0 }\n", "3:22: a whole number from 1 to 65535 is needed here, not 22.0"},
      {head + "vms:\n  - { name: a, workloads: x.yaml }\n", "3:27: a list is needed here"},
      {head + "vms:\n  - { name: a, before_stop: [] }\n", "3:29: a command is needed here"},
      {head + "vms:\n  - { name: a, host_preference: maybe }\n", "3:33: 'set' or 'keep' is needed here"},
      {head + "vms:\n  - { name: a, profile: \"${profile}\" }\nvariables: { profil: x }\n",
       "3:25: there is no variable 'profile'; did you mean 'profil'?"},
      {head + "vms:\n  - { name: a, profile: \"${a}\" }\nvariables: { a: \"${b}\", b: \"${a}\" }\n",
       "3:25: variables name each other in a circle here"},
      {head + "vms:\n  - { name: a, profile: \"${\" }\n", "3:25: '${' begins a variable, and this is none"},
      {head + "variables: { vm: x }\nvms: [{ name: a }]\n", "2:14: 'vm' is filled in by lumelift itself"},
      {head + "vms: [{ name: a, host: mac-1 }]\n", "2:24: there is no host named 'mac-1' under 'hosts'"},
      {head + "hosts: [{ name: a }, { name: a }]\n", "2:30: the host 'a' stands twice"},
      {head + "hosts: [{ name: a, address: '-oProxyCommand=x' }]\n", "2:29: an address must be made of"},
      {head + "include: [fleet.yaml]\nvms: [{ name: a }]\n", "2:11: '"},
      {head + "include: [gone.yaml]\nvms: [{ name: a }]\n", "2:11: '"},
      {head + "vms: []\n", "the file names no VM"},
      {head + "vms:\n\t- name: a\n", "3:2: "},
      {head + "guest_limit: 0\nvms: [{ name: a }]\n", "2:14: a whole number from 1 to 64"},
  };
  for (const auto& wrong : wrongs) {
    CAPTURE(wrong.text);
    const std::string told = refused(wrong.text);
    CAPTURE(told);
    CHECK(told.find(wrong.where) != std::string::npos);
  }
}

TEST_CASE("fleet: the digest covers what is included") {
  const auto digest = [](const std::string& included) {
    return Read(head + "include: [b.yaml]\nvms: [{ name: a }]\n", {{"b.yaml", included}}).fleet.digest();
  };
  CHECK(digest(head + "guest_limit: 2\n") == digest(head + "guest_limit: 2\n"));
  CHECK(digest(head + "guest_limit: 2\n") != digest(head + "guest_limit: 3\n"));
}

TEST_CASE("fleet: the schema for editors knows the same keys as the reader") {
  const auto schema = nlohmann::json::parse(slurp(LUMELIFT_SOURCE_DIR "/templates/schemas/fleet.schema.json"));
  const auto keys_are_known = [](const nlohmann::json& properties, const std::string& before, const std::string& after) {
    std::set<std::string> keys;
    for (const auto& [key, value] : properties.items()) {
      keys.insert(key);
      // A value of the wrong kind for all of them: known keys complain about the value, unknown ones about themselves.
      CHECK_MESSAGE(refused(before + key + ": {}" + after).find("unknown key") == std::string::npos, key);
    }
    const std::string told = refused(before + "zzzzzzzz: {}" + after);
    for (const auto& key : keys) {
      CHECK_MESSAGE(told.find(key) != std::string::npos, key);
    }
    const auto listed_keys = static_cast<std::size_t>(std::count(told.begin(), told.end(), ',')) + 1;
    CHECK(listed_keys == keys.size());
  };
  keys_are_known(schema["properties"], "", "\nschema: 1\n");
  keys_are_known(schema["properties"]["defaults"]["properties"], "schema: 1\ndefaults: { ", " }\n");
  keys_are_known(schema["properties"]["hosts"]["items"]["properties"], "schema: 1\nhosts: [{ ", " }]\n");
  keys_are_known(schema["properties"]["vms"]["items"]["properties"], "schema: 1\nvms: [{ ", " }]\n");
}

TEST_CASE("fleet: the shipped example is read") {
  const auto fleet = Fleet::load(LUMELIFT_SOURCE_DIR "/templates/fleets/two-macs.yaml", "/home/me");
  CHECK(fleet.hosts().size() == 2);
}
