"""The lab's own tests: its Mac misbehaves as the facts say, and nothing of it outlives it."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

LAB = pathlib.Path(__file__).resolve().parent.parent / "lab"
sys.path.insert(0, str(LAB))

from lab import Lab  # noqa: E402

DOMAIN, KEY = "com.apple.gpusw.ParavirtualizedGraphics", "ForceUnrestrictedDeviceFeatureLevel"


# With a build folder the guests run behind its exec layer, as in the product's tests; without one, on their PATH alone.
BUILD = os.environ.get("LUMELIFT_BUILD")


@pytest.fixture
def lab(tmp_path):
    with Lab(tmp_path / "lab", build=BUILD) as made:
        yield made


@pytest.fixture
def up(lab):
    lab.add_vm("tahoe", running=True)
    return lab.start()


def processes_of(directory):
    """Every process that mentions the folder in its environment or command line."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                text = pathlib.Path("/proc", entry, "environ").read_bytes() + pathlib.Path("/proc", entry, "cmdline").read_bytes()
                if str(directory).encode() + b"/" in text.replace(b"\0", b"/\0"):
                    found.append((int(entry), text[:200]))
            except OSError:
                continue
    return found


def wait_for(condition, seconds=5):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "condition not met in time"
        time.sleep(0.02)


def get(lab, name="tahoe"):
    """The VM object of `lume get`, found among the log lines."""
    done = lab.host("lume", "get", name, "--format", "json")
    assert done.returncode == 0, done.stderr
    text = done.stdout[done.stdout.index("\n[\n") + 1:] if lab.world.config["noise"] == "on" else done.stdout
    return json.JSONDecoder().raw_decode(text)[0][0]


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


# The guest

def test_the_guest_is_zsh_with_only_its_own_tools(up):
    done = up.ssh("tahoe", "print -r -- $ZSH_VERSION $USER $PWD; id -u; id -un; whence git rsync sha256sum gcc || echo none")
    first, uid, name, none = done.stdout.splitlines()
    assert first.endswith(f"lume {up.vm('tahoe').home}") and (uid, name, none) == ("501", "lume", "none")
    stub = up.ssh("tahoe", "python3 -c 1")
    assert stub.returncode == 1 and "xcode-select: note" in stub.stderr


@pytest.mark.parametrize("command", ["mkdir --parents a", "ls --color", "cp --preserve a b", "mv -T a b", "rm --force a", "stat --format=%s a",
                                     "stat -c %s a", "date -d now", "df --output=avail", "head --lines=1 a", "ln -r a b", "chmod --reference=a b"])
def test_gnu_only_flags_fail(up, command):
    assert up.ssh("tahoe", command).returncode != 0


def test_bsd_forms_work(up):
    script = ("mkdir -p -m 0755 a/b && printf hello > a/f && chmod 600 a/f && mv -f a/f a/g && stat -f '%z %Lp %Sp %u %SHT' a/g && "
              "shasum -a 256 < a/g && head -c 2 a/g && echo && dd if=/dev/zero of=a/z bs=1m count=1 2>/dev/null && wc -c < a/z && "
              "df -k . | tail -1 && uname && rm -rf a")
    lines = up.ssh("tahoe", script).stdout.splitlines()
    assert lines[0] == "5 600 -rw------- 501 Regular File" and lines[1].startswith("2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824")
    assert lines[2] == "he" and lines[3].strip() == "1048576" and lines[4].startswith("/dev/disk") and lines[5] == "Darwin"


def test_streams_statuses_stdin_and_sftp(up, tmp_path):
    done = up.ssh("tahoe", "cat; echo err >&2; exit 9", input="in\n")
    assert (done.stdout, done.stderr, done.returncode) == ("in\n", "err\n", 9)
    payload = tmp_path / "p"
    payload.write_bytes(os.urandom(300000))
    command = up.ssh_command("tahoe")
    sftp = ["/usr/bin/sftp", "-b", "-", *["-P" if word == "-p" else word for word in command[1:]]]
    assert subprocess.run(sftp, input=f"put {payload} q\n", text=True, capture_output=True, check=False).returncode == 0
    assert pathlib.Path(up.vm("tahoe").home, "q").read_bytes() == payload.read_bytes()


