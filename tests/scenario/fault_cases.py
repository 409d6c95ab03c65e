"""Faults that take more than one call of a stand-in to arrange: the state folder, and others at work between two commands. Each is a
function that meets its fault; test_faults.py runs them and makes the table."""

import dataclasses
import os
import pathlib
import shutil
import sqlite3
import sys
import time

import pytest

from product import KEY, LABEL, guest_home, run, set_preference, workload

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "crash"))

import matrix  # noqa: E402

SAME, MINE = "as before", "as before, with the user's own change left alone"
DONE = "unlocked"


@dataclasses.dataclass(frozen=True)
class Fault:
    name: str                 # also the test's id; begins with the case of the collection that it covers, where there is one
    what: str                 # for the table
    status: int               # exit status of `unlock`
    error: str                # id, "" without one
    world: str = SAME
    tool: str = ""            # the lab's fault: tool and keys
    fault: dict = dataclasses.field(default_factory=dict)
    vm: dict = dataclasses.field(default_factory=dict)
    words: tuple = ()         # more arguments
    load: bool = False        # with a workload


QUICK = {"arch": "x86_64", "boot_delay": 0.05, "shutdown_delay": 0.05, "ip_delay": 0.05, "running": True}
CASES = []


def case(name, what, status, error, world=SAME):
    """Registers a function (lab, tmp_path) that arranges a fault and returns the run that met it."""
    def register(function):
        CASES.append((Fault(name, what, status, error, world), function))
        return function
    return register


def state_folder(lab):
    return pathlib.Path(lab.home) / ".local/state/lumelift"


def after_a_run(lab):
    """A journal with one finished run in it."""
    assert run(lab, "unlock", "ci-1").rc == 0
    assert run(lab, "rollback", "ci-1").rc == 0
    return state_folder(lab) / "journal.sqlite"


@case("state-is-a-file", "a file stands where the state folder should be", 1, "state-folder-unusable")
def state_is_a_file(lab, _):
    state_folder(lab).parent.mkdir(parents=True)
    state_folder(lab).write_text("mine")
    return run(lab, "unlock", "ci-1")


@case("state-foreign", "the state folder belongs to another user", 1, "state-folder-unusable")
def state_foreign(lab, _):
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    state_folder(lab).mkdir(parents=True)
    os.chown(state_folder(lab), 12345, 12345)
    return run(lab, "unlock", "ci-1")


@case("state-open-to-all", "the state folder is writable by everybody", 1, "state-folder-unusable")
def state_open(lab, _):
    state_folder(lab).mkdir(parents=True)
    state_folder(lab).chmod(0o777)
    return run(lab, "unlock", "ci-1")


@case("state-read-only", "the state folder is on a read-only file system", 1, "state-folder-unusable")
def state_read_only(lab, _):
    # proc is read-only for everybody, root included.
    return run(lab, "unlock", "ci-1", env={"LUMELIFT_STATE_DIR": "/proc/sys/kernel/lumelift"})


@case("journal-newer", "the journal is of a newer version", 1, "journal-newer")
def journal_newer(lab, _):
    database = after_a_run(lab)
    with sqlite3.connect(database) as link:
        link.execute("PRAGMA user_version = 99")
    link.close()
    return run(lab, "unlock", "ci-1")


@case("journal-corrupt", "the journal is damaged", 1, "journal-unreadable")
def journal_corrupt(lab, _):
    database = after_a_run(lab)
    content = bytearray(database.read_bytes())
    content[100:3000] = os.urandom(2900)
    database.write_bytes(content)
    return run(lab, "unlock", "ci-1")


@case("journal-other", "another program's database stands in the journal's place", 1, "journal-unreadable")
def journal_other(lab, _):
    state_folder(lab).mkdir(parents=True, mode=0o700)
    state_folder(lab).chmod(0o700)
    with sqlite3.connect(state_folder(lab) / "journal.sqlite") as link:
        link.execute("CREATE TABLE cookies (a)")
    link.close()
    return run(lab, "unlock", "ci-1")


