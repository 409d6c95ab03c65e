"""The lab's host misbehaves as the facts about lume and defaults say."""

import json
import pathlib
import subprocess
import time

import pytest

from labtest import DOMAIN, KEY, get, wait_for


# lume

def test_json_stands_between_log_lines_that_begin_like_it(up):
    out = up.host("lume", "get", "tahoe", "--format", "json").stdout.splitlines()
    assert out[0].startswith("[20") and "[5901" in out[0] and out[1] == "[" and out[-1].startswith("[20") and "ERROR" in out[-1]
    quiet = up.host("lume", "get", "tahoe", "--format", "json", env=up.env(LUME_LOG_LEVEL="error")).stdout.splitlines()
    assert quiet[0] == "[" and "ERROR" in quiet[-1]


def test_object_has_every_key_nulls_and_escaped_slashes(up):
    text = up.host("lume", "get", "tahoe", "--format", "json").stdout
    assert "vnc:\\/\\/" in text
    item = get(up)
    assert set(item) == {"name", "os", "cpuCount", "memorySize", "diskSize", "display", "status", "provisioningOperation", "vncUrl",
                         "ipAddress", "sshAvailable", "locationName", "sharedDirectories", "networkMode", "downloadProgress"}
    assert item["status"] == "running" and item["sharedDirectories"] is None and item["sshAvailable"] is True


def test_unknown_vm_and_wrong_usage(up):
    missing = up.host("lume", "get", "nobody", "--format", "json")
    assert missing.returncode == 1 and missing.stderr == "Error: Virtual machine not found: nobody\n"
    assert up.host("lume", "get").returncode == 64
    assert up.host("lume", "run", "tahoe", "--bogus").returncode == 64
    assert up.host("lume", "--version").stdout == "0.5.3\n"


def test_empty_store(lab):
    assert lab.host("lume", "ls").stdout == "No virtual machines found\n"
    assert json.loads(lab.host("lume", "ls", "--format", "json").stdout) == []


def test_running_comes_before_the_address_and_a_stale_lease_before_the_right_one(lab):
    lab.add_vm("tahoe", run_lag=0.8, ip_delay=2.4, stale_lease=1.6, boot_delay=4)
    lab.start()
    lab.boot("tahoe", wait=False)
    seen = []
    while len(seen) < 4:
        item = get(lab)
        if (item["status"], item["ipAddress"]) not in seen:
            seen.append((item["status"], item["ipAddress"]))
    assert seen == [("stopped", None), ("running", None), ("running", "127.255.255.1"), ("running", lab.vm("tahoe")["ip"])]


def test_name_with_tag_is_normalised_and_an_unknown_one_would_pull(lab):
    lab.add_vm("macos:latest")
    assert get(lab, "macos:latest")["name"] == "macos_latest"
    assert lab.host("lume", "run", "macos:old", "--display", "none", "--detach").returncode == 1
    assert [event["vm"] for event in lab.events("forbidden-pull")] == ["macos:old"]


def test_run_lock_and_stop_of_a_stopped_vm(up):
    again = up.host("lume", "run", "tahoe", "--display", "none")
    assert (again.returncode, again.stderr) == (1, "Error: Virtual machine already running: tahoe\n")
    assert up.host("lume", "stop", "tahoe").returncode == 0
    stopped = up.host("lume", "stop", "tahoe")
    assert (stopped.returncode, stopped.stderr) == (1, "Error: Virtual machine not running: tahoe\n")
    assert [event["event"] for event in up.events()] == ["boot", "hard-stop"]


def test_run_without_a_display_option_fails_on_a_headless_host(lab):
    lab.add_vm("tahoe")
    assert lab.host("lume", "run", "tahoe").returncode == 1
    assert lab.host("lume", "run", "tahoe", "--no-display", "--detach").returncode == 0
    lab.wait_up("tahoe")


