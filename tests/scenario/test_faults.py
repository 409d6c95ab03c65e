"""Each external thing fails in each way that it can. A row of FAULTS is one fault and its outcome; the table in docs/faults.md is
made of these rows, so nothing stands there that a test has not seen."""

import dataclasses
import os
import pathlib
import shutil
import sqlite3
import time
import sys
import time

import pytest

from product import BUILD, KEY, LABEL, guest_home, run, set_preference, workload

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "crash"))

import matrix  # noqa: E402

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs" / "faults.md"
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


FAULTS = (
    # lume
    Fault("r12-lume-hangs", "`lume get` never answers", 1, "lume-no-answer", tool="lume", fault={"match": "get", "hang": True}),
    Fault("r12-lume-grandchild", "`lume get` ends, its child keeps the output open", 1, "lume-unreadable", tool="lume",
          fault={"match": "get", "hang": "grandchild"}),
    Fault("lume-get-fails", "`lume get` exits 1 with a text of its own", 1, "lume-failed", tool="lume",
          fault={"match": "get", "exit": 1, "stderr": "Error: internal\n"}),
    Fault("r01-lume-garbage", "`lume get` prints bytes that are no text", 1, "lume-unreadable", tool="lume", fault={"match": "get", "garbage": True}),
    Fault("lume-flood", "`lume get` prints megabytes", 1, "lume-unreadable", tool="lume", fault={"match": "get", "flood": 12}),
    Fault("lume-dies", "`lume get` is killed in the middle of its answer", 1, "lume-failed", tool="lume", fault={"match": "get", "die": True}),
    Fault("lume-version-garbage", "`lume --version` prints bytes that are no text", 1, "lume-unreadable", tool="lume",
          fault={"match": "--version", "garbage": True}),
    Fault("r08-lume-run-fails", "`lume run` exits 1 once", 1, "vm-start-failed", tool="lume",
          fault={"match": "run", "nth": 1, "exit": 1, "stderr": "Error: no\n"}),
    Fault("lume-run-dies", "`lume run` is killed before the VM runs", 1, "lume-failed", tool="lume", fault={"match": "run", "nth": 1, "exit": 137}),
    Fault("r06-stop-refused", "the guest will not shut down and `lume stop` fails once", 1, "lume-failed", tool="lume",
          fault={"match": "stop", "nth": 1, "exit": 1, "stderr": "Error: no\n"}, vm={"sudo": "none"}),
    Fault("r07-stop-lies", "`lume stop` says 0 and the VM runs on", 1, "vm-stop-failed", tool="lume",
          fault={"match": "stop", "exit": 0}, vm={"sudo": "none"}),
    # defaults
    Fault("defaults-read-fails", "`defaults` cannot read", 1, "preference-unreadable", tool="defaults", fault={"exit": 3, "stderr": "defaults: oops\n"}),
    Fault("defaults-hangs", "`defaults` never answers", 1, "preference-unreadable", tool="defaults", fault={"hang": True}),
    Fault("defaults-garbage", "`defaults` prints bytes that are no property list", 1, "preference-unreadable", tool="defaults", fault={"garbage": True}),
    Fault("defaults-flood", "`defaults` prints megabytes", 1, "preference-unreadable", tool="defaults", fault={"flood": 12}),
    Fault("defaults-dies", "`defaults` is killed in the middle", 1, "preference-unreadable", tool="defaults", fault={"match": "export", "die": True}),
    Fault("r107-write-fails", "`defaults write` exits 1", 1, "preference-not-written", tool="defaults", fault={"match": "write", "exit": 1}),
    Fault("r108-write-lies", "`defaults write` says 0 and writes nothing", 1, "preference-not-written", tool="defaults", fault={"match": "write", "exit": 0}),
    Fault("write-and-fail", "`defaults write` writes, then exits 1", 0, "", DONE, tool="defaults", fault={"match": "write", "exit": 1, "effect": True}),
    Fault("r108-stale-reads", "the preferences daemon shows the old value for a while", 0, "", DONE, tool="cfprefsd", fault={"stale_reads": 2}),
    # launchctl
    Fault("r47-bootstrap-lies", "`launchctl bootstrap` says 0 and loads nothing", 1, "agent-not-loaded", tool="launchctl",
          fault={"match": "bootstrap", "exit": 0}, load=True),
    Fault("r44-bootstrap-5", "`launchctl bootstrap` exits 5", 1, "agent-not-loaded", tool="launchctl",
          fault={"match": "bootstrap", "exit": 5, "stderr": "Bootstrap failed: 5: Input/output error\n"}, load=True),
    Fault("launchctl-hangs", "`launchctl bootstrap` never ends", 1, "guest-timeout", tool="launchctl", fault={"match": "bootstrap", "hang": True}, load=True),
    Fault("launchctl-garbage", "`launchctl print` prints bytes that are no text", 1, "agent-still-loaded", tool="launchctl",
          fault={"match": "print gui/501/" + LABEL, "garbage": True}, load=True),
    Fault("launchctl-flood", "`launchctl print` prints megabytes", 1, "guest-unreadable", tool="launchctl",
          fault={"match": "print gui/501/" + LABEL, "flood": 12}, load=True),
    Fault("launchctl-dies", "`launchctl print` is killed in the middle of its answer", 1, "guest-tool-failed", tool="launchctl",
          fault={"match": "print gui/501/" + LABEL, "die": True}, load=True),
    # ssh
    Fault("r42-reset-at-boot", "the connection is reset three times while the guest boots", 0, "", DONE, vm={"reset_first": 3, "running": False}),
    Fault("r139-connection-cut", "the connection dies in the middle of a command", 5, "probe-failed", tool="guest", fault={"match": "'--ceiling'", "nth": 1, "cut": True}),
    Fault("r88-copy-cut", "the connection dies in the middle of a copy", 1, "guest-lost", tool="guest",
          fault={"match": "lumelift-part", "at_byte": 50_000, "times": 1, "cut": True}),
    Fault("command-hangs", "a command in the guest never ends", 1, "guest-timeout", tool="guest", fault={"match": "csrutil", "nth": 2, "hang": True}),
    Fault("command-garbage", "a command in the guest answers with bytes that are no text", 1, "guest-unreadable", tool="guest",
          fault={"match": "csrutil", "garbage": True}),
    Fault("command-flood", "a command in the guest answers with megabytes", 1, "guest-unreadable", tool="guest", fault={"match": "csrutil", "flood": 24}),
    Fault("r40-silent", "the guest's port takes connections and says nothing", 1, "guest-no-answer", vm={"boot": "silent", "running": False},
          words=("--timeout", "4")),
    Fault("r02-address-changes", "the guest comes back with another address", 0, "", DONE, vm={"ip_changes": True}),
    Fault("stale-address", "lume names an address of an earlier boot for a while", 0, "", DONE, vm={"stale_lease": 1.0}),
    Fault("r13-ssh-flag", "lume says that the guest has no SSH, and it has", 0, "", DONE, vm={"ssh_available": False}),
    Fault("r97-swallowed", "the first connection is never answered, the second is", 0, "", DONE, vm={"proxy": True, "running": False}, tool="ssh",
          fault={"nth": 1, "swallow": True}),
    Fault("r99-banner", "the guest's banner holds terminal escapes", 0, "", DONE, vm={"banner": "\x1b[2J\x1b]0;owned\x07\n" * 50}),
    # the guest itself
    Fault("r87-disk-full", "the guest's disk is full", 1, "guest-disk-full", vm={"disk_kb": 40}),
    Fault("lying-checksum", "the guest's checksum tool lies", 1, "transfer-corrupt", tool="shasum", fault={"stdout": "0" * 64 + "  -\n", "exit": 0}),
    Fault("checksum-dies", "the guest's checksum tool fails", 1, "transfer-unverified", tool="shasum", fault={"exit": 1}),
    Fault("shutdown-hangs", "the guest never finishes its shutdown: `lume stop` pulls the plug", 0, "", DONE, vm={"shutdown_hangs": True}),
    Fault("r04-lingers", "the VM stays listed as running for a while after it is off", 0, "", DONE, vm={"linger_running": 1}),
    Fault("missing-after-stop", "lume misses the VM for a moment after its stop", 0, "", DONE, vm={"missing_after_stop": 0.5}),
    # somebody else, between our steps
    Fault("r108-preference-reverted", "somebody sets the preference back after our write", 1, "preference-not-written", tool="cfprefsd",
          fault={"revert_after": 1}),
    Fault("vm-stopped", "somebody stops the VM while we wait for its guest", 1, "guest-no-answer", tool="lume",
          fault={"match": "get", "nth": 9, "shell_before": "lume stop ci-1"}, words=("--timeout", "6"), vm={"boot_delay": 3, "running": False}),
)