def test_terminal_shell(up):
    done = subprocess.run(["/usr/bin/ssh", "-tt", *up.ssh_command("tahoe")[1:]], input=b"tty; exit 3\n", capture_output=True, check=False)
    assert b"/dev/pts/" in done.stdout and done.returncode == 3


def test_start_files_that_print(lab):
    lab.add_vm("tahoe", running=True, zshenv="echo welcome; echo noise >&2")
    lab.start()
    done = lab.ssh("tahoe", "echo x")
    assert done.stdout == "welcome\nx\n" and done.stderr == "noise\n"


PASSWORD_LOGIN = """
import asyncio, sys, warnings
warnings.simplefilter("ignore")
import asyncssh
class Client(asyncssh.SSHClient):
    asked = False
    def kbdint_auth_requested(self):
        first, self.asked = not self.asked, True
        return "" if first else None
    def kbdint_challenge_received(self, name, instructions, lang, prompts): return [sys.argv[3]] * len(prompts)
async def main():
    options = {"password": sys.argv[3]} if sys.argv[4] == "password" else {"client_factory": Client, "preferred_auth": "keyboard-interactive"}
    async with asyncssh.connect(sys.argv[1], int(sys.argv[2]), username="lume", known_hosts=None, client_keys=None, agent_path=None, config=None, **options) as link:
        done = await link.run("echo out; echo err >&2; exit 4")
        async with link.start_sftp_client() as sftp:
            await sftp.mkdir("made")
        print(done.stdout.strip(), done.stderr.strip(), done.exit_status)
asyncio.run(main())
"""


@pytest.mark.parametrize("server, method", [("sshd", "password"), ("kbdint", "kbdint")])
def test_password_logins(lab, server, method):
    lab.add_vm("tahoe", running=True, server=server)
    lab.start()

    def login(password):
        vm = lab.vm("tahoe")
        return subprocess.run(["/usr/bin/python3", "-c", PASSWORD_LOGIN, vm["ip"], str(vm.port), password, method], capture_output=True,
                              text=True, check=False, timeout=30)

    assert login("lume").stdout == "out err 4\n"
    assert os.path.isdir(os.path.join(lab.vm("tahoe").home, "made"))
    assert "PermissionDenied" in login("wrong").stderr
    if server == "kbdint":
        assert lab.ssh("tahoe", "true").returncode == 255


def test_a_full_disk_makes_writes_fail(lab, tmp_path):
    lab.add_vm("tahoe", running=True, disk_kb=2048)
    lab.start()
    big = tmp_path / "big"
    big.write_bytes(bytes(4 << 20))
    sftp = ["/usr/bin/sftp", "-b", "-", *["-P" if word == "-p" else word for word in lab.ssh_command("tahoe")[1:]]]
    done = subprocess.run(sftp, input=f"put {big} big\n", text=True, capture_output=True, check=False)
    assert done.returncode != 0 and "Failure" in done.stderr
    assert lab.ssh("tahoe", "cat > f", stdin=open(big, "rb")).returncode != 0
    assert int(lab.ssh("tahoe", "df -k . | tail -1").stdout.split()[3]) <= 2048


def test_modes_bind_the_guest_even_when_root_runs_the_lab(up):
    assert up.ssh("tahoe", "chmod 555 . && touch x").returncode != 0


