"""Each external thing fails in each way that it can. A row of FAULTS is one fault and its outcome; the table in docs/faults.md is
made of these rows, so nothing stands there that a test has not seen."""

import os
import pathlib

import pytest

from fault_cases import CASES, DONE, QUICK, Fault
from product import BUILD, KEY, LABEL, run, workload

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs" / "faults.md"

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
    Fault("lume-run-hangs", "`lume run` never returns and starts nothing", 1, "lume-no-answer", tool="lume", fault={"match": "run", "nth": 1, "hang": True}),
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
    Fault("sshd-dies", "the guest's sshd dies for good in the middle of a command; the VM's restart brings it back", 5, "probe-failed", tool="guest",
          fault={"match": "'--ceiling'", "nth": 1, "cut": True, "shell_before": "kill -9 $(cat vms/ci-1/ssh/sshd.pid)"}),
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