@case("journal-locked", "another program keeps the journal locked", 4, "journal-busy")
def journal_locked(lab, _):
    link = sqlite3.connect(after_a_run(lab), isolation_level=None)
    link.execute("BEGIN IMMEDIATE")
    try:
        return run(lab, "unlock", "ci-1")
    finally:
        link.close()


@case("state-full", "the disk is full before the first word of the journal", 1, "journal-full")
def state_full(lab, _):
    after_a_run(lab)
    return run(lab, "unlock", "ci-1", env=full_from(1))


@case("state-fills-up", "the disk fills up in the middle of an unlock", 3, "journal-full", "undone; the journal is put right by the next `rollback`")
def state_fills_up(lab, _):
    after_a_run(lab)
    done = run(lab, "unlock", "ci-1", env=full_from(60))
    assert "could not be undone" not in done.err and "the journal could not be told" in done.err, done
    again = run(lab, "rollback", "ci-1")
    assert again.rc == 0, again
    return done


def full_from(call):
    return {"LD_PRELOAD": str(matrix.STRIKE), "STRIKE_NAME": "journal.sqlite", "STRIKE_AT": str(call), "STRIKE_SIDE": "full"}


@case("state-full-at-rollback", "the disk is full when `rollback` begins", 3, "", "undone; the journal is put right by the next `rollback`")
def state_full_at_rollback(lab, _):
    assert run(lab, "unlock", "ci-1").rc == 0
    done = run(lab, "rollback", "ci-1", env=full_from(12))
    assert KEY not in lab.snapshot() and "not undone" not in done.out and "could not be told" in done.out, done
    assert run(lab, "rollback", "ci-1").rc == 0
    return done


@case("r108-user-changed-preference", "the user changes the preference, then `rollback`", 3, "", MINE)
def user_changed_preference(lab, _):
    assert run(lab, "unlock", "ci-1").rc == 0
    set_preference(lab, ("string", "mine"))
    done = run(lab, "rollback", "ci-1")
    assert f'{KEY} string "mine"' in lab.snapshot() and "left alone" in done.out
    set_preference(lab, None)
    return done


@case("user-changed-file", "the user changes one of our files, then `rollback`", 3, "", MINE)
def user_changed_file(lab, _):
    assert run(lab, "unlock", "ci-1").rc == 0
    file = guest_home(lab, "ci-1") / ".local/share/lumelift/lumelift-probe"
    file.write_bytes(b"mine\n")
    done = run(lab, "rollback", "ci-1")
    assert file.read_bytes() == b"mine\n" and "lumelift-probe" in done.out and "left alone" in done.out
    shutil.rmtree(guest_home(lab, "ci-1") / ".local")
    return done


@case("user-changed-plist", "the user edits the agent's plist, then `rollback`", 3, "", MINE)
def user_changed_plist(lab, tmp_path):
    assert run(lab, "unlock", "ci-1", "--workload", workload(tmp_path / "w", 20_000)).rc == 0
    agents = guest_home(lab, "ci-1") / "Library/LaunchAgents"
    plist = agents / f"{LABEL}.plist"
    plist.write_bytes(plist.read_bytes().replace(b"</dict>", b"<key>Nice</key><integer>5</integer></dict>", 1))
    done = run(lab, "rollback", "ci-1")
    assert b"Nice" in plist.read_bytes() and "left alone" in done.out
    shutil.rmtree(agents)
    return done


@case("user-removed-file", "the user removes one of our files, then `rollback`", 0, "")
def user_removed_file(lab, _):
    assert run(lab, "unlock", "ci-1").rc == 0
    (guest_home(lab, "ci-1") / ".local/share/lumelift/lumelift-probe").unlink()
    return run(lab, "rollback", "ci-1")


@case("user-added-file", "the user puts a file into our folder, then `rollback`", 3, "", MINE)
def user_added_file(lab, _):
    assert run(lab, "unlock", "ci-1").rc == 0
    file = guest_home(lab, "ci-1") / ".local/share/lumelift/notes.txt"
    file.write_text("mine")
    done = run(lab, "rollback", "ci-1")
    assert file.read_text() == "mine" and "left alone" in done.out
    shutil.rmtree(guest_home(lab, "ci-1") / ".local")
    return done