def test_xattr_plutil_csrutil(up):
    assert up.ssh("tahoe", "touch q && xattr -w com.apple.quarantine 0081 q && mv q r && xattr -p com.apple.quarantine r").stdout == "0081\n"
    assert up.ssh("tahoe", "xattr -d com.apple.quarantine r; xattr -p com.apple.quarantine r").returncode == 1
    bad = up.ssh("tahoe", "printf '<plist><dict><key>a & b</key></dict></plist>' > p.plist; plutil -lint p.plist")
    assert bad.returncode == 1 and "error at line" in bad.stdout
    assert up.ssh("tahoe", "csrutil status").stdout == "System Integrity Protection status: disabled.\n"


# launchd

def agent(lab, label="com.example.w", name="tahoe", mode=0o644, **extra):
    import plistlib
    home = pathlib.Path(lab.vm(name).home)
    folder = home / "Library" / "LaunchAgents"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{label}.plist"
    path.write_bytes(plistlib.dumps({"Label": label, "ProgramArguments": ["/bin/sleep", "60"], "RunAtLoad": True, **extra}))
    path.chmod(mode)
    return path


def launchctl(lab, command):
    return lab.ssh("tahoe", "launchctl " + command)


def test_agent_life(up):
    path = agent(up, EnvironmentVariables={"A": "1 2"}, StandardOutPath=up.vm("tahoe").home + "/out.log",
                 ProgramArguments=["/bin/sh", "-c", "echo $A $HOME $PPID; exec sleep 60"])
    assert launchctl(up, f"bootstrap gui/501 {path}").returncode == 0
    shown = launchctl(up, "print gui/501/com.example.w").stdout
    assert "\tstate = running\n" in shown and "\truns = 1\n" in shown and "last exit code = (never exited)" in shown
    pid = int(shown.split("\tpid = ")[1].split()[0])
    wait_for(lambda: pathlib.Path(up.vm("tahoe").home, "out.log").read_text().startswith(f"1 2 {up.vm('tahoe').home}"))
    again = launchctl(up, f"bootstrap gui/501 {path}")
    assert again.returncode == 5 and again.stderr.startswith("Bootstrap failed: 5: Input/output error")
    assert launchctl(up, "kickstart gui/501/com.example.w").returncode == 37
    assert launchctl(up, "kickstart -k gui/501/com.example.w").returncode == 0
    assert not os.path.exists(f"/proc/{pid}") and "\truns = 2\n" in launchctl(up, "print gui/501/com.example.w").stdout
    assert "agent gui/501/com.example.w running ~/Library/LaunchAgents/com.example.w.plist" in up.snapshot()
    assert launchctl(up, "bootout gui/501/com.example.w").returncode == 0
    assert launchctl(up, "print gui/501/com.example.w").returncode == 113
    gone = launchctl(up, "bootout gui/501/com.example.w")
    assert (gone.returncode, gone.stderr) == (3, "Boot-out failed: 3: No such process\n")


def test_an_agent_comes_back_at_boot_and_dies_with_the_vm(up):
    agent(up)
    up.host("lume", "stop", "tahoe")
    up.boot("tahoe")
    shown = launchctl(up, "print gui/501/com.example.w").stdout
    pid = int(shown.split("\tpid = ")[1].split()[0])
    run = up.vm("tahoe").run_state()
    os.kill(run["pid"], signal.SIGKILL)
    wait_for(lambda: not os.path.exists(f"/proc/{pid}"))


@pytest.mark.parametrize("options, domain, status", [
    ({"gui": False}, "gui/501", 125), ({"gui": False, "gui_error": 5}, "gui/501", 5), ({"gui": False}, "user/501", 0),
    ({"user_domain": False, "user_error": 5}, "user/501", 5), ({"uid": 502}, "gui/501", 125), ({"uid": 502}, "gui/502", 0)])
def test_domains(lab, options, domain, status):
    lab.add_vm("tahoe", running=True, **options)
    lab.start()
    done = launchctl(lab, f"bootstrap {domain} {agent(lab)}")
    assert done.returncode == status
    assert status == 0 or done.stderr.startswith(f"Bootstrap failed: {status}: ")
    assert (launchctl(lab, f"print {domain}").returncode == 0) == (status == 0)