QUICK = {"arch": "x86_64", "boot_delay": 0.05, "shutdown_delay": 0.05, "ip_delay": 0.05, "running": True}


@pytest.mark.parametrize("row", FAULTS, ids=lambda row: row.name)
def test_fault(lab, tmp_path, row):
    lab.add_vm("ci-1", **{**QUICK, **row.vm})
    lab.start()
    before = lab.snapshot()
    met = lab.fault(row.tool, **row.fault) if row.tool else None
    load = ("--workload", workload(tmp_path / "w", 20_000)) if row.load else ()
    done = run(lab, "unlock", "ci-1", *load, *row.words, timeout=300)
    assert (done.rc, done.error_id or "") == (row.status, row.error), done
    assert met is None or lab.fault_count(met), "the fault was never met"
    lab.clear_faults()
    if row.world == DONE:
        assert f"{KEY} boolean true" in lab.snapshot()
        assert run(lab, "rollback", "ci-1", timeout=200).rc == 0
    else:
        assert "has been undone" in done.err or not lab.events("boot")[1 if row.vm.get("running", True) else 0:], done
    assert lab.snapshot() == before


# ---------------------------------------------------------------- the state folder, and others at work between two commands

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
    assert lab.host("lume", "stop", "ci-2").returncode == 0
    for folder in (lab.vm("ci-2").dir, os.path.dirname(lab.vm("ci-2").config)):
        shutil.rmtree(folder)
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