@case("vm-deleted", "the VM is deleted, then `rollback`", 3, "", "the preference is as before; the VM is gone")
def vm_deleted(lab, _):
    assert run(lab, "unlock", "ci-1").rc == 0
    vm = lab.vm("ci-1")
    assert lab.host("lume", "stop", "ci-1").returncode == 0
    os.rename(vm.dir, vm.dir + ".away")
    done = run(lab, "rollback", "ci-1")
    assert KEY not in lab.snapshot()
    os.rename(vm.dir + ".away", vm.dir)
    lab.boot("ci-1")
    shutil.rmtree(guest_home(lab, "ci-1") / ".local")
    return done


@case("r132-vm-stopped-by-hand", "the VM is switched off by hand, then `rollback`", 0, "", "as before, and switched off again")
def vm_stopped_by_hand(lab, _):
    assert run(lab, "unlock", "ci-1").rc == 0
    assert lab.host("lume", "stop", "ci-1").returncode == 0
    done = run(lab, "rollback", "ci-1")
    lab.boot("ci-1")
    return done


@case("r132-vm-goes-off-during-rollback", "a VM goes off between the looks of a `rollback` after a killed unlock", 0, "", "as before")
def vm_goes_off_during_rollback(lab, _):
    for look in range(1, 5):
        lab.fault("guest", match="shutdown", nth=1, kill_parent="before")
        assert run(lab, "unlock", "ci-1").rc == -9
        lab.clear_faults()
        met = lab.fault("lume", match="get", nth=look, shell_after="lume stop ci-1")
        done = run(lab, "rollback", "ci-1")
        assert done.rc == 0, (look, done)
        assert look > 2 or lab.fault_count(met) >= look
        lab.clear_faults()
    return done


@case("vm-stopped-meanwhile", "somebody stops the VM while we prove the result", 5, "probe-failed")
def vm_stopped_meanwhile(lab, _):
    lab.fault("guest", match="'--ceiling'", nth=1, shell_before="lume stop ci-1")
    done = run(lab, "unlock", "ci-1")
    lab.clear_faults()
    assert "has been undone" in done.err and "nothing to take back" in run(lab, "rollback", "ci-1").out, done
    return done


@case("vm-stopped-that-was-off", "the same, of a VM that was off before", 5, "probe-failed")
def vm_stopped_that_was_off(lab, _):
    assert lab.host("lume", "stop", "ci-1").returncode == 0
    lab.fault("guest", match="'--ceiling'", nth=1, shell_before="lume stop ci-1")
    done = run(lab, "unlock", "ci-1")
    lab.clear_faults()
    assert "has been undone" in done.err and "status stopped" in lab.snapshot(), done
    lab.boot("ci-1")
    return done


@case("guest-unreachable", "the guest cannot be reached at `rollback`, later it can", 3, "", "the rest stays recorded and is undone later")
def guest_unreachable(lab, _):
    assert run(lab, "unlock", "ci-1").rc == 0
    done = run(lab, "rollback", "ci-1", "--restart", "never", "--port", "1")
    assert "stays recorded" in done.out
    again = run(lab, "rollback", "ci-1", "--restart", "always")
    assert again.rc == 0, again
    return done


@case("read-only-home", "the guest's home is read-only", 1, "guest-read-only")
def read_only_home(lab, _):
    home = guest_home(lab, "ci-1")
    home.chmod(0o555)
    try:
        return run(lab, "unlock", "ci-1")
    finally:
        home.chmod(0o750)


@case("user-sets-preference-between", "somebody sets another value between our look and our write", 1, "world-moved", MINE)
def user_sets_preference_between(lab, _):
    lab.fault("defaults", match="export", nth=1,
              shell_after="defaults write com.apple.gpusw.ParavirtualizedGraphics ForceUnrestrictedDeviceFeatureLevel -string mine")
    done = run(lab, "unlock", "ci-1")
    lab.clear_faults()
    assert f'{KEY} string "mine"' in lab.snapshot()
    set_preference(lab, None)
    return done


