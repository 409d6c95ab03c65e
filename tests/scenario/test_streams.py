"""What goes in and out: one JSON object whatever happens, results that are lost, streams that are closed, the prompt, a missing home."""

import fcntl
import json
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import termios
import time

import pytest

from product import LUMELIFT, command, guest_home, run, start

QUICK = {"arch": "x86_64", "boot_delay": 0.05, "shutdown_delay": 0.05, "ip_delay": 0.05}


@pytest.fixture
def small(lab):
    lab.add_vm("ci-1", running=True, **QUICK)
    return lab.start()


def shell(lab, line, cwd=None, env=None):
    """A line of sh in which "lumelift" is the program."""
    environment = {**lab.env(), "LUMELIFT_PORT": str(lab.port), **(env or {})}
    return subprocess.run(["/bin/bash", "-c", line.replace("lumelift", str(LUMELIFT))], env=environment, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=60, check=False, cwd=cwd)


# Wrong usage

WRONG = [
    ("--json", "unlock", "ci-1", "--restart", "maybe"),
    ("unlock", "ci-1", "--port", "0", "--json"),
    ("unlock", "--json"),
    ("power", "ci-1", "sideways", "--json"),
    ("copy", "--json", "ci-1", "a"),
    ("fleet", "bogus", "--json"),
    ("rollback", "--json", "--all", "--host"),
    ("--json", "unlok"),
    ("--json", "run", "ci-1", "--nonsense", "--", "/bin/echo", "--json"),
]


def test_wrong_usage_has_its_object_too(lab):
    lab.start()
    for words in WRONG:
        done = run(lab, *words)
        assert done.rc == 2 and done.json["error"]["id"] == "usage" and done.json["error"]["status"] == 2, (words, done)
        assert len(done.out.splitlines()) == 1, done
    # What stands behind "--" is not for us.
    for words in (("unlock", "--restart", "maybe"), ("run", "ci-1", "--nonsense", "--", "/bin/echo", "--json")):
        done = run(lab, *words)
        assert (done.rc, done.out) == (2, ""), done


def test_wrong_usage_names_what_was_wrong_and_whose_help_to_read(lab):
    lab.start()
    assert "next: see: lumelift unlock --help" in run(lab, "unlock", "ci-1", "--restart", "maybe").err
    assert "next: see: lumelift --help" in run(lab, "unlok").err
    for value in ("abc", "0"):
        done = run(lab, "--json", "unlock", "ci-1", env={"LUMELIFT_PORT": value})
        assert done.rc == 2 and "LUMELIFT_PORT" in done.json["error"]["message"] and "--port" not in done.err, done
    typed = run(lab, "unlock", "ci-1", "--port", "0", env={"LUMELIFT_PORT": "23"})
    assert typed.rc == 2 and "--port" in typed.err and "LUMELIFT_PORT" not in typed.err, typed


def test_words_that_are_no_text_stay_in_an_object(lab):
    lab.start()
    done = run(lab, "--json", "trust", b"\xff\xfe".decode(errors="surrogateescape"))
    assert done.rc == 0 and done.json == {"schema": 1, "vm": "\ufffd\ufffd", "changed": False}, done


# One object for many VMs

def test_rollback_of_all_is_one_object(lab):
    for name in ("a", "b"):
        lab.add_vm(name, running=True, **QUICK)
    lab.start()
    nothing = run(lab, "rollback", "--all", "--json")
    assert nothing.rc == 0 and nothing.json == {"schema": 1, "changed": False, "status": 0, "vms": []}, nothing
    for name in ("a", "b"):
        assert run(lab, "unlock", name, "--host-preference", "keep").rc == 0
    # Of "a" something stays, "b" is in somebody's hands: the first is worse.
    (guest_home(lab, "a") / ".local/share/lumelift/lumelift-probe").write_bytes(b"mine\n")
    (lock,) = pathlib.Path(lab.home, ".local/state/lumelift").rglob("*b*.lock")
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = run(lab, "rollback", "--all", "--json")
    assert done.rc == 3 and done.json["status"] == 3 and done.json["changed"] is True, done
    first, second = done.json["vms"]
    assert (first["vm"], first["status"], first["changed"], first["complete"], first["error"]) == ("a", 3, True, False, None), first
    assert any("lumelift-probe" in line for line in first["kept"]) and "schema" not in first
    assert (second["vm"], second["status"], second["changed"], second["complete"]) == ("b", 4, False, False), second
    assert (second["error"]["id"], second["error"]["status"]) == ("lock-held", 4) and "error[lock-held]" in done.err
    rest = run(lab, "rollback", "--all", "--json")
    assert rest.rc == 0 and [(row["vm"], row["status"]) for row in rest.json["vms"]] == [("b", 0)], rest