def test_the_third_macos_guest_starts_and_then_fails_in_its_log(lab):
    for name in ("a", "b", "c"):
        lab.add_vm(name, running=name != "c", log_old="Error: last week's reason" if name == "c" else None)
    lab.add_vm("penguin", os="linux", running=True)
    lab.start()
    third = lab.host("lume", "run", "c", "--display", "none", "--detach")
    assert third.returncode == 0 and third.stdout.startswith("Started 'c' in the background (PID ")
    log = pathlib.Path(third.stdout.splitlines()[1].removeprefix("Log: "))
    wait_for(lambda: "exceeds the limit" in log.read_text())
    assert log.read_text().startswith("Error: last week's reason\n")
    assert get(lab, "c")["status"] == "stopped"


def test_slow_stop_ends_in_a_kill(lab):
    lab.add_vm("tahoe", running=True, stop_ignores_int=True)
    lab.start()
    started = time.monotonic()
    assert lab.host("lume", "stop", "tahoe").returncode == 0
    assert 10 <= time.monotonic() - started < 13
    assert lab.ssh("tahoe", "true").returncode == 255


def test_lies_after_a_stop(lab):
    lab.add_vm("tahoe", running=True, linger_running=4, missing_after_stop=2)
    lab.start()
    lab.host("lume", "stop", "tahoe")
    assert [lab.host("lume", "get", "tahoe").returncode for _ in range(2)] == [1, 1]
    assert get(lab)["status"] == "running"
    wait_for(lambda: get(lab)["status"] == "stopped")


def test_lume_ssh_joins_words_and_merges_streams(up):
    done = up.host("lume", "ssh", "tahoe", "echo", "a  b'c' $HOME;", "echo", "err", ">&2;", "exit", "7")
    assert done.returncode == 7 and done.stderr == ""
    assert sorted(done.stdout.splitlines()) == sorted([f"a bc {up.vm('tahoe').home}", "err"])
    assert up.host("lume", "ssh", "tahoe", "-p", "wrong", "true").returncode == 1


def test_clean_shutdown_through_lume_and_through_sudo(up):
    assert up.host("lume", "shutdown", "tahoe").returncode == 0
    wait_for(lambda: get(up)["status"] == "stopped")
    up.boot("tahoe")
    assert "NOT super-user" in up.ssh("tahoe", "/sbin/shutdown -h now" if up.world.config.get("build") else "shutdown -h now").stderr
    assert up.ssh("tahoe", "sudo -n /sbin/shutdown -h now").returncode == 0
    wait_for(lambda: not up.vm("tahoe").run_state())
    assert [event["event"] for event in up.events() if "down" in event["event"]] == ["shutdown-asked", "clean-shutdown"] * 2


def test_sudo_with_a_password_and_a_shutdown_that_hangs(lab):
    lab.add_vm("tahoe", running=True, sudo="password", shutdown_hangs=True)
    lab.start()
    refused = lab.ssh("tahoe", "sudo -n true")
    assert refused.returncode == 1 and "a password is required" in refused.stderr
    assert lab.ssh("tahoe", "sudo -S -p '' true", input="wrong\n").returncode == 1
    assert lab.ssh("tahoe", "sudo -S -p '' /sbin/shutdown -h now", input="lume\n").returncode == 0
    time.sleep(0.5)
    assert get(lab)["status"] == "running"


def test_clone_shares_the_host_key(lab):
    lab.add_vm("a")
    assert lab.host("lume", "clone", "a", "b").returncode == 0
    keys = [(lab.vm(name).path("ssh", "host_ed25519.pub")) for name in "ab"]
    assert pathlib.Path(keys[0]).read_text() == pathlib.Path(keys[1]).read_text()
    assert lab.vm("a")["ip"] != lab.vm("b")["ip"]


