#include "host/lume.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "host/sys/error.hpp"
#include "tests/unit/scratch.hpp"

using namespace lumelift;
using sys::Deadline;
using sys::Milliseconds;
using test::error_of;
using test::holds;

namespace {

std::string all_of(const Error& error) {
  std::string text = error.message();
  for (const auto& detail : error.details()) text += "\n" + detail;
  return text + "\n" + error.fix();
}

/// A `lume` that obeys files in its folder: `status` (what `get` says), `version`; and records calls and what it ran as.
class FakeLume {
 public:
  /// `cases` is shell text inside `case "$1" in`, tried before the usual answers.
  explicit FakeLume(const std::string& cases = "") : first_(scratch_.path() / "bin") {
    write("status", "stopped");
    write("processes", "");
    // Other processes of this machine, and the API of a server among them.
    scratch_.script("bin/ps", "cat " + (scratch_.path() / "processes").string() + "\n");
    scratch_.script("bin/curl", "cd " + scratch_.path().string() + R"sh(
echo "$*" >> calls
cat answer
case "$(tail -n 1 answer)" in 200) printf stopped > status;; esac
)sh");
    scratch_.script("bin/lume", "dir=" + scratch_.path().string() + R"sh(
echo "$*" >> $dir/calls
echo "level=$LUME_LOG_LEVEL" > $dir/env
log=$dir/home/Library/Logs/lume/v.log
get() {
  printf '[{"name":"v","os":"macOS","cpuCount":4,"memorySize":1,"diskSize":{"allocated":1,"total":2},"status":"%s","ipAddress":null,"locationName":"home"}]\n' "$1"
}
count() { n=$(cat $dir/$1 2>/dev/null || echo 0); n=$((n + 1)); echo $n > $dir/$1; }
started() { mkdir -p $(dirname $log); echo "Started 'v' in the background (PID ${1:-$PPID})."; echo "Log: $log"; }
case "$1" in
)sh" + cases + R"sh(
--version) echo 0.5.3;;
get) test "$2" = v || { echo "Error: Virtual machine not found: $2" >&2; exit 1; }; get "$(cat $dir/status)";;
ls) get "$(cat $dir/status)";;
run) started; printf running > $dir/status;;
stop) test "$(cat $dir/status)" = running || { echo "Error: Virtual machine not running: v" >&2; exit 1; }; printf stopped > $dir/status;;
*) exit 64;;
esac
)sh");
  }
  void write(const std::string& name, const std::string& content) const { scratch_.write(name, content); }
  [[nodiscard]] std::string read(const std::string& name) const { return test::slurp(scratch_.path() / name); }
  [[nodiscard]] test::fs::path home() const { return scratch_.path() / "home"; }
  [[nodiscard]] Lume lume() const { return Lume(home()); }
  [[nodiscard]] int count(const std::string& call) const {
    int found = 0;
    const std::string calls = "\n" + read("calls");
    for (auto at = calls.find("\n" + call); at != std::string::npos; at = calls.find("\n" + call, at + 1)) ++found;
    return found;
  }

 private:
  test::Scratch scratch_;
  test::PathFirst first_;
};

