#include "host/lume_text.hpp"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "host/lume_server.hpp"
#include "host/sys/time.hpp"

using namespace lumelift;
using lume_text::StartFailure;
using lume_text::vms_in;
using sys::Milliseconds;

namespace {

std::string object(const std::string& name, const std::string& status, const std::string& more = "") {
  return R"({"name":")" + name + R"(","os":"macOS","cpuCount":4,"memorySize":8589934592,"diskSize":{"allocated":1,"total":2},)" +
         R"("display":"1024x768","status":")" + status + R"(","provisioningOperation":null,"vncUrl":null,"ipAddress":null,)" +
         R"("sshAvailable":null,"locationName":"home","sharedDirectories":null,"networkMode":null,"downloadProgress":null)" + more + "}";
}

const std::string log_before = "[2026-08-21T10:00:00Z] INFO: Cleaned up stale session file name=v ports=[5901, 5902]\n";
const std::string log_after = "\n[2026-08-21T10:00:01Z] ERROR: x {retry: true}\n";

}  // namespace

TEST_CASE("R01: log lines around lume's JSON, which begin with a bracket too") {
  for (const std::string& around : {std::string(), log_before, log_before + "[1] a\n[] b\n{} c\n{\"name\":\"v\"} d\n[\"v\"]\n"}) {
    const auto vms = vms_in(around + "[" + object("v", "running") + "]" + log_after + "[" + object("w", "stopped") + "]\n");
    REQUIRE(vms);
    REQUIRE(vms->size() == 1);
    CHECK(vms->front().name == "v");
    CHECK(vms->front().status == "running");
  }
}

TEST_CASE("R01: JSON over many lines, with lume's blanks and escaped slashes") {
  const auto vms = vms_in(log_before + R"([
  {
    "name" : "v",
    "os" : "macOS",
    "status" : "running",
    "ipAddress" : "192.168.64.7",
    "locationName" : "home",
    "sharedDirectories" : [
      { "hostPath" : "\/Users\/me\/data [x]", "readOnly" : false, "tag" : "t" },
      { "hostPath" : "\/tmp", "readOnly" : true, "tag" : "u" }
    ]
  }
])" + log_after);
  REQUIRE(vms);
  const Vm& vm = vms->at(0);
  CHECK(vm.address == "192.168.64.7");
  CHECK(vm.shared_dirs == std::vector<SharedDir>{{"/Users/me/data [x]", "t", false}, {"/tmp", "u", true}});
}