def test_serve_keeps_vms_inside_the_server(lab):
    import urllib.request
    lab.add_vm("tahoe")
    lab.add_vm("other")
    port = lab.port
    server = subprocess.Popen(["lume", "serve", "--port", str(port)], env=lab.env(), stdout=subprocess.PIPE)
    server.stdout.readline()

    def call(path, method="GET"):
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method, data=b"{}" if method == "POST" else None)
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)

    assert call("/lume/vms/tahoe/run", "POST")[0] == 202 and call("/lume/vms/other/run", "POST")[0] == 202
    lab.wait_up("tahoe")
    lab.wait_up("other")
    assert call("/lume/vms/tahoe/stop", "POST")[0] == 200
    assert get(lab, "tahoe")["status"] == "stopped" and get(lab, "other")["status"] == "running"
    lab.host("lume", "stop", "other")
    assert server.wait(5) == 0, "stopping one VM by the command ends the whole server"


# defaults

@pytest.mark.parametrize("words, kind, shown", [
    (["-bool", "true"], "boolean", "1"), (["-bool", "NO"], "boolean", "0"), (["-int", "1"], "integer", "1"), (["1"], "string", "1"),
    (["-string", "a b"], "string", "a b"), (["-float", "1.0"], "float", "1"), (["-array", "a", "b c"], "array", '(\n    a,\n    "b c"\n)'),
    (["-dict", "k", "v"], "dictionary", "{\n    k = v;\n}"), (["-data", "01ff"], "data", "{length = 2, bytes = 0x01ff}")])
def test_defaults_keeps_types(lab, words, kind, shown):
    assert lab.host("defaults", "write", DOMAIN, KEY, *words).returncode == 0
    assert lab.host("defaults", "read", DOMAIN, KEY).stdout == shown + "\n"
    assert lab.host("defaults", "read-type", DOMAIN, KEY).stdout == f"Type is {kind}\n"
    import plistlib
    exported = plistlib.loads(lab.host("defaults", "export", DOMAIN, "-").stdout.encode())[KEY]
    assert type(exported).__name__ == {"boolean": "bool", "integer": "int", "string": "str", "float": "float", "array": "list",
                                       "dictionary": "dict", "data": "bytes"}[kind]


def test_defaults_errors(lab):
    read = lab.host("defaults", "read", DOMAIN, KEY)
    assert read.returncode == 1 and f"The domain/default pair of ({DOMAIN}, {KEY}) does not exist" in read.stderr
    assert lab.host("defaults", "write", DOMAIN, KEY, "-bool", "1").returncode == 255
    assert lab.host("defaults", "delete", DOMAIN, KEY).returncode == 1
    assert "<dict/>" in lab.host("defaults", "export", DOMAIN, "-").stdout


def test_stale_reads_and_a_preference_that_goes_back(lab):
    lab.fault("cfprefsd", stale_reads=2, times=1)
    lab.host("defaults", "write", DOMAIN, KEY, "-bool", "true")
    assert [lab.host("defaults", "read", DOMAIN, KEY).returncode for _ in range(3)] == [1, 1, 0]
    lab.clear_faults()
    lab.fault("cfprefsd", revert_after=1)
    lab.host("defaults", "write", DOMAIN, KEY, "-bool", "false")
    assert [lab.host("defaults", "read", DOMAIN, KEY).stdout for _ in range(2)] == ["0\n", "1\n"]


def test_a_vm_sees_the_preference_of_its_start(up):
    assert "preference at start absent" in up.snapshot()
    up.host("defaults", "write", DOMAIN, KEY, "-bool", "true")
    assert "preference at start absent" in up.snapshot()
    up.host("lume", "stop", "tahoe")
    up.boot("tahoe")
    assert "preference at start boolean true" in up.snapshot()


def test_host_facts(lab):
    assert lab.host("sw_vers", "-productVersion").stdout == "26.5.2\n"
    assert lab.host("sysctl", "-n", "hw.model", "machdep.cpu.brand_string").stdout == "Mac13,2\nApple M1 Ultra\n"
    assert lab.host("sysctl", "-n", "kern.boottime").stdout.startswith("{ sec = ")
    assert lab.host("sysctl", "-n", "no.such").returncode == 1