Deadline soon() {
  return Deadline::in(Milliseconds{5'000});
}

}  // namespace

// ---------------------------------------------------------------- names

TEST_CASE("R10, R138: names are exact, checked before any process starts, and stored with an underscore") {
  for (const std::string& bad :
       {std::string(), std::string("a/b"), std::string("-rf"), std::string(".."), std::string("a/../b"), std::string("."),
        std::string("a\nb"), std::string("a\x7f"), std::string(256, 'n'), std::string("a\0b", 3)}) {
    CAPTURE(bad);
    CHECK(Lume::bad_name(bad));
    const FakeLume fake;
    CHECK(error_of([&] { (void)fake.lume().find(bad); })->id() == "vm-name-invalid");
    CHECK(fake.read("calls").empty());
  }
  for (const char* good : {"v", "my vm", "macos-tahoe:latest", "a.b", "Ünïcode", "it's"}) CHECK_FALSE(Lume::bad_name(good));
  CHECK(Lume::stored_name("macos-tahoe:latest") == "macos-tahoe_latest");
}

TEST_CASE("R138: another VM's object is not taken for the one that was asked for") {
  const FakeLume fake(R"sh(get) get running;;)sh");
  CHECK(fake.lume().find("v"));
  CHECK_FALSE(fake.lume().find("v2"));
  CHECK_FALSE(fake.lume().find("V"));
}

TEST_CASE("R10: lume is asked by the stored name") {
  const FakeLume fake;
  CHECK_FALSE(fake.lume().find("macos-tahoe:latest"));
  CHECK(fake.read("calls") == "get macos-tahoe_latest --format json\n");
  CHECK(fake.read("env") == "level=error\n");
}

// ---------------------------------------------------------------- asking

TEST_CASE("the version of lume: found, too old, unreadable, missing") {
  CHECK(FakeLume().lume().version() == "0.5.3");
  CHECK(error_of([] { (void)FakeLume("--version) echo 0.4.9;;").lume().version(); })->id() == "lume-too-old");
  CHECK(error_of([] { (void)FakeLume("--version) echo what;;").lume().version(); })->id() == "lume-unreadable");
  CHECK(error_of([] { (void)FakeLume("--version) echo bad >&2; exit 64;;").lume().version(); })->id() == "lume-failed");
  const test::Scratch scratch;
  const std::string old = ::getenv("PATH");
  ::setenv("PATH", scratch.path().c_str(), 1);
  const auto error = error_of([] { (void)Lume().version(); });
  ::setenv("PATH", old.c_str(), 1);
  REQUIRE(error);
  CHECK(error->id() == "lume-missing");
  CHECK(holds(error->fix(), "install"));
}

TEST_CASE("R02: lume get that prints no VM is broken, not a VM that is gone; an empty list is one") {
  for (const char* answer : {"get) exit 0;;", "get) echo '[]';;"}) {
    const auto broken = error_of([&] { (void)FakeLume(answer).lume().find("v"); });
    REQUIRE(broken);
    CHECK(broken->id() == "lume-unreadable");
  }
  CHECK(FakeLume("ls) echo '[]';;").lume().list().empty());
  const auto error = error_of([] { (void)FakeLume("get) echo 'fatal vnc://:secret@h:1';;").lume().find("v"); });
  REQUIRE(error);
  CHECK(error->id() == "lume-unreadable");
  CHECK(holds(all_of(*error), "lume get v --format json"));
  CHECK_FALSE(holds(all_of(*error), "secret"));
}

TEST_CASE("R11: one broken VM spoils the list but not the question for another; a failure is not \"unknown\"") {
  const FakeLume fake("ls) echo 'Error: Virtual machine not found: ghost' >&2; exit 1;;");
  CHECK(fake.lume().find("v"));
  CHECK_FALSE(fake.lume().find("ghost"));
  CHECK(error_of([&] { (void)fake.lume().list(); })->id() == "lume-failed");
  const auto error = error_of([] { (void)FakeLume("get) echo 'Error: config.json is damaged' >&2; exit 1;;").lume().find("v"); });
  REQUIRE(error);
  CHECK(error->id() == "lume-failed");
  CHECK(holds(all_of(*error), "config.json is damaged"));
}

TEST_CASE("megabytes of output are not believed by half") {
  const auto error = error_of([] { (void)FakeLume("get) yes '[x' | head -c 9000000;;").lume().find("v"); });
  REQUIRE(error);
  CHECK(error->id() == "lume-unreadable");
  CHECK(all_of(*error).size() < 1'000);
}

TEST_CASE("R12: lume that hangs is ended, and the message names the command and the limit" *
          doctest::skip(::getenv("LUMELIFT_SLOW_TESTS") == nullptr)) {
  const auto error = error_of([] { (void)FakeLume("get) sleep 60;;").lume().find("v"); });
  REQUIRE(error);
  CHECK(error->id() == "lume-no-answer");
  CHECK(holds(error->message(), "lume get v --format json"));
  CHECK(holds(error->message(), "10.0 s"));
}

TEST_CASE("R06: right after a stop lume misses the VM for a moment; waiting loops ask again") {
  const std::string twice =
      R"sh(get) count gets; test $n -le 2 && { echo "Error: Virtual machine not found: v" >&2; exit 1; }; get stopped;;)sh";
  CHECK_FALSE(FakeLume(twice).lume().find("v"));
  CHECK(FakeLume(twice).lume().find("v", soon()));
  CHECK(FakeLume(twice).lume().wait_stopped("v", soon()));
  const sys::Stopwatch watch;
  CHECK_FALSE(FakeLume().lume().find("other", Deadline::in(Milliseconds{300})));
  CHECK(watch.elapsed() < Milliseconds{3'000});
}

// ---------------------------------------------------------------- starting

TEST_CASE("a start is headless and detached, with what the VM ran with before") {
  const FakeLume fake;
  fake.lume().start("v", {"home", "bridged:en0", {{"/data:x", "t", true}, {"/tmp", "u", false}}}, soon());
  CHECK(holds(fake.read("calls"),
              "run v --detach --display none --storage home --network bridged:en0 --shared-dir /data:x:ro --shared-dir /tmp:rw\n"));
  CHECK(fake.lume().find("v")->power() == Power::running);
}

TEST_CASE("a VM's start options are what lume says of it") {
  Vm vm;
  vm.storage = "ext";
  vm.network = "nat";
  vm.shared_dirs = {{"/a", "t", false}};
  CHECK(start_options(vm) == StartOptions{"ext", "nat", {{"/a", "t", false}}});
}

TEST_CASE("R10: an unknown name is never run, because lume would download an image") {
  const FakeLume fake;
  const auto error = error_of([&] { fake.lume().start("other:latest", {}, Deadline::in(Milliseconds{300})); });
  REQUIRE(error);
  CHECK(error->id() == "vm-unknown");
  CHECK(fake.count("run") == 0);
}

TEST_CASE("R03: a VM that is being made is not started or stopped") {
  const FakeLume fake;
  for (const char* status : {"provisioning (stale)", "pulling", "paused"}) {
    fake.write("status", status);
    for (const auto& error :
         {error_of([&] { fake.lume().start("v", {}, soon()); }), error_of([&] { fake.lume().stop("v", "", soon()); })}) {
      REQUIRE(error);
      CHECK(error->id() == "vm-not-ready");
      CHECK(error->kind() == ErrorKind::busy);
      CHECK(holds(error->message(), status));
    }
  }
  CHECK(fake.count("run") + fake.count("stop") == 0);
}

TEST_CASE("a VM that runs is not started again") {
  const FakeLume fake;
  fake.write("status", "running");
  fake.lume().start("v", {}, soon());
  CHECK(fake.count("run") == 0);
}

TEST_CASE("R15: \"stopped\" right after the start is waited out") {
  const FakeLume fake(R"sh(run) started; echo 0 > $dir/gets;;
get) count gets; test $n -ge 6 && printf running > $dir/status; get "$(cat $dir/status)";;)sh");
  fake.lume().start("v", {}, soon());
  CHECK(fake.lume().find("v")->power() == Power::running);
}

TEST_CASE("R08: a start that fails later is found in what the log gained, not in what it held before") {
  const FakeLume fake(R"sh(run) started; echo 'Error: The number of virtual machines exceeds the limit. vnc://:secret@h:1' >> $log;;
ls) echo '[{"name":"one","os":"macOS","status":"running"},{"name":"tux","os":"linux","status":"running"},{"name":"two","os":"macOS","status":"running"}]';;)sh");
  const sys::Stopwatch watch;
  const auto error = error_of([&] { fake.lume().start("v", {}, Deadline::in(Milliseconds{60'000})); });
  REQUIRE(error);
  CHECK(watch.elapsed() < Milliseconds{10'000});
  CHECK(error->id() == "vm-limit");
  CHECK(holds(all_of(*error), "running now: one, two\n"));
  CHECK_FALSE(holds(all_of(*error), "secret"));
}

TEST_CASE("R08: last week's line in the log is not blamed") {
  const FakeLume fake(R"sh(run) started; echo '[t] INFO: Starting' >> $log;;)sh");
  fake.write("home/Library/Logs/lume/v.log", "Error: The number of virtual machines exceeds the limit.\n");
  const auto error = error_of([&] { fake.lume().start("v", {}, Deadline::in(Milliseconds{700})); });
  REQUIRE(error);
  CHECK(error->id() == "vm-start-failed");
  CHECK(holds(error->message(), "stopped"));
  CHECK(holds(all_of(*error), "INFO: Starting"));
  CHECK_FALSE(holds(all_of(*error), "exceeds"));
}

TEST_CASE("R37: the limit with no VM listed names the leftover process, and kills nothing") {
  const FakeLume fake(R"sh(run) started; echo 'VZErrorDomain Code=6' >> $log;;
ls) echo '[]';;)sh");
  const auto error = error_of([&] { fake.lume().start("v", {}, soon()); });
  REQUIRE(error);
  CHECK(error->id() == "vm-limit");
  CHECK(holds(all_of(*error), "leftover process"));
}

TEST_CASE("R36, R38: a locked keychain and a VM that runs elsewhere are told apart, whether the log or lume itself says so") {
  const std::pair<std::string, std::string> cases[] = {
      {"SecKeyCreateRandomKey_ios failed -25308", "vm-start-failed"},
      {"Failed to lock auxiliary storage", "vm-locked"},
      {"Virtual machine already running: v", "vm-locked"},
  };
  for (const auto& [text, id] : cases) {
    CAPTURE(text);
    const FakeLume logs("run) started; echo 'Error: " + text + "' >> $log;;");
    const auto in_log = error_of([&] { logs.lume().start("v", {}, soon()); });
    const FakeLume says("run) echo 'Error: " + text + "' >&2; exit 1;;");
    const auto said = error_of([&] { says.lume().start("v", {}, soon()); });
    REQUIRE(in_log);
    REQUIRE(said);
    CHECK(in_log->id() == id);
    CHECK(said->id() == id);
    // A lock may go with a process that is about to end; nothing else is tried again.
    CHECK((logs.count("run") > 1) == (id == "vm-locked"));
    CHECK(holds(all_of(*in_log), text));
    CHECK_FALSE(in_log->fix().empty());
  }
}

TEST_CASE("R19: an error that nobody foresaw is shown with the log's words, without waiting for the deadline") {
  const FakeLume fake("run) started; echo 'Error: missing entitlement com.apple.vm.networking' >> $log;;");
  const sys::Stopwatch watch;
  const auto error = error_of([&] { fake.lume().start("v", {}, Deadline::in(Milliseconds{60'000})); });
  REQUIRE(error);
  CHECK(watch.elapsed() < Milliseconds{10'000});
  CHECK(error->id() == "vm-start-failed");
  CHECK(holds(all_of(*error), "missing entitlement"));
}

TEST_CASE("a VM process that ends without a word is noticed before the deadline") {
  // A process id that is free: one of a child that was reaped.
  const pid_t gone = ::fork();
  if (gone == 0) ::_exit(0);
  ::waitpid(gone, nullptr, 0);
  const FakeLume fake("run) started " + std::to_string(gone) + ";;");
  const sys::Stopwatch watch;
  const auto error = error_of([&] { fake.lume().start("v", {}, Deadline::in(Milliseconds{60'000})); });
  REQUIRE(error);
  CHECK(watch.elapsed() < Milliseconds{10'000});
  CHECK(error->id() == "vm-start-failed");
}

TEST_CASE("R09: a lume that wants a display gets none asked of it") {
  const FakeLume fake(R"sh(run) case "$*" in *"--display none"*) started; printf running > $dir/status;; *) exit 1;; esac;;)sh");
  fake.lume().start("v", {}, soon());
  CHECK(fake.lume().find("v")->power() == Power::running);
}

// ---------------------------------------------------------------- stopping

TEST_CASE("a stop waits until lume lists the VM as stopped twice") {
  const FakeLume fake(R"sh(stop) echo 0 > $dir/gets; touch $dir/asked;;
get) count gets; if test -f $dir/asked && { test $n -eq 2 || test $n -ge 5; }; then get stopped; else get running; fi;;)sh");
  fake.lume().stop("v", "home", soon());
  CHECK(holds(fake.read("calls"), "stop v --storage home\n"));
  CHECK(std::stoi(fake.read("gets")) >= 6);
}

TEST_CASE("a VM inside lume serve is stopped by the server, and only a plain \"not running\" leads on to lume stop") {
  const FakeLume fake;
  const auto stop = [&](const std::string& answer) {
    fake.write("status", "running");
    fake.write("calls", "");
    fake.write("answer", answer);
    return error_of([&] { fake.lume().stop("v", "", Deadline::in(Milliseconds{5'000})); });
  };
  fake.write("processes", "/sbin/launchd\n/opt/bin/lume serve --port 7801\n");
  CHECK_FALSE(stop("{\"message\":\"VM stopped successfully\"}\n200"));
  CHECK(holds(fake.read("calls"), "http://127.0.0.1:7801/lume/vms/v/stop"));
  CHECK(fake.count("stop") == 0);
  CHECK_FALSE(stop("{\"message\":\"Virtual machine not running: v\"}\n400"));
  CHECK(fake.count("stop") == 1);
  for (const char* answer : {"{\"message\":\"Failed to stop\"}\n500", "", "no number"}) {
    const auto error = stop(answer);
    REQUIRE(error);
    CHECK(error->id() == "vm-stop-failed");
    CHECK(fake.count("stop") == 0);
  }
}

TEST_CASE("R07: a VM that is stopped already, or stops by itself meanwhile, counts as stopped") {
  const FakeLume fake;
  fake.lume().stop("v", "", soon());
  CHECK(fake.count("stop") == 0);
  const FakeLume racing(R"sh(stop) printf stopped > $dir/status; echo 'Error: Virtual machine not running: v' >&2; exit 1;;)sh");
  racing.write("status", "running");
  racing.lume().stop("v", "", soon());
  CHECK(racing.count("stop") == 1);
  const FakeLume rough(R"sh(stop) printf stopped > $dir/status; echo 'Error: The operation was cancelled' >&2; exit 1;;)sh");
  rough.write("status", "running");
  rough.lume().stop("v", "", soon());
}

TEST_CASE("R04: listed as stopped once and as running again is not stopped") {
  const FakeLume fake(R"sh(get) count gets; case $n in 1|3) get stopped;; *) get "$(cat $dir/status)";; esac;;)sh");
  fake.write("status", "running");
  fake.lume().stop("v", "", soon());
  CHECK(fake.count("stop") == 1);
  CHECK(fake.lume().find("v")->power() == Power::stopped);
}

TEST_CASE("R04: a VM that stays listed as running after a stop is reported at the deadline with what was last seen") {
  const FakeLume fake("stop) exit 0;;");
  fake.write("status", "running");
  const sys::Stopwatch watch;
  const auto error = error_of([&] { fake.lume().stop("v", "", Deadline::in(Milliseconds{1'000})); });
  REQUIRE(error);
  CHECK(watch.elapsed() < Milliseconds{5'000});
  CHECK(error->id() == "vm-stop-failed");
  CHECK(holds(error->message(), "says: running"));
  CHECK_FALSE(fake.lume().wait_stopped("v", Deadline::in(Milliseconds{200})));
}

TEST_CASE("a stop that lume refuses is shown with its words") {
  const FakeLume fake("stop) echo 'Error: Failed to stop virtual machine: v' >&2; exit 1;;");
  fake.write("status", "running");
  const auto error = error_of([&] { fake.lume().stop("v", "", Deadline::in(Milliseconds{800})); });
  REQUIRE(error);
  CHECK(error->id() == "lume-failed");
  CHECK(holds(all_of(*error), "Failed to stop"));
}

TEST_CASE("a VM that vanished is said to be unknown once that has lasted" * doctest::skip(::getenv("LUMELIFT_SLOW_TESTS") == nullptr)) {
  const FakeLume fake;
  CHECK(error_of([&] { (void)fake.lume().wait_stopped("gone", Deadline::in(Milliseconds{20'000})); })->id() == "vm-unknown");
}
