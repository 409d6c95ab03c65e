"""Faults strike where they are told to, and nothing of a lab outlives it."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from labtest import BUILD, DOMAIN, KEY, LAB, Lab, agent, launchctl, processes_of, wait_for


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
