"""Ctrl-C and its kin at many steps: everything is undone, exit 130; a second one leaves at once and the next run recovers."""

import os
import pathlib
import signal
import subprocess
import time

import pytest

from product import command, run, workload

QUICK = {"arch": "x86_64", "boot_delay": 0.05, "shutdown_delay": 0.05, "ip_delay": 0.05}

# Moments of an unlock: the call that is held up while the signal arrives.
MOMENTS = {
    "looking": ("lume", {"match": "get", "nth": 1}),
    "shutting-down": ("guest", {"match": "shutdown"}),
    "preference": ("defaults", {"match": "write"}),
    "starting": ("lume", {"match": "run"}),
    "copying": ("guest", {"match": "model.gguf", "at_byte": 9000, "nth": 1}),
    "probing": ("guest", {"match": "lumelift-probe", "times": 40}),
    "loading": ("launchctl", {"match": "bootstrap"}),
}


@pytest.fixture
def ready(lab):
    lab.add_vm("ci-1", running=True, **QUICK)
    return lab.start()


def begin(lab, *words):
    """In a session of its own, as a terminal starts it: the process is the leader of the foreground group."""
    environment = {**lab.env(), "LUMELIFT_PORT": str(lab.port)}
    return subprocess.Popen(command(lab, *words), env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, errors="replace", start_new_session=True)


def wait_for(condition, process=None, seconds=90):
    deadline = time.monotonic() + seconds
    while not condition():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.01)


def held(lab, moment, seconds):
    """Holds the call of this moment up; returns the fault's id."""
    tool, fault = MOMENTS[moment]
    hold = {"stall": seconds} if "at_byte" in fault else {"delay": seconds}
    return lab.fault(tool, **fault, **hold)


def strays(lab):
    """Host tools of this lab that still run, apart from the VMs."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if any(word.startswith(lab.world.path("host", "bin")) for word in words) and "run" not in words:
            found.append(" ".join(words))
    return found


@pytest.mark.parametrize("moment", MOMENTS)
def test_r43_ctrl_c_undoes_and_exits_130(ready, tmp_path, moment):
    before = ready.snapshot()
    fault = held(ready, moment, 3)
    process = begin(ready, "unlock", "ci-1", "--workload", workload(tmp_path / "w"))
    wait_for(lambda: ready.fault_count(fault), process)
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, out + err
    assert "interrupted" in err and not strays(ready)
    ready.clear_faults()
    assert ready.snapshot() == before
    assert "nothing to take back" in run(ready, "rollback", "ci-1").out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda n: n.name)
def test_other_signals_do_the_same(ready, number):
    before = ready.snapshot()
    fault = held(ready, "starting", 2)
    process = begin(ready, "unlock", "ci-1")
    wait_for(lambda: ready.fault_count(fault), process)
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, out + err
    assert ready.snapshot() == before and not strays(ready)


def test_ctrl_c_at_the_terminal_reaches_the_whole_foreground_group(ready):
    """The stand-ins are in groups of their own: only lumelift decides what becomes of them."""
    before = ready.snapshot()
    fault = held(ready, "preference", 2)
    process = begin(ready, "unlock", "ci-1")
    wait_for(lambda: ready.fault_count(fault), process)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, out + err
    assert ready.snapshot() == before and not strays(ready)


def test_a_signal_told_twice_is_one(ready):
    """As timeout(1) does it: to the process, then to its group."""
    before = ready.snapshot()
    starting = held(ready, "starting", 1)
    process = begin(ready, "unlock", "ci-1")
    wait_for(lambda: ready.fault_count(starting), process)
    process.send_signal(signal.SIGTERM)
    os.killpg(process.pid, signal.SIGTERM)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, out + err
    assert ready.snapshot() == before and not strays(ready)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)
def test_a_second_signal_leaves_at_once_and_the_next_run_recovers(ready, number):
    before = ready.snapshot()
    starting = held(ready, "starting", 1)
    undoing = ready.fault("defaults", match="delete", delay=30)
    process = begin(ready, "unlock", "ci-1")
    wait_for(lambda: ready.fault_count(starting), process)
    process.send_signal(number)
    wait_for(lambda: ready.fault_count(undoing), process)
    time.sleep(0.25)  # what comes sooner counts as the same wish
    since = time.monotonic()
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and time.monotonic() - since < 10, out + err
    wait_for(lambda: not strays(ready), seconds=5)
    ready.clear_faults()
    assert ready.snapshot() != before
    done = run(ready, "rollback", "ci-1")
    assert done.rc == 0, done
    assert ready.snapshot() == before


def test_a_terminal_that_closes_says_so_twice_and_the_undo_still_ends(ready):
    before = ready.snapshot()
    undoing = ready.fault("defaults", match="delete", delay=1)
    starting = held(ready, "starting", 1)
    process = begin(ready, "unlock", "ci-1")
    wait_for(lambda: ready.fault_count(starting), process)
    process.send_signal(signal.SIGHUP)
    wait_for(lambda: ready.fault_count(undoing), process)
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=120)
    assert process.returncode == 130
    assert ready.snapshot() == before


def test_nohup_outlives_the_terminal(ready):
    process = subprocess.Popen(["/usr/bin/nohup", *command(ready, "unlock", "ci-1")], env={**ready.env(), "LUMELIFT_PORT": str(ready.port)},
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    fault = held(ready, "preference", 1)
    wait_for(lambda: ready.fault_count(fault), process)
    process.send_signal(signal.SIGHUP)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, out + err


def test_ctrl_c_during_a_rollback_lets_it_finish(ready):
    """Half a rollback helps nobody: the first signal is kept until the world is right."""
    before = ready.snapshot()
    assert run(ready, "unlock", "ci-1").rc == 0
    fault = ready.fault("defaults", match="delete", delay=1)
    process = begin(ready, "rollback", "ci-1")
    wait_for(lambda: ready.fault_count(fault), process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode in (0, 130), out + err
    assert ready.snapshot() == before


def test_ctrl_c_while_waiting_for_a_lock_changes_nothing(lab):
    lab.add_vm("ci-1", **{**QUICK, "boot_delay": 12})
    ready = lab.start()
    holder = begin(ready, "unlock", "ci-1")
    wait_for(lambda: ready.events("boot"), holder)
    waiter = begin(ready, "unlock", "ci-1")
    time.sleep(3)
    waiter.send_signal(signal.SIGINT)
    _, err = waiter.communicate(timeout=30)
    assert waiter.returncode == 130 and "nothing was changed" in err
    assert holder.communicate(timeout=120) and holder.returncode == 0