@case("r59-throttled", "launchd throttles a program that ends soon after each start", 5, "agent-throttled")
def throttled(lab, tmp_path):
    done = run(lab, "unlock", "ci-1", "--workload", workload(tmp_path / "w", 20_000, "lab-crash", keep_alive="true"))
    assert "throttles it" in done.err and "signal" in done.err and "Unable to construct residency set" in done.err, done
    return done


@case("r02-address-changes-while-waiting", "the guest's address changes while we wait for it", 0, "")
def address_changes_while_waiting(lab, _):
    lab.change_vm("ci-1", ip_changes=True, stale_ip=lab.vm("ci-1")["ip"], stale_lease=1.0, boot_delay=0.5)
    done = run(lab, "unlock", "ci-1")
    assert f"{KEY} boolean true" in lab.snapshot(), done
    assert run(lab, "rollback", "ci-1").rc == 0
    return done


@case("r35-address-of-another", "lume names the address of another running VM for a while, at the first contact", 0, "")
def address_of_another(lab, _):
    lab.add_vm("ci-2", **QUICK)
    lab.boot("ci-2")
    assert lab.host("lume", "stop", "ci-1").returncode == 0
    lab.change_vm("ci-1", stale_ip=lab.vm("ci-2")["ip"], stale_lease=1.5)
    done = run(lab, "unlock", "ci-1")
    assert f"{KEY} boolean true" in lab.snapshot(), done
    assert not [call for call in lab.calls("guest") if call.get("vm") == "ci-2"], "the other guest was taken for this one"
    assert run(lab, "rollback", "ci-1").rc == 0
    remove(lab, "ci-2")
    if not lab.vm("ci-1").run_state():
        lab.boot("ci-1")
    return done


def remove(lab, name):
    assert lab.host("lume", "stop", name).returncode == 0
    for folder in (lab.vm(name).dir, os.path.dirname(lab.vm(name).config)):
        shutil.rmtree(folder)


LARGE = 9 << 20   # bytes: such files are known by the manifest in the guest


@case("r95-plug-pulled-by-us", "we have to pull the plug of a guest that loses what it never wrote down", 0, "")
def plug_pulled_by_us(lab, tmp_path):
    lab.change_vm("ci-1", sudo="none", lose_unsynced=True)
    file = workload(tmp_path / "w", LARGE)
    assert run(lab, "unlock", "ci-1", "--workload", file, "--host-preference", "keep").rc == 0
    sent = len(lab.calls("sftp"))
    done = run(lab, "unlock", "ci-1", "--workload", file)
    assert lab.events("hard-stop") and len(lab.calls("sftp")) == sent, done
    assert run(lab, "rollback", "ci-1").rc == 0
    return done


@case("r95-plug-pulled-by-others", "somebody pulls the plug of such a guest after an unlock, then `unlock`", 0, "", DONE)
def plug_pulled_by_others(lab, tmp_path):
    lab.change_vm("ci-1", lose_unsynced=True)
    file = workload(tmp_path / "w", LARGE)
    assert run(lab, "unlock", "ci-1", "--workload", file).rc == 0
    assert lab.host("lume", "stop", "ci-1").returncode == 0
    model = guest_home(lab, "ci-1") / ".local/share/lumelift/server/model.gguf"
    assert model.stat().st_size == 0
    done = run(lab, "unlock", "ci-1", "--workload", file)
    assert model.read_bytes() == (tmp_path / "w/model.gguf").read_bytes(), done
    take_away_all(lab)
    if not lab.vm("ci-1").run_state():
        lab.boot("ci-1")
    return done


def lying_manifest(lab, target):
    """The manifest in the guest says of the file as it is now what it said before."""
    manifest = guest_home(lab, "ci-1") / "Library/Caches/lumelift/manifest"
    about = target.stat()
    head, *lines = manifest.read_text().splitlines()
    words = [line.split(" ") for line in lines]
    for line in words:
        if line[6].endswith("/" + target.name):
            line[2:5] = [f"{t // 10**9}.{t % 10**9:09}" for t in (about.st_mtime_ns, about.st_ctime_ns)] + [str(about.st_ino)]
    manifest.write_text("\n".join([head, *(" ".join(line) for line in words)]) + "\n")


