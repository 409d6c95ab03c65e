"""Several lumelifts at once: one waits or is told who holds the lock, and the preference is right at the end."""

import json
import pathlib
import re
import time

import pytest

from product import DOMAIN, KEY, guest_home, run, start

QUICK = {"arch": "x86_64", "boot_delay": 0.05, "shutdown_delay": 0.05, "ip_delay": 0.05}
TRUE = f"{DOMAIN} {KEY} boolean true"


def without_boots(snapshot):
    return "\n".join(line for line in snapshot.splitlines() if not line.startswith("preference at start"))


@pytest.fixture
def free(lab):
    """A lab without the limit of two guests."""
    path = lab.world.path("lab.json")
    with open(path, encoding="utf-8") as file:
        settings = json.load(file)
    with open(path, "w", encoding="utf-8") as file:
        json.dump({**settings, "guest_limit": None}, file)
    return type(lab)(lab.dir)


def finish(process, timeout=180):
    out, err = process.communicate(timeout=timeout)
    return process.returncode, out, err


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.02)


def error_of(err):
    return next((line for line in err.splitlines() if line.startswith("error[")), "")


def test_r22_r135_the_second_unlock_of_a_vm_waits_or_learns_who_holds_it(lab):
    lab.add_vm("ci-1", running=True, **QUICK)
    lab.start()
    before = lab.snapshot()
    ends = [finish(process) for process in [start(lab, "unlock", "ci-1") for _ in range(2)]]
    assert sorted(rc for rc, _, _ in ends) in ([0, 0], [0, 4]), ends
    for rc, _, err in ends:
        assert rc == 0 or re.search(r"error\[lock-held\].*pid \d+ since \S+: unlock ci-1", err), err
    assert len(lab.events("boot")) == 2 and TRUE in lab.snapshot()  # the first is of the lab: `lume run` was called once
    assert run(lab, "rollback", "ci-1").rc == 0
    assert lab.snapshot() == before


def test_r135_who_waits_too_long_is_told_and_who_only_looks_is_never_held_up(lab):
    """Exit 4 names the holder and since when; `status`, `history` and `doctor` answer meanwhile."""
    lab.add_vm("ci-1", **{**QUICK, "boot_delay": 25})
    lab.start()
    before = lab.snapshot()
    holder = start(lab, "unlock", "ci-1")
    wait_for(lambda: lab.events("boot"))
    waiter = start(lab, "rollback", "ci-1")
    looks = []
    for words in (("--json", "status"), ("history",), ("doctor",)):
        since = time.monotonic()
        looked = run(lab, *words)
        looks.append((words, looked.rc, time.monotonic() - since))
        assert looked.error_id is None, looked
        assert "lumelift rollback" not in looked.out, looked  # it is no leftover: somebody works on it
    preference = run(lab, "rollback", "--host")
    assert preference.rc == 4 and f"pid {holder.pid} since" in preference.err and TRUE in lab.snapshot(), preference
    shown = run(lab, "--json", "status", "ci-1").json["vms"][0]
    assert shown["unlocked"] == "in progress" and re.search(rf"pid {holder.pid} since \S+: unlock ci-1", shown["note"]), shown
    rc, _, err = finish(waiter)
    assert holder.poll() is None, "the holder ended too early for this test"
    assert rc == 4 and re.search(rf"pid {holder.pid} since 20\d\d-\S+Z: unlock ci-1", error_of(err)), err
    assert all(spent < 9 for _, _, spent in looks), looks
    assert finish(holder)[0] == 0
    assert run(lab, "rollback", "ci-1").rc == 0
    assert lab.snapshot() == before


def test_r111_two_vms_at_once(free):
    for name in ("a", "b"):
        free.add_vm(name, running=True, **QUICK)
    free.start()
    before = without_boots(free.snapshot())
    for rc, _, err in [finish(process) for process in [start(free, "unlock", name) for name in ("a", "b")]]:
        assert rc == 0, err
    assert TRUE in free.snapshot()
    assert run(free, "--json", "status").json["preference"]["claims"] == ["a", "b"]
    assert len([call for call in free.calls("defaults") if call["argv"][0] == "write"]) == 1
    for rc, _, err in [finish(process) for process in [start(free, "rollback", name) for name in ("a", "b")]]:
        assert rc == 0, err
    assert without_boots(free.snapshot()) == before


def test_r111_unlock_of_one_against_rollback_of_the_other(free):
    """Whoever comes first: a VM that is unlocked at the end has the preference, and the last rollback restores it."""
    for name in ("a", "b"):
        free.add_vm(name, running=True, **QUICK)
    free.start()
    before = without_boots(free.snapshot())
    assert run(free, "unlock", "a").rc == 0
    for rc, _, err in [finish(process) for process in (start(free, "rollback", "a"), start(free, "unlock", "b"))]:
        assert rc == 0, err
    assert TRUE in free.snapshot()
    assert run(free, "--json", "status").json["preference"]["claims"] == ["b"]
    assert run(free, "rollback", "b").rc == 0
    assert without_boots(free.snapshot()) == before


def test_unlock_against_rollback_of_one_vm(lab):
    lab.add_vm("ci-1", running=True, **QUICK)
    lab.start()
    before = lab.snapshot()
    assert run(lab, "unlock", "ci-1").rc == 0
    ends = [finish(process) for process in (start(lab, "rollback", "ci-1"), start(lab, "unlock", "ci-1"))]
    for rc, _, err in ends:
        assert rc in (0, 4), err
    assert any(rc == 0 for rc, _, _ in ends)
    assert run(lab, "rollback", "ci-1").rc == 0
    assert lab.snapshot() == before


def test_r126_r127_ten_at_once(free):
    """One write of the preference, ten pinned keys, ten good states, and all of it taken back at once as well."""
    names = [f"v{number}" for number in range(10)]
    for name in names:
        free.add_vm(name, **QUICK)
    free.start()
    before = free.snapshot()
    for rc, _, err in [finish(process, 400) for process in [start(free, "unlock", name) for name in names]]:
        assert rc == 0, err
    assert len([call for call in free.calls("defaults") if call["argv"][0] == "write"]) == 1
    assert sorted(run(free, "--json", "status").json["preference"]["claims"]) == sorted(names)
    for name in names:
        assert (guest_home(free, name) / ".local/share/lumelift/lumelift-probe").exists()
    for rc, _, err in [finish(process, 400) for process in [start(free, "rollback", name) for name in names]]:
        assert rc == 0, err
    assert free.snapshot() == before


def test_r132_a_lock_dies_with_its_holder(lab):
    """The kernel's lock, not the file, is the lock: what a killed holder wrote into it holds nobody up."""
    lab.add_vm("ci-1", running=True, **QUICK)
    lab.start()
    before = lab.snapshot()
    fault = lab.fault("lume", match="run", kill_parent="before")
    killed = start(lab, "unlock", "ci-1")
    assert finish(killed)[0] == -9 and lab.fault_count(fault)
    lab.clear_faults()
    files = list(pathlib.Path(lab.home).rglob("vm-ci-1.lock"))
    assert len(files) == 1 and f"pid {killed.pid}" in files[0].read_text()
    assert run(lab, "rollback", "ci-1").rc == 0
    assert lab.snapshot() == before