def test_disabled_label(up):
    path = agent(up)
    launchctl(up, "disable gui/501/com.example.w")
    refused = launchctl(up, f"bootstrap gui/501 {path}")
    assert refused.returncode == 119 and "Service is disabled" in refused.stderr
    assert '"com.example.w" => disabled' in launchctl(up, "print-disabled gui/501").stdout
    assert "override gui/501/com.example.w disabled" in up.snapshot()
    launchctl(up, "enable gui/501/com.example.w")
    assert launchctl(up, f"bootstrap gui/501 {path}").returncode == 0


@pytest.mark.parametrize("broken, status", [({"mode": 0o666}, 122), ({"EnvironmentVariables": {"A": 1}}, 5), ({"ProgramArguments": []}, 5)])
def test_refused_plists(up, broken, status):
    assert launchctl(up, f"bootstrap gui/501 {agent(up, **broken)}").returncode == status


def test_unopenable_log_is_78(up):
    assert launchctl(up, f"bootstrap gui/501 {agent(up, StandardOutPath='/nonexistent/log')}").returncode == 0
    assert "last exit code = 78: EX_CONFIG" in launchctl(up, "print gui/501/com.example.w").stdout


def test_keep_alive_is_throttled_and_counted(up):
    launchctl(up, f"bootstrap gui/501 {agent(up, ProgramArguments=['/bin/sh', '-c', 'exit 3'], KeepAlive=True)}")

    def runs():
        return int(launchctl(up, "print gui/501/com.example.w").stdout.split("\truns = ")[1].split()[0])

    first = runs()
    wait_for(lambda: runs() > first)
    assert "last exit code = 3" in launchctl(up, "print gui/501/com.example.w").stdout


def test_a_drain_goes_on_after_bootout_returned(lab):
    lab.add_vm("tahoe", running=True, drain=5, bootout_wait=0.1)
    lab.start()
    path = agent(lab)
    launchctl(lab, f"bootstrap gui/501 {path}")
    assert launchctl(lab, "bootout gui/501/com.example.w").returncode == 36
    assert launchctl(lab, f"bootstrap gui/501 {path}").returncode == 37
    wait_for(lambda: launchctl(lab, "print gui/501/com.example.w").returncode == 113, 15)


@pytest.mark.skipif(not BUILD or not os.path.exists(f"{BUILD}/tests/lab/workloads/lab-llama-server"), reason="needs a build with the lab's workloads")
def test_a_mach_o_agent_runs_and_shows_what_it_mapped(up):
    import shutil
    program = os.path.join(up.vm("tahoe").home, "lab-llama-server")
    shutil.copy2(f"{BUILD}/tests/lab/workloads/lab-llama-server", program)
    path = agent(up, ProgramArguments=[program, "--port", "0"], StandardErrorPath=program + ".log")
    assert launchctl(up, f"bootstrap gui/501 {path}").returncode == 0
    pid = launchctl(up, "print gui/501/com.example.w").stdout.split("\tpid = ")[1].split()[0]
    wait_for(lambda: program in up.ssh("tahoe", f"/usr/sbin/lsof -p {pid}").stdout)
    assert f"n{program}\n" in up.ssh("tahoe", f"/usr/sbin/lsof -p {pid} -Fn").stdout
    assert "__TEXT" in up.ssh("tahoe", f"vmmap {pid}").stdout
    assert up.ssh("tahoe", "/usr/sbin/lsof -p 1").returncode == 1, "processes outside the guest are not seen"


# Boots and networks that go wrong

