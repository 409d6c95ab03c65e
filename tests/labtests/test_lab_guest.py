"""The lab's guests answer as macOS does where the product asks, and their boots and networks go wrong on demand."""

import json
import os
import pathlib
import signal
import subprocess
import time

import pytest

from labtest import BUILD, agent, launchctl, wait_for


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

    right = login("lume")
    assert (right.stdout, right.returncode) == ("out err 4\n", 0), right.stderr
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
        deadline = time.monotonic() + 10
        while name not in seen or (seen[name] == "ConnectionRefusedError" and name != "refuse" and time.monotonic() < deadline):
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


# Shared folders

def shared(lab, folder, mode, *more, **options):
    """A VM run with a folder shared; its guest answers on return."""
    lab.add_vm("tahoe", **options)
    lab.start()
    words = [word for path in (f"{folder}:{mode}", *more) for word in ("--shared-dir", path)]
    assert lab.host("lume", "run", "tahoe", "--display", "none", "--detach", *words).returncode == 0
    wait_for(lambda: lab.ssh("tahoe", "true").returncode == 0, 20)


def test_a_read_only_share_is_read_and_never_written(lab, tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "a").write_text("hello")
    shared(lab, folder, "ro")
    assert lab.ssh("tahoe", "cat '/Volumes/My Shared Files/models/a'; id -u; pwd").stdout.splitlines()[:2] == ["hello501", lab.vm("tahoe").home]
    for change in ("echo x > 'models/b'", "rm -f models/a", "chmod 777 models/a", "umount models"):
        assert lab.ssh("tahoe", f"cd '/Volumes/My Shared Files' && {change}").returncode != 0, change
    (folder / "later").write_text("seen")
    assert lab.ssh("tahoe", "cat '/Volumes/My Shared Files/models/later'").stdout == "seen"
    assert sorted(path.name for path in folder.iterdir()) == ["a", "later"] and not pathlib.Path("/Volumes").exists()


def test_shares_have_their_folders_names(lab, tmp_path):
    for place in ("one/models", "two/models"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "from").write_text(place)
    shared(lab, tmp_path / "one/models", "ro", f"{tmp_path}/two/models:rw")
    done = lab.ssh("tahoe", "cd '/Volumes/My Shared Files' && cat models/from 'models (2)/from' && echo changed > 'models (2)/from'")
    assert done.stdout == "one/modelstwo/models" and done.returncode == 0
    assert (tmp_path / "two/models/from").read_text() == "changed\n"


def test_a_guest_that_mounts_no_share(lab, tmp_path):
    (tmp_path / "models").mkdir()
    shared(lab, tmp_path / "models", "ro", shares_visible=False)
    assert lab.ssh("tahoe", "ls -d /Volumes/*").returncode != 0