def test_an_interrupted_rollback_of_all_tells_of_each(lab):
    for name in ("a", "b"):
        lab.add_vm(name, running=True, **QUICK)
    lab.start()
    for name in ("a", "b"):
        assert run(lab, "unlock", name, "--host-preference", "keep").rc == 0
    removing = lab.fault("guest", match="lumelift-probe", delay=2, nth=1)
    process = start(lab, "rollback", "--all", "--json", "--restart", "never")
    end = time.monotonic() + 60
    while not lab.fault_count(removing) and process.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    told = json.loads(out)
    assert process.returncode == 130 and told["status"] == 130, out + err
    assert [(row["vm"], row["status"]) for row in told["vms"]] == [("a", 0), ("b", 130)], told
    assert "nothing was changed" not in err


# Results that nobody gets

def test_a_slow_reader_of_a_pipe_that_does_not_block_gets_it_all(lab):
    lab.start()
    words = ("inspect", "--json", *["/bin/sh"] * 300)
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(write, False)
    process = subprocess.Popen(command(lab, *words), env=lab.env(), stdin=subprocess.DEVNULL, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    time.sleep(1)
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read().decode()
    wanted = run(lab, *words)
    assert (process.wait(30), process.stderr.read().decode()) == (wanted.rc, wanted.err)
    process.stderr.close()
    assert len(wanted.out) > 3 * 4096 and text == wanted.out


def test_a_full_disk_takes_no_result_away_in_silence(small):
    for words in ("status --json", "status", "history --json", "--version", "--help"):
        done = shell(small, f"lumelift {words} >/dev/full")
        assert done.returncode == 1 and "error[output-unwritable]" in done.stderr and "No space left" in done.stderr, (words, done)
    # A status that tells more stays, and what was asked for is done nevertheless.
    done = shell(small, "lumelift inspect /bin/sh --json >/dev/full")
    assert done.returncode == 5 and "error[output-unwritable]" in done.stderr, done
    done = shell(small, "lumelift unlock ci-1 --json --host-preference keep >/dev/full")
    assert done.returncode == 1 and "what was asked for is done" in done.stderr, done
    assert run(small, "rollback", "ci-1", "--json").json["changed"] is True


def test_a_reader_that_went_away(small):
    """A command that answers has failed then; one that acts does its work to the end."""
    for words in ("status --json", "history --json", "unlock ci-1 --dry-run"):
        done = shell(small, f"{{ sleep 0.2; lumelift {words}; echo $? >&2; }} | true")
        assert done.stderr.splitlines()[-1] == "1" and "error[output-closed]" in done.stderr, (words, done)
    done = shell(small, "{ sleep 0.2; lumelift unlock ci-1 --json --host-preference keep; echo $? >&2; } | true")
    assert done.stderr.splitlines()[-1] == "0" and "error[" not in done.stderr, done
    done = shell(small, "{ sleep 0.2; lumelift rollback ci-1; echo $? >&2; } | true")
    assert done.stderr.splitlines()[-1] == "0", done
    assert run(small, "rollback", "ci-1", "--json").json["changed"] is False


# Streams that are closed

def test_closed_streams_are_no_pipes_of_ours(small):
    done = shell(small, "lumelift run ci-1 --stock -- /bin/cat <&-")
    assert (done.returncode, done.stdout) == (0, ""), done
    done = shell(small, "lumelift status --json <&- >&-")
    assert done.returncode == 1 and "error[output-unwritable]" in done.stderr, done
    done = shell(small, "lumelift status --json <&- 2>&-")
    assert done.returncode == 0 and json.loads(done.stdout)["vms"], done
    done = shell(small, "lumelift unlock ci-1 --json --host-preference keep <&- >&- 2>&-")
    assert done.returncode == 0, done
    done = shell(small, "lumelift rollback ci-1 --json <&- 2>&-")
    assert done.returncode == 0 and json.loads(done.stdout)["changed"] is True, done


# The prompt

class Prompt:
    """lumelift with a terminal of its own that asks for the password."""

    def __init__(self, lab, ahead=b""):
        self.main, self.side = pty.openpty()
        self.before = termios.tcgetattr(self.side)
        if ahead:
            os.write(self.main, ahead)
        self.child = subprocess.Popen(command(lab, "unlock", "ci-1", "--ask-password", "--dry-run"),
                                      env={**lab.env(), "LUMELIFT_PORT": str(lab.port)}, stdin=self.side, stdout=self.side,
                                      stderr=self.side, start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.seen = b""

    def until(self, text, seconds=20):
        end = time.monotonic() + seconds
        while text not in self.seen and time.monotonic() < end:
            if select.select([self.main], [], [], 0.1)[0]:
                self.seen += os.read(self.main, 4096)
        assert text in self.seen, self.seen

    def end(self):
        try:
            status = self.child.wait(30)
        finally:
            self.child.kill()
        while select.select([self.main], [], [], 0.1)[0]:
            self.seen += os.read(self.main, 4096)
        assert termios.tcgetattr(self.side) == self.before, "the terminal is not as it was"
        os.close(self.main), os.close(self.side)
        return status


def test_the_prompt_comes_when_it_is_silent_already(small, tmp_path):
    trace = tmp_path / "trace"
    main, side = pty.openpty()
    words = command(small, "unlock", "ci-1", "--ask-password", "--dry-run")
    child = subprocess.Popen(["strace", "-qq", "-e", "trace=ioctl,write", "-o", trace, *words], stdin=side, stdout=side, stderr=side,
                             env={**small.env(), "LUMELIFT_PORT": str(small.port)}, start_new_session=True)
    seen, end = b"", time.monotonic() + 30
    while b"assword" not in seen and time.monotonic() < end:
        if select.select([main], [], [], 0.1)[0]:
            seen += os.read(main, 4096)
    os.write(main, b"lume\n")
    while child.poll() is None and time.monotonic() < end:
        if select.select([main], [], [], 0.1)[0]:
            os.read(main, 4096)
    child.kill()
    text = trace.read_text()
    assert re.search(r"TCSETS\w*|SNDCTL_TMR_\w+", text), text
    assert re.search(r"TCSETS\w*|SNDCTL_TMR_\w+", text).start() < text.index("Password of lume"), text
    os.close(main), os.close(side)


def test_a_password_that_was_typed_ahead_counts(small):
    prompt = Prompt(small, b"lume\n")
    prompt.until(b"assword")
    assert prompt.end() == 0, prompt.seen


def test_a_password_that_is_typed_is_not_shown(small):
    prompt = Prompt(small)
    prompt.until(b"assword")
    os.write(prompt.main, b"lume\n")
    assert prompt.end() == 0, prompt.seen
    assert b"guest: lume" not in prompt.seen


def test_ctrl_c_at_the_prompt_interrupts(small):
    prompt = Prompt(small)
    prompt.until(b"assword")
    os.write(prompt.main, b"\x03")
    assert prompt.end() == 130, prompt.seen
    assert b"interrupted" in prompt.seen and b"password-unreadable" not in prompt.seen


# A home

@pytest.mark.parametrize("home", [None, "", "here"])
def test_without_a_home_nothing_is_put_into_this_folder(small, tmp_path, home):
    environment = {key: value for key, value in small.env().items() if key not in ("HOME", "XDG_STATE_HOME", "LUMELIFT_STATE_DIR")}
    if home is not None:
        environment["HOME"] = home
    (tmp_path / "w").mkdir()

    def without(*words, **more):
        return subprocess.run([LUMELIFT, *words], env={**environment, **more}, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              check=False, cwd=tmp_path / "w", timeout=60)
    for words in (["status"], [], ["history"], ["trust", "ci-1"], ["unlock", "ci-1"], ["rollback", "--all"], ["doctor"]):
        done = without("--json", *words)
        assert done.returncode == 2 and json.loads(done.stdout)["error"]["id"] == "home-unknown" and "HOME" in done.stderr, (words, done)
    for words in (["--version"], ["--help"], ["unlock", "--help"], ["inspect", "/bin/sh"]):
        done = without(*words)
        assert "error[" not in done.stderr and done.stdout, (words, done)
    assert without("history", LUMELIFT_STATE_DIR=str(tmp_path / "state")).returncode == 0
    assert not list((tmp_path / "w").iterdir())