def test_servers_that_are_none(lab):
    import socket
    for name, kind in (("refuse", "refuse"), ("silent", "silent"), ("http", "http"), ("drop", "drop")):
        lab.add_vm(name, boot=kind)
        lab.world.config["guest_limit"] = None
    config = json.loads(pathlib.Path(lab.world.path("lab.json")).read_text())
    pathlib.Path(lab.world.path("lab.json")).write_text(json.dumps({**config, "guest_limit": None}))
    seen = {}
    for name in ("refuse", "silent", "http", "drop"):
        lab.boot(name, wait=False)
        wait_for(lambda: (lab.vm(name).run_state() or {"t0": time.monotonic()})["t0"] + 0.9 < time.monotonic())
        with socket.socket() as probe:
            probe.settimeout(0.5)
            try:
                probe.connect((lab.vm(name)["ip"], lab.port))
                seen[name] = probe.recv(12)
            except OSError as error:
                seen[name] = type(error).__name__
    assert seen == {"refuse": "ConnectionRefusedError", "silent": "TimeoutError", "http": b"HTTP/1.1 400", "drop": "TimeoutError"}


def test_resets_before_the_first_answer_and_an_address_that_changes(lab):
    lab.add_vm("tahoe", reset_first=3, ip_changes=True)
    lab.boot("tahoe", wait=False)
    results = []
    while 0 not in results:
        time.sleep(0.05)
        results.append(lab.ssh("tahoe", "true").returncode)
    assert results.count(255) >= 3
    first = lab.vm("tahoe").run_state()["ip"]
    lab.host("lume", "stop", "tahoe")
    lab.boot("tahoe", wait=False)
    wait_for(lambda: lab.vm("tahoe").run_state())
    assert lab.vm("tahoe").run_state()["ip"] != first


def test_a_connection_that_is_cut_in_the_middle(lab):
    lab.add_vm("tahoe", running=True, proxy=True)
    lab.start()
    assert lab.ssh("tahoe", "echo x").stdout == "x\n"
    lab.fault("ssh", cut_after=200000, times=1)
    assert lab.ssh("tahoe", "cat > f", input="y" * 1000000).returncode == 255
    assert lab.ssh("tahoe", "wc -c < f").returncode == 0


def test_unsynced_files_are_lost_when_the_plug_is_pulled(lab):
    lab.add_vm("tahoe", running=True, lose_unsynced=True)
    lab.start()
    lab.ssh("tahoe", "echo kept > a; sync; sleep 0.05; echo lost > b")
    lab.host("lume", "stop", "tahoe")
    home = pathlib.Path(lab.vm("tahoe").home)
    assert (home / "a").read_text() == "kept\n" and (home / "b").read_text() == ""


# Faults

def test_faults_of_host_tools(lab):
    lab.add_vm("tahoe")
    lab.fault("lume", match="get", exit=3, stderr="Error: no\n", times=2)
    assert [lab.host("lume", "get", "tahoe").returncode for _ in range(3)] == [3, 3, 0]
    lab.clear_faults()
    lab.fault("lume", match="ls", garbage=True)
    lab.fault("sw_vers", flood=3)
    lab.fault("sysctl", delay=0.3)
    lab.fault("defaults", die=True)
    assert b"\xff\xfe" in lab.host("lume", "ls", text=False, errors=None).stdout
    assert len(lab.host("sw_vers").stdout) == 3 << 20
    started = time.monotonic()
    lab.host("sysctl", "-n", "hw.model")
    assert time.monotonic() - started > 0.3
    died = lab.host("defaults", "export", DOMAIN, "-")
    assert died.returncode == -signal.SIGKILL


@pytest.mark.parametrize("kind", [True, "grandchild"])
def test_a_tool_that_hangs(lab, kind):
    lab.fault("sw_vers", hang=kind)
    child = subprocess.Popen([lab.world.path("host", "bin", "sw_vers")], env=lab.env(), stdout=subprocess.PIPE)
    wait_for(lambda: any(item.get("role") == "hang" for item in map(json.loads, open(lab.world.path("pids.jsonl"))))
             if os.path.exists(lab.world.path("pids.jsonl")) else False)
    time.sleep(0.1)
    child.terminate()
    if kind == "grandchild":
        assert child.wait(5) == 0
        os.set_blocking(child.stdout.fileno(), False)
        assert child.stdout.read() is None, "the grandchild keeps the output open"
    else:
        time.sleep(0.2)
        assert child.poll() is None
    lab.down()
    os.set_blocking(child.stdout.fileno(), True)
    assert child.stdout.read() == b""
    child.wait()