@pytest.mark.parametrize("row, act", CASES, ids=[row.name for row, _ in CASES])
def test_case(lab, tmp_path, row, act):
    lab.add_vm("ci-1", **QUICK)
    lab.start()
    before = lab.snapshot()
    done = act(lab, tmp_path)
    assert (done.rc, done.error_id or "") == (row.status, row.error), done
    assert without_boot(lab.snapshot()) == without_boot(before)


def without_boot(snapshot):
    """Cases that end a lab's VM by hand boot it again under another preference."""
    return [line for line in snapshot.splitlines() if not line.startswith("preference at start")]


def table():
    lines = ["# Faults and outcomes", "",
             "Made by `tests/scenario/test_faults.py`, which tries each row in the rehearsal lab (host and guest are simulated there):",
             "`lumelift unlock` meets the fault, ends with this status and error, and the world is compared byte by byte.", "",
             "| fault | exit | error | the world then |", "| --- | --- | --- | --- |"]
    for row in (*FAULTS, *(row for row, _ in CASES)):
        lines.append(f"| {row.what} | {row.status} | {'`' + row.error + '`' if row.error else 'none'} | {row.world} |")
    return "\n".join(lines) + "\n"


def test_the_table_is_current():
    """LUMELIFT_ACCEPT=1 writes it anew."""
    text = table()
    (BUILD / "fault-table.md").write_text(text)
    if os.environ.get("LUMELIFT_ACCEPT") == "1":
        DOCS.write_text(text)
    assert DOCS.read_text() == text
