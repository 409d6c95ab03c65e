"""The server that answers for the stand-ins: a served call is the same as one of its own process, and lives no longer than its front."""

import json
import os
import pathlib
import re
import signal
import subprocess

import pytest

from labtest import wait_for
from world import alive, descendants, start_time


def lume(lab):
    return lab.world.path("host", "bin", "lume")


def servers(lab):
    recorded = map(json.loads, pathlib.Path(lab.world.path("pids.jsonl")).read_text().splitlines())
    return [item["pid"] for item in recorded if item["role"] == "guard"]


def plain(lab):
    """The lab as it is without its server."""
    (server,) = servers(lab)
    started = start_time(server)
    os.kill(server, signal.SIGKILL)
    wait_for(lambda: not alive(server, started))


def test_a_served_call_is_like_a_plain_one(lab):
    lab.add_vm("ci-1", running=True, umask="027")
    lab.start()
    folder = pathlib.Path(lab.tmp())

    def look():
        shown = []
        for words in (("lume", "get", "ci-1", "--format", "json"), ("lume", "get", "nobody"), ("lume", "--odd"), ("sw_vers",),
                      ("defaults", "read", "a", "b c"), ("defaults", "write", "a", "b", "-string", "ü\n "), ("defaults", "read", "\udcff")):
            done = lab.host(*words, cwd=folder)
            shown.append((words, done.returncode, re.sub(r"\[20.*?Z\]", "", done.stdout), done.stderr if words[0] != "defaults" else ""))
        lab.host("defaults", "export", "a", "out.plist", cwd=folder)
        shown.append((folder / "out.plist").read_bytes())
        shown.append(lab.ssh("ci-1", "umask; id; echo '<plist/>' | plutil -lint -; f=$(mktemp -d); stat -f '%p %u %Su' $f; rmdir $f; "
                                     "TZ=Asia/Tokyo date -r 0 +%H; sudo -n hostname; launchctl print gui/1").stdout)
        (folder / "out.plist").unlink()
        lab.host("defaults", "delete", "a")
        return shown
    served = look()
    plain(lab)
    assert served == look()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_killed_front_takes_its_call_along(lab, number):
    lab.start()
    lab.fault("lume", match="ls", delay=60)
    front = subprocess.Popen([lume(lab), "ls"], env=lab.env())
    (server,) = servers(lab)
    wait_for(lambda: descendants(server))
    front.send_signal(number)
    assert front.wait(10) == -number
    wait_for(lambda: not descendants(server))
    lab.clear_faults()
    assert lab.host("lume", "ls").returncode == 0


def test_a_call_that_dies_ends_its_front_alike(lab):
    lab.start()
    lab.fault("sw_vers", die=True)
    assert lab.host("sw_vers").returncode == -signal.SIGKILL


def test_a_call_dies_with_the_server_and_is_not_tried_again(lab):
    lab.start()
    lab.fault("lume", match="ls", delay=60)
    front = subprocess.Popen([lume(lab), "ls"], env=lab.env())
    (server,) = servers(lab)
    wait_for(lambda: descendants(server))
    (call,) = descendants(server)
    lab.down()
    assert front.wait(10) == -signal.SIGKILL and not alive(*call)
    assert len(lab.calls("lume")) == 1


def test_faults_of_a_served_call_kill_the_right_process(lab):
    """The lumelift that a fault is meant for is the one above the front."""
    lab.start()
    lab.fault("lume", match="ls", kill_parent="before")
    fake = pathlib.Path(lab.tmp()) / "lumelift"
    fake.write_bytes(pathlib.Path("/usr/bin/bash").read_bytes())
    fake.chmod(0o755)
    done = subprocess.run([fake, "-c", "lume ls; echo survived"], env=lab.env(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "")


def test_a_guests_tools_have_no_powers_of_root(lab):
    lab.add_vm("ci-1", running=True)
    lab.start()
    done = lab.ssh("ci-1", "mkdir shut; chmod 500 shut; mktemp shut/x.XXXX; mktemp -d shut/x.XXXX; rmdir shut")
    assert done.stderr.count("Permission denied") == 2, done


def test_a_started_vm_shows_its_own_command_line(lab):
    lab.add_vm("ci-1", running=True)
    lab.start()
    shown = lab.host("ps", "-xo", "args=").stdout.splitlines()
    assert f"/usr/bin/python3 -IS {lume(lab)} run ci-1 --display none" in shown, shown
    assert lab.host("ps", "-axo", "pid=,ppid=,comm=").stdout.count(f" {os.path.basename(lume(lab))}\n") >= 1