@case("r95-damaged-by-the-stop", "the hard stop damages a large file without a trace in its size and times", 0, "", DONE)
def damaged_by_the_stop(lab, tmp_path):
    lab.change_vm("ci-1", sudo="none")
    file = workload(tmp_path / "w", LARGE)
    assert run(lab, "unlock", "ci-1", "--workload", file, "--host-preference", "keep").rc == 0
    model = guest_home(lab, "ci-1") / ".local/share/lumelift/server/model.gguf"
    with open(model, "r+b") as damaged:
        damaged.write(b"zero")
    lying_manifest(lab, model)
    done = run(lab, "unlock", "ci-1", "--workload", file)
    assert lab.events("hard-stop") and model.read_bytes() == (tmp_path / "w/model.gguf").read_bytes(), done
    take_away_all(lab)
    return done


def take_away_all(lab):
    """A rollback brings back what was found in our files' places, however it came there, and says so."""
    assert run(lab, "rollback", "ci-1").rc == 3
    for folder in (".local", "Library/LaunchAgents", "Library/Caches"):
        shutil.rmtree(guest_home(lab, "ci-1") / folder, ignore_errors=True)


def clock(path):
    return {"LD_PRELOAD": str(matrix.STRIKE), "STRIKE_CLOCK": str(path)}


def clock_jumps(seconds):
    """The clock is set while the VM is being started, between the preference and the wait for the guest."""
    def act(lab, tmp_path):
        file = tmp_path / "clock"
        file.write_text("0")
        met = lab.fault("lume", match="run", nth=1, shell_before=f"echo {seconds} > {file}")
        done = run(lab, "unlock", "ci-1", env=clock(file))
        assert lab.fault_count(met) and f"{KEY} boolean true" in lab.snapshot()
        again = run(lab, "--json", "unlock", "ci-1", env=clock(file))
        assert again.rc == 0 and len(lab.events("boot")) == 2, again
        assert run(lab, "rollback", "ci-1", env=clock(file)).rc == 0
        return done
    return act


case("r96-clock-ahead", "the Mac's clock is set a day ahead in the middle", 0, "")(clock_jumps(86400))
case("r96-clock-back", "the Mac's clock is set a day back in the middle", 0, "")(clock_jumps(-86400))


@case("r96-clock-and-restart", "the clock is set ahead after one unlock, then another VM that was started before it is unlocked", 0, "")
def clock_and_restart(lab, tmp_path):
    lab.add_vm("ci-2", **QUICK)
    lab.boot("ci-2")
    time.sleep(3)
    assert run(lab, "unlock", "ci-1").rc == 0
    (tmp_path / "clock").write_text("10800")
    done = run(lab, "unlock", "ci-2", env=clock(tmp_path / "clock"))
    assert len([event for event in lab.events("boot") if event["vm"] == "ci-2"]) == 2, done
    assert run(lab, "rollback", "--all").rc == 0
    remove(lab, "ci-2")
    return done


@case("vm-renamed", "the VM is renamed, then `rollback`", 3, "", "the preference is as before; the VM's new name is unknown to us")
def vm_renamed(lab, _):
    assert run(lab, "unlock", "ci-1").rc == 0
    vm = lab.vm("ci-1")
    assert lab.host("lume", "stop", "ci-1").returncode == 0
    os.rename(vm.dir, vm.dir + "-renamed")
    done = run(lab, "rollback", "ci-1")
    assert KEY not in lab.snapshot() and "lume no longer knows 'ci-1'" in done.out
    assert run(lab, "rollback", "ci-1-renamed").out.endswith("nothing to take back.\n")
    os.rename(vm.dir + "-renamed", vm.dir)
    lab.boot("ci-1")
    shutil.rmtree(guest_home(lab, "ci-1") / ".local")
    return done


@case("vm-restarted-by-hand", "the VM is restarted by hand, then `rollback`", 0, "")
def vm_restarted_by_hand(lab, _):
    assert run(lab, "unlock", "ci-1").rc == 0
    assert lab.host("lume", "stop", "ci-1").returncode == 0
    lab.boot("ci-1")
    return run(lab, "rollback", "ci-1")
