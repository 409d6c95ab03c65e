"""`run`: one process in the guest, byte for byte, with the library in it or deliberately without. R61, R68, R74, R139."""

import fcntl
import json
import os
import pty
import random
import select
import signal
import subprocess
import termios
import time

import pytest

from product import BUILD, Lab, command, guest_home, run

EXIT_CODES = [0, 1, 126, 127, 137, 255]


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """One guest for all tests of this file: each leaves it as it was. Its programs run as x86_64 ones, which is quicker."""
    with Lab(tmp_path_factory.mktemp("run") / "lab", build=BUILD) as made:
        made.add_vm("ci-1", running=True, arch="x86_64", sip=True)
        made.start()
        put_program(made, "lab-echo", "lab-children", "lab-llama-cli")
        yield made


def put_program(lab, *names):
    for name in names:
        target = guest_home(lab, "ci-1") / name
        target.write_bytes((BUILD / "tests/lab/workloads" / name).read_bytes())
        target.chmod(0o755)


@pytest.fixture
def unlocked(lab):
    assert run(lab, "unlock", "ci-1", "--host-preference", "keep").rc == 0
    yield lab
    assert run(lab, "rollback", "ci-1").rc == 0


def raw(lab, *words, input=None, timeout=120):
    """Bytes in, bytes out."""
    environment = {**lab.env(), "LUMELIFT_PORT": str(lab.port)}
    return subprocess.run([os.fsencode(w) for w in command(lab, *words)], env=environment, capture_output=True, timeout=timeout, check=False,
                          **({"input": input} if input is not None else {"stdin": subprocess.DEVNULL}))


def start(lab, *words, **options):
    environment = {**lab.env(), "LUMELIFT_PORT": str(lab.port)}
    return subprocess.Popen(command(lab, *words), env=environment, **options)


def random_word(source):
    length = source.randrange(0, 14)
    if source.random() < 0.5:
        return bytes(source.choice(b"'\"\\$`*?[]{}()<>|&;!#~= \t\n\r-%^@:,./\x01\x7f\x1b\x1e") for _ in range(length))
    return bytes(source.randrange(1, 256) for _ in range(length))


def test_ten_thousand_random_argument_vectors_arrive_byte_for_byte(lab):
    source = random.Random(6)
    vectors = [[random_word(source) for _ in range(source.randrange(0, 5))] for _ in range(10_000)]
    arrived, at, runs = [], 0, 0
    while at < len(vectors):
        # As many vectors as one SSH request holds, a mark between them; the bytes on the wire are at most four for one.
        batch, size = [], 0
        while at < len(vectors) and size < 20_000:
            vector = vectors[at]
            batch += [*vector, b"<next>"]
            size += sum(len(w) + 3 + 3 * w.count(b"'") for w in vector) + 9
            at += 1
        done = raw(lab, "run", "ci-1", "--stock", "--", "./lab-echo", "args", *map(os.fsdecode, batch))
        assert done.returncode == 0, done
        words, vector = done.stdout.split(b"\0")[:-1], []
        for word in words:
            if word == b"<next>":
                arrived.append(vector)
                vector = []
            else:
                vector.append(word)
        runs += 1
    assert arrived == vectors
    print(f"{len(vectors)} argument vectors in {runs} runs")


@pytest.mark.parametrize("code", EXIT_CODES)
def test_the_remote_status_is_passed_through(lab, code):
    done = raw(lab, "run", "ci-1", "--stock", "--", "./lab-echo", "exit", str(code))
    assert (done.returncode, done.stdout) == (code, b"said\n"), done


def test_a_status_that_comes_after_the_output_has_ended_is_not_lost(lab):
    done = raw(lab, "run", "ci-1", "--stock", "--", "./lab-echo", "exit", "7", "300")
    assert (done.returncode, done.stdout) == (7, b"said\n"), done


def test_death_by_a_signal_is_told_as_a_shell_does(lab):
    done = raw(lab, "run", "ci-1", "--stock", "--", "./lab-echo", "abort")
    assert done.returncode == 134, done