TEST_CASE("R02: array of one, bare object, missing keys and nulls mean the same; null never becomes text") {
  const std::string full = object("v", "running");
  const std::string old = R"({"name":"v","os":"macOS","cpuCount":4,"memorySize":8589934592,"diskSize":{"allocated":1,"total":2},)"
                          R"("display":"1024x768","status":"running","locationName":"home"})";
  const auto expected = vms_in("[" + full + "]");
  REQUIRE(expected);
  for (const std::string& output : {full, old, "[" + old + "]", object("v", "running", R"(,"newKey":{"a":[1]})")}) {
    CHECK(vms_in(output) == expected);
  }
  const Vm& vm = expected->at(0);
  CHECK_FALSE(vm.address);
  CHECK_FALSE(vm.ssh_available);
  CHECK_FALSE(vm.network);
  CHECK(vm.shared_dirs.empty());
  CHECK(vm.cpus == 4);
  CHECK(vm.memory == 8'589'934'592);
  CHECK(vm.disk_total == 2);
  CHECK(vms_in("[]") == std::vector<Vm>{});
  CHECK(vms_in("") == std::vector<Vm>{});
  CHECK(vms_in(" \n") == std::vector<Vm>{});
}

TEST_CASE("output that holds no VM is told apart from an empty list; wrong types do no harm") {
  for (const std::string& bad :
       {std::string("garbage"), std::string("No virtual machines found\n"), log_before, std::string("["), std::string("[1,2]"),
        std::string(R"([{"name":null,"status":"running"}])"), std::string(R"([{"name":"v"}])"), std::string("\xff\xfe"),
        std::string(100'000, '['), "[" + object("v", "running").substr(0, 100)}) {
    CHECK_FALSE(vms_in(bad));
  }
  const auto odd = vms_in(R"([{"name":"v","status":"running","cpuCount":"4","memorySize":-1,"diskSize":7,"ipAddress":["x"],)"
                          R"("sshAvailable":"yes","sharedDirectories":[null,{"hostPath":1}],"os":3}])");
  REQUIRE(odd);
  Vm plain;
  plain.name = "v";
  plain.status = "running";
  CHECK(odd->at(0) == plain);
}

TEST_CASE("lume's output cut or changed at any byte gives VMs or nothing, never a crash") {
  const std::string whole = log_before + "[" + object("v", "running") + "]" + log_after;
  for (std::size_t cut = 0; cut < whole.size(); ++cut) {
    (void)vms_in(whole.substr(0, cut));
    std::string bad = whole;
    bad[cut] = static_cast<char>(bad[cut] ^ 0x15);
    (void)vms_in(bad);
  }
}

TEST_CASE("any number of lines that begin like JSON are read in linear time") {
  for (const std::string& line : {std::string("[\n"), std::string("[{\"a\":\n"), std::string("{\"a\":[\n"), std::string("[] x\n"),
                                  std::string("[{\"a\":[1,\n[2],\n"), std::string("[\"\n"), log_before}) {
    CAPTURE(line);
    std::string many;
    while (many.size() < 400'000) many += line;
    const sys::Stopwatch watch;
    CHECK(vms_in(many).value_or(std::vector<Vm>{}).empty());
    CHECK(vms_in(many + "[" + object("v", "running") + "]").has_value());
    CHECK(watch.elapsed() < Milliseconds{10'000});
  }
}

TEST_CASE("R03: only running and stopped can be acted on") {
  const auto power = [](const std::string& status) { return vms_in(object("v", status))->at(0).power(); };
  CHECK(power("running") == Power::running);
  CHECK(power("stopped") == Power::stopped);
  for (const char* status : {"provisioning", "provisioning (stale)", "pulling", "paused", "Running", ""}) {
    CAPTURE(status);
    Vm vm;
    vm.status = status;
    CHECK_FALSE(vm.power());
  }
}

TEST_CASE("versions are found among other lines and compared by number") {
  CHECK(lume_text::version_in("0.5.3\n") == "0.5.3");
  CHECK(lume_text::version_in(log_before + "lume v0.10.0-beta.1\n") == "0.10.0-beta.1");
  CHECK_FALSE(lume_text::version_in(log_before));
  CHECK_FALSE(lume_text::version_in("5.2\n"));
  CHECK(lume_text::at_least("0.5.0", "0.5.0"));
  CHECK(lume_text::at_least("0.10.0", "0.5.0"));
  CHECK(lume_text::at_least("1.0.0", "0.5.0"));
  CHECK_FALSE(lume_text::at_least("0.4.99", "0.5.0"));
  CHECK_FALSE(lume_text::at_least("nonsense", "0.5.0"));
}

TEST_CASE("R19, R36, R37, R38: why a VM did not start, as its log tells it") {
  using lume_text::start_failure_in;
  CHECK(start_failure_in(R"(Error: Error Domain=VZErrorDomain Code=6 "The number of virtual machines exceeds the limit.")") ==
        StartFailure::limit);
  CHECK(start_failure_in("The number of VMs exceeds the system limit") == StartFailure::limit);
  CHECK(start_failure_in("Error: Virtual machine already running: v") == StartFailure::locked);
  CHECK(start_failure_in("VZErrorDomain Code=2 Failed to lock auxiliary storage, POSIX 35") == StartFailure::locked);
  CHECK(start_failure_in("SecKeyCreateRandomKey_ios failed ... -25308") == StartFailure::keychain);
  CHECK(start_failure_in("VZErrorDomain Code=-9 Failed to get current host key") == StartFailure::keychain);
  CHECK(start_failure_in("Error: Failed to open the viewer: no window server connection") == StartFailure::display);
  CHECK(start_failure_in("[t] INFO: a\nError: missing com.apple.vm.networking entitlement") == StartFailure::other);
  CHECK(start_failure_in("[t] INFO: Starting\n[t] ERROR: lease file [errno 2]\n") == StartFailure::none);
  CHECK(start_failure_in("") == StartFailure::none);
}

TEST_CASE("servers are found among the processes by their program, not by a part of their command line") {
  CHECK(server_ports_in("").empty());
  CHECK(server_ports_in("/opt/lume serve\n/Users/x/.local/bin/lume serve --port 7800\n/usr/bin/python3 -IS /x/lume serve --port=80\n") ==
        std::vector<int>{7777, 7800, 80});
  CHECK(server_ports_in("vim lume-serve\nlume run serve\nlumelift serve\nlume serve-notes\nserve lume\n").empty());
  CHECK(server_ports_in("lume serve --port 99999\nlume serve --port\nlume  serve  --port 0") == std::vector<int>{7777, 7777, 7777});
}

TEST_CASE("R09, R131: a VNC password never reaches a message; long text is cut at the front") {
  CHECK(lume_text::quoted("at vnc://:secret@127.0.0.1:5901, again vnc://u:pa@ss@h/ end") ==
        "at vnc://***@127.0.0.1:5901, again vnc://***@h/ end");
  CHECK(lume_text::quoted("vnc://127.0.0.1:5901 and a@b") == "vnc://127.0.0.1:5901 and a@b");
  CHECK(lume_text::quoted("  \n") == "(no text)");
  CHECK(lume_text::quoted(std::string(10'000, 'x') + "end").size() < 410);
  CHECK(lume_text::quoted(std::string(10'000, 'x') + "end").ends_with("end"));
  CHECK(lume_text::quoted("\n a \n") == "a");
}

TEST_CASE("what a detached start prints") {
  const auto detached =
      lume_text::detached_in(log_before + "Started 'my (PID 1) vm' in the background (PID 4711).\nLog: /Users/me/a b.log\n");
  CHECK(detached.pid == 4711);
  CHECK(detached.log == "/Users/me/a b.log");
  CHECK_FALSE(lume_text::detached_in("Started 'v' in the background (PID -1).").pid);
  CHECK_FALSE(lume_text::detached_in("").log);
}