SUBJECT = """
import os, subprocess, sys
open(os.environ["LUMELIFT_LAB"] + "/target.pid", "w").write(str(os.getpid()))
for command in sys.argv[1:]:
    subprocess.run(command, shell=True)
print("survived")
"""


@pytest.mark.parametrize("when, written", [("before", False), ("after", True)])
def test_kill_of_the_program_before_and_after_a_call(up, when, written):
    """The program under test is killed around its second call: once without and once with the call's effect."""
    identity = up.fault("*", nth=2, kill_parent=when)
    ssh = " ".join(up.ssh_command("tahoe", "'touch made'"))
    done = subprocess.run([sys.executable, "-c", SUBJECT, "sw_vers", ssh, "sw_vers"], env=up.env(), capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL and "survived" not in done.stdout
    wait_for(lambda: len([call for call in up.calls() if "end" in call]) >= 2)
    assert up.fault_count(identity) >= 2
    assert os.path.exists(os.path.join(up.vm("tahoe").home, "made")) == written


def test_kill_within_a_transfer(up, tmp_path):
    big = tmp_path / "big"
    big.write_bytes(os.urandom(1 << 20))
    up.fault("sftp", at_byte=500000, kill_parent="before", cut=True)
    sftp = " ".join(["/usr/bin/sftp", "-b", "-", *["-P" if word == "-p" else word for word in up.ssh_command("tahoe")[1:]]])
    done = subprocess.run([sys.executable, "-c", SUBJECT, f"echo put {big} part | {sftp}"], env=up.env(), capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL
    size = os.path.getsize(os.path.join(up.vm("tahoe").home, "part"))
    assert 0 < size < 1 << 20


@pytest.mark.parametrize("when, done", [("before", False), ("after", True)])
def test_kill_between_the_steps_of_a_script_in_the_guest(up, when, done):
    """Between a temporary file and its final name."""
    up.fault("mv", match="final", kill_parent=when)
    ssh = up.ssh_command("tahoe", "'echo x > part && mv -f part final'")
    ended = subprocess.run([sys.executable, "-c", SUBJECT, " ".join(ssh)], env=up.env(), capture_output=True, check=False)
    assert ended.returncode == -signal.SIGKILL
    home = pathlib.Path(up.vm("tahoe").home)
    wait_for(lambda: [call for call in up.calls("guest") if "end" in call])
    assert (home / "final").exists() == done and (home / "part").exists() != done


def test_somebody_acts_between_two_steps(up):
    up.fault("guest", match="true", shell_before=f"defaults write {DOMAIN} {KEY} -int 7", shell_after="touch vms/tahoe/home/visitor", times=1)
    assert up.ssh("tahoe", "true; [ -e visitor ]").returncode == 1
    assert up.ssh("tahoe", "[ -e visitor ]").returncode == 0
    assert f"{DOMAIN} {KEY} integer 7" in up.snapshot()


def test_a_checksum_tool_that_lies(up):
    up.fault("shasum", stdout="\\" + "0" * 64 + "  -\n", exit=0)
    assert up.ssh("tahoe", "/usr/bin/shasum -a 256 < .ssh/authorized_keys" if BUILD else "shasum -a 256").stdout == "\\" + "0" * 64 + "  -\n"


def test_calls_are_logged_with_what_they_said(up):
    up.forget_calls()
    up.host("defaults", "write", DOMAIN, KEY, "-bool", "true")
    up.ssh("tahoe", "print -r -- 'a \"b\" \\n'\nexit 5")
    host, guest = up.calls("defaults")[0], up.calls("guest")[0]
    assert host["argv"] == ["write", DOMAIN, KEY, "-bool", "true"] and host["exit"] == 0
    assert guest["argv"] == ["print -r -- 'a \"b\" \\n'\nexit 5"] and guest["exit"] == 5 and guest["vm"] == "tahoe"


# The world as text, and its end

def test_snapshot_is_stable_and_sees_every_change(up):
    first = up.snapshot()
    up.host("lume", "stop", "tahoe")
    assert up.snapshot() != first
    up.boot("tahoe")
    assert up.snapshot() == first
    for change in ("echo x >> .ssh/authorized_keys", "chmod 700 .", "mkdir Desktop/new", "ln -s a b"):
        before = up.snapshot()
        up.ssh("tahoe", change)
        assert up.snapshot() != before
    before = up.snapshot()
    up.preference(True, "boolean")
    assert up.snapshot() != before


def test_two_labs_side_by_side(tmp_path):
    with Lab(tmp_path / "one") as one, Lab(tmp_path / "two") as two:
        for made in (one, two):
            made.add_vm("tahoe", running=True)
            made.start()
        one.ssh("tahoe", "echo one > mark")
        two.ssh("tahoe", "echo two > mark")
        one.host("defaults", "write", DOMAIN, KEY, "-bool", "true")
        one.down()
        assert two.ssh("tahoe", "cat mark").stdout == "two\n"
        assert two.host("defaults", "read", DOMAIN, KEY).returncode == 1


def test_down_leaves_no_process_and_spares_a_decoy(tmp_path):
    decoy = subprocess.Popen(["/bin/sleep", "60"], executable="/bin/sleep")
    made = Lab(tmp_path / "lab")
    made.add_vm("tahoe", running=True)
    made.start()
    path = agent(made)
    launchctl(made, f"bootstrap gui/501 {path}")
    made.ssh("tahoe", "nohup sleep 300 > /dev/null 2>&1 &")
    assert processes_of(made.dir)
    made.down()
    assert processes_of(made.dir) == []
    assert decoy.poll() is None
    decoy.kill()
    decoy.wait()


def test_a_killed_test_takes_its_lab_along(tmp_path):
    script = (f"import sys, time; sys.path.insert(0, {str(LAB)!r})\nfrom lab import Lab\nlab = Lab({str(tmp_path / 'lab')!r})\n"
              "lab.add_vm('tahoe', running=True)\nlab.start()\nprint('up', flush=True)\ntime.sleep(60)")
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"up\n"
    assert processes_of(tmp_path / "lab")
    child.kill()
    child.wait()
    wait_for(lambda: processes_of(tmp_path / "lab") == [])


def test_command_line(tmp_path):
    tool, where = str(LAB / "lab"), str(tmp_path / "lab")
    subprocess.run([tool, "up", where, "--noise=off", "--vm", "tahoe:running=true,uid=502", "--vm", "other"], check=True, capture_output=True)
    try:
        done = subprocess.run(["/bin/bash", "-c", f'eval "$({tool} env {where})"; lume get tahoe --format json'], capture_output=True, text=True, check=True)
        assert json.loads(done.stdout)[0]["status"] == "running"
        assert subprocess.run([tool, "ssh", where, "tahoe", "id -u"], capture_output=True, text=True, check=True).stdout == "502\n"
        assert "[vm other]\nstatus stopped" in subprocess.run([tool, "snapshot", where], capture_output=True, text=True, check=True).stdout
        subprocess.run([tool, "fault", where, "lume", "exit=9", "times=1"], check=True, capture_output=True)
        assert subprocess.run(["/bin/bash", "-c", f'eval "$({tool} env {where})"; lume ls'], capture_output=True, check=False).returncode == 9
    finally:
        subprocess.run([tool, "down", where], check=True)
    assert processes_of(where) == []