def test_streams_stay_apart(lab):
    done = raw(lab, "run", "ci-1", "--stock", "--", "./lab-echo", "both")
    assert (done.stdout, done.stderr) == (b"out\n", b"err\n"), done


def test_binary_input_and_output(lab):
    data = random.Random(1).randbytes(3_000_000)
    assert raw(lab, "run", "ci-1", "--stock", "--", "./lab-echo", "cat", input=data).stdout == data


def test_output_is_live_and_input_follows_it(lab):
    child = start(lab, "run", "ci-1", "--stock", "--", "./lab-echo", "cat", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    for word in (b"one\n", b"two\n"):
        child.stdin.write(word)
        child.stdin.flush()
        assert select.select([child.stdout], [], [], 20)[0]
        assert child.stdout.readline() == word
    child.stdin.close()
    assert child.wait(20) == 0
    child.stdout.close()


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_signals_reach_the_remote_process(lab, name):
    child = start(lab, "run", "ci-1", "--stock", "--", "./lab-echo", "wait", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"ready\n"
    child.send_signal(getattr(signal, name))
    assert child.wait(20) == 100 + getattr(signal, name)
    child.stdout.close()


def test_an_injected_program_has_the_library_and_its_children_have_not(unlocked):
    done = raw(unlocked, "run", "ci-1", "--", "./lab-children")
    assert done.returncode == 0, done
    parent, child = [json.loads(line) for line in done.stdout.splitlines()[:2]]
    assert parent["injected"] and parent["apple7"] and not child["injected"] and not child["apple7"], done


def test_a_stock_program_has_nothing(unlocked):
    done = raw(unlocked, "run", "ci-1", "--stock", "--", "./lab-children")
    assert done.returncode == 0, done
    parent = json.loads(done.stdout.splitlines()[0])
    assert not parent["injected"] and not parent["apple7"] and not parent["variable"], done


def test_stock_is_scrubbed_whatever_the_account_sets(lab):
    rc = guest_home(lab, "ci-1") / ".zshenv"
    rc.write_text("export DYLD_MADE_UP=1 LUMELIFT_TRACE=/tmp/x LUME_METAL_APPLE_FAMILY_MAX=1009 KEPT='a b'\necho from a start file\n")
    try:
        done = raw(lab, "run", "ci-1", "--stock", "--env", "OWN=x=y", "--", "./lab-echo", "env")
    finally:
        rc.unlink()
    names = {line.split(b"=")[0] for line in done.stdout.splitlines()}
    assert done.returncode == 0 and {b"KEPT", b"OWN"} <= names, done
    assert not [n for n in names if n.startswith((b"DYLD_", b"LUME"))], done
    assert b"start file" not in done.stdout


def test_a_run_leaves_the_guest_as_it_was(lab):
    before = lab.snapshot()
    done = run(lab, "run", "ci-1", "--", "./lab-children")
    assert done.rc == 0 and json.loads(done.out.splitlines()[0])["injected"], done
    assert lab.snapshot() == before
    assert run(lab, "status", "ci-1").rc == 0


def test_a_run_in_an_unlocked_guest_takes_no_lock_and_leaves_no_receipt(unlocked):
    before = unlocked.snapshot()
    first = start(unlocked, "run", "ci-1", "--", "./lab-echo", "wait", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert first.stdout.readline() == b"ready\n"
    second = run(unlocked, "run", "ci-1", "--", "./lab-echo", "both")
    assert second.rc == 0, second
    first.send_signal(signal.SIGTERM)
    assert first.wait(20) == 115
    first.stdout.close()
    assert unlocked.snapshot() == before


def test_a_program_of_macos_is_refused_with_reason(unlocked):
    done = run(unlocked, "run", "ci-1", "--", "/bin/cat")
    assert done.rc == 2 and done.error_id == "run-not-injectable" and "part of macOS" in done.err, done


def test_a_process_without_the_library_is_an_error(unlocked):
    """R74: with --force it starts, and its missing receipt is seen."""
    forced = run(unlocked, "run", "ci-1", "--force", "--", "/bin/cat")
    assert forced.rc == 5 and forced.error_id == "run-not-injected" and "exit status 0" in forced.err, forced
    accepted = run(unlocked, "run", "ci-1", "--allow-stock", "--", "/bin/cat")
    assert accepted.rc == 0 and "without the library" in accepted.err, accepted


def test_a_missing_program_keeps_its_own_status(unlocked):
    done = run(unlocked, "run", "ci-1", "--force", "--", "./nothing-here")
    assert done.rc == 127 and done.error_id is None, done
    assert run(unlocked, "run", "ci-1").error_id == "command-missing"


def test_a_folder_that_is_not_there_is_named(lab):
    done = run(lab, "run", "ci-1", "--stock", "--dir", "no such", "--", "/bin/echo", "never")
    assert done.rc == 126 and done.out == "" and "lumelift: the guest has no folder /" in done.err and "/no such that can" in done.err, done


def test_json_tells_all_of_it(unlocked):
    done = run(unlocked, "--json", "run", "ci-1", "--", "./lab-echo", "both").json
    assert (done["stdout"], done["stderr"], done["status"], done["exit"]) == ("out\n", "err\n", 0, 0), done
    assert done["receipt"]["pid"] == done["pid"] and done["receipt"]["outcome"] == "armed"


def test_a_lost_connection_is_255(lab):
    child = start(lab, "run", "ci-1", "--stock", "--", "./lab-echo", "wait", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout.readline() == b"ready\n"
    assert lab.host("lume", "stop", "ci-1").returncode == 0
    assert child.wait(30) == 255
    assert b"connection" in child.stderr.read()
    child.stdout.close(), child.stderr.close()
    lab.boot("ci-1")


def test_a_terminal_that_changes_its_size(lab):
    """The kernel tells lumelift only where the terminal is its controlling one; the guest's terminal then gets the same size."""
    main, side = pty.openpty()
    termios.tcsetwinsize(side, (31, 97))
    child = start(lab, "run", "ci-1", "--stock", "--", "/bin/sh", "-c", "echo \"pid $$\"; read line", stdin=side, stdout=side, stderr=side,
                  start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
    seen, end = b"", time.monotonic() + 30
    while not (b"pid " in seen and seen.endswith(b"\n")) and time.monotonic() < end:
        if select.select([main], [], [], 0.2)[0]:
            seen += os.read(main, 4096)
    pid = int(seen.partition(b"pid ")[2])

    def guest_size():
        terminal = os.open(f"/proc/{pid}/fd/0", os.O_RDONLY | os.O_NOCTTY)
        try:
            return termios.tcgetwinsize(terminal)
        finally:
            os.close(terminal)
    assert guest_size() == (31, 97)
    termios.tcsetwinsize(side, (40, 100))
    while guest_size() != (40, 100) and time.monotonic() < end:
        time.sleep(0.05)
    assert guest_size() == (40, 100)
    os.write(main, b"done\r")
    assert child.wait(30) == 0


def test_a_terminal_on_both_sides(lab):
    """A pty: raw keys, window size, one stream; our terminal's settings come back."""
    main, side = pty.openpty()
    termios.tcsetwinsize(side, (31, 97))
    settings = termios.tcgetattr(side)
    child = start(lab, "run", "ci-1", "--stock", "--", "/bin/sh", "-c", "test -t 0 && test -t 1 && echo terminal; read line; echo \"<$line>\"; exec ./lab-echo wait",
                  stdin=side, stdout=side, stderr=side, start_new_session=True)
    seen = b""

    def until(text):
        nonlocal seen
        end = time.monotonic() + 30
        while text not in seen and time.monotonic() < end:
            if select.select([main], [], [], 0.2)[0]:
                seen += os.read(main, 4096)
        assert text in seen, seen
    until(b"terminal")
    os.write(main, b"typed\r")
    until(b"<typed>")
    until(b"ready")
    # A key, not a signal to lumelift: the guest's terminal makes SIGINT of it.
    os.write(main, b"\x03")
    until(b"^C")
    # The lab's login shell is in the foreground too and may go first; a Mac's has become the program.
    assert child.wait(30) in (102, 130)
    assert termios.tcgetattr(side) == settings
    os.close(main), os.close(side)
