"""copy: files, folders and links into a guest and out of it; unchanged files, interrupted copies, large files of a workload."""

import hashlib
import os
import random
import shutil
import signal
import subprocess
import time

import pytest

from product import command, guest_home, run, start, workload

MIB = 1 << 20
LARGE = 9 * MIB


@pytest.fixture
def guest(lab):
    lab.add_vm("ci-1", running=True, arch="x86_64")
    lab.start()
    lab.own_home = guest_home(lab, "ci-1")
    return lab


def noise(size, seed=1):
    return random.Random(seed).randbytes(size)


def leftovers(folder):
    return [str(path) for path in folder.rglob("*lumelift-*")]


def copied(lab, *words, **options):
    done = run(lab, "--json", "copy", "ci-1", *words, **options)
    assert done.rc == 0, done
    return done.json


def states(answer):
    return {os.path.basename(item["to"]): item["state"] for item in answer["files"]}


def test_file_lands_with_hash_mode_and_name(guest, tmp_path):
    data = noise(LARGE)
    (tmp_path / "model.gguf").write_bytes(data)
    (tmp_path / "tool").write_bytes(b"#!/bin/sh\n")
    (tmp_path / "tool").chmod(0o755)
    (tmp_path / "empty").write_bytes(b"")
    answer = copied(guest, tmp_path / "model.gguf", tmp_path / "tool", tmp_path / "empty", "new/")
    home = guest.own_home / "new"
    assert (home / "model.gguf").read_bytes() == data
    assert (home / "tool").stat().st_mode & 0o777 == 0o755
    assert (home / "empty").read_bytes() == b""
    model = next(item for item in answer["files"] if item["to"].endswith("model.gguf"))
    assert model["sha256"] == hashlib.sha256(data).hexdigest() and model["state"] == "copied" and answer["bytes_sent"] == LARGE + 10
    assert not leftovers(guest.own_home)


def test_unchanged_file_is_not_sent_again_and_verify_reads_it(guest, tmp_path):
    source = tmp_path / "model.gguf"
    source.write_bytes(noise(LARGE))
    copied(guest, source, "model.gguf")
    target = guest.own_home / "model.gguf"
    guest.forget_calls()
    assert states(copied(guest, source, "model.gguf")) == {"model.gguf": "unchanged"}
    assert not [call for call in guest.calls("guest") if "shasum" in str(call)]
    # Damaged in the guest with size and time kept: the stamp tells.
    about = target.stat()
    with open(target, "r+b") as file:
        file.seek(1000)
        file.write(b"damage")
    os.utime(target, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert states(copied(guest, source, "model.gguf")) == {"model.gguf": "copied"}
    assert target.read_bytes() == source.read_bytes()
    # A manifest that lies is believed, except by --verify.
    manifest = guest.own_home / "Library/Caches/lumelift/manifest"
    with open(target, "r+b") as file:
        file.write(b"damage")
    about = target.stat()
    lines = manifest.read_text().splitlines()
    words = lines[1].split(" ")
    words[2:5] = [f"{t // 10**9}.{t % 10**9:09}" for t in (about.st_mtime_ns, about.st_ctime_ns)] + [str(about.st_ino)]
    manifest.write_text("\n".join([lines[0], " ".join(words)]) + "\n")
    assert states(copied(guest, source, "model.gguf")) == {"model.gguf": "unchanged"}
    assert states(copied(guest, "--verify", source, "model.gguf")) == {"model.gguf": "copied"}
    assert target.read_bytes() == source.read_bytes()
    # The same bytes in another host file, and a mode that differs.
    again = tmp_path / "again"
    again.write_bytes(source.read_bytes())
    again.chmod(0o600)
    assert states(copied(guest, again, "model.gguf")) == {"model.gguf": "mode-set"}
    assert target.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("garbage", [b"", b"\xff\0\x1b[2J", b"lumelift-manifest 1\n" + b"x " * 5000, b"lumelift-manifest 1\n" + b"0" * 64 + b" 1 1 1 1 - /x%\n"],
                         ids=["empty", "bytes", "many words", "cut escape"])
def test_a_damaged_manifest_only_costs_time(guest, tmp_path, garbage):
    source = tmp_path / "model.gguf"
    source.write_bytes(noise(LARGE))
    folder = guest.own_home / "Library/Caches/lumelift"
    folder.mkdir(parents=True)
    (folder / "manifest").write_bytes(garbage)
    assert states(copied(guest, source, "model.gguf")) == {"model.gguf": "copied"}
    assert states(copied(guest, source, "model.gguf")) == {"model.gguf": "unchanged"}


def test_folder_with_links_and_odd_names_there_and_back(guest, tmp_path):
    tree = tmp_path / "tree"
    (tree / "sub" / "deep").mkdir(parents=True)
    names = ["a b", "it's", "$(touch x)", "-rf", "a\\b", "new\nline", "caf\u00e9", "*", "~", ".hidden", "tab\t", "%41", "n" * 255]
    for name in names:
        (tree / "sub" / name).write_bytes(name.encode())
    (tree / "sub" / "cafe\u0301").mkdir()
    (tree / "sub" / "cafe\u0301" / "x").write_bytes(b"x")
    (tree / "sub" / "big").write_bytes(noise(LARGE))
    (tree / "link").symlink_to("sub/a b")
    (tree / "sub" / "deep" / "up").symlink_to("../../sub")
    (tree / "empty").mkdir()
    first = copied(guest, tree, ".")
    assert first["links"] == 2
    home = guest.own_home / "tree"
    assert os.readlink(home / "link") == "sub/a b" and os.readlink(home / "sub/deep/up") == "../../sub"
    for name in names:
        assert (home / "sub" / name).read_bytes() == name.encode()
    assert (home / "sub" / "cafe\u0301" / "x").read_bytes() == b"x" and (home / "empty").is_dir()
    assert not leftovers(guest.own_home)
    (tree / "sub" / "a b").write_bytes(b"other")
    again = copied(guest, tree, ".")
    assert {item["to"].rpartition("/")[2] for item in again["files"] if item["state"] != "unchanged"} == {"a b"}
    back = tmp_path / "back"
    copied(guest, "--from", "tree", back)
    done = subprocess.run(["diff", "-r", "--no-dereference", tree, back], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert not leftovers(back)


def test_a_dry_run_tells_what_a_copy_then_does(guest, tmp_path):
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "big").write_bytes(noise(LARGE))
    (tree / "tool").write_bytes(b"one")
    (tree / "link").symlink_to("tool")

    def told(*words):
        """As the same command says with and without --dry-run, which must not have changed anything."""
        before = sorted((str(path.relative_to(guest.own_home)), path.lstat().st_mode, path.lstat().st_ctime_ns) for path in guest.own_home.rglob("*"))
        planned = copied(guest, "--dry-run", *words)
        assert sorted((str(path.relative_to(guest.own_home)), path.lstat().st_mode, path.lstat().st_ctime_ns) for path in guest.own_home.rglob("*")) == before
        done = copied(guest, *words)
        for answer in (planned, done):
            answer["files"] = sorted((item["to"], item["state"], item["size"]) for item in answer["files"])
            del answer["dry_run"], answer["milliseconds"]
        assert planned == done
        return {to.rpartition("/")[2]: state for to, state, _ in done["files"]}, done

    states, done = told(tree, ".")
    assert states == {"big": "copied", "tool": "copied"} and (done["folders_made"], done["links"], done["changes"]) == (2, 1, True)
    states, done = told(tree, ".")
    assert set(states.values()) == {"unchanged"} and (done["folders_made"], done["links"], done["changes"], done["bytes_sent"]) == (0, 0, False, 0)
    (tree / "tool").chmod(0o755)
    (tree / "link").unlink()
    (tree / "link").symlink_to("big")
    states, done = told(tree, ".")
    assert states == {"big": "unchanged", "tool": "mode-set"} and (done["links"], done["changes"], done["bytes_sent"]) == (1, True, 0)
    assert (guest.own_home / "tree/tool").stat().st_mode & 0o777 == 0o755 and os.readlink(guest.own_home / "tree/link") == "big"


def test_r93_a_name_that_the_guest_lists_in_another_normal_form_is_addressed_as_it_was_sent(guest, tmp_path):
    composed, decomposed = "mod\u00e8le.gguf", "mode\u0300le.gguf"
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / composed).write_bytes(noise(LARGE))
    (tree / f"small {composed}").write_bytes(b"small")
    copied(guest, tree, ".")
    home = guest.own_home / "tree"
    # A Mac's file system finds a name by either form and may list the other: here both stand for the same file.
    for name in (composed, f"small {composed}"):
        os.link(home / name, home / name.replace(composed, decomposed))
    guest.forget_calls()
    again = copied(guest, tree, ".")
    assert set(states(again).values()) == {"unchanged"} and again["bytes_sent"] == 0 and not guest.calls("sftp")
    assert not [call for call in guest.calls("guest") if decomposed in str(call["argv"]) or "mode\\u0300" in str(call["argv"])]
    (tree / composed).write_bytes(noise(LARGE, seed=2))
    assert states(copied(guest, tree, "."))[composed] == "copied"
    assert (home / composed).read_bytes() == noise(LARGE, seed=2) and len(list(home.iterdir())) == 4


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "sub/../../outside", "sub/.."])
def test_links_that_escape_are_refused_before_anything_is_sent(guest, tmp_path, target):
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "file").write_bytes(b"x")
    (tree / "link").symlink_to(target)
    done = run(guest, "copy", "ci-1", tree, ".")
    assert done.rc == 2 and done.error_id == "copy-link-escapes"
    assert not (guest.own_home / "tree").exists()
    # The same out of a guest.
    home = guest.own_home / "evil"
    home.mkdir()
    (home / "link").symlink_to(target)
    done = run(guest, "copy", "--from", "ci-1", "evil", tmp_path / "here")
    assert done.error_id == "copy-link-escapes" and not (tmp_path / "here").exists()


def test_links_in_the_guest_are_not_written_through(guest, tmp_path):
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub" / "file").write_bytes(b"x")
    (guest.own_home / "precious").mkdir()
    (guest.own_home / "tree").mkdir()
    (guest.own_home / "tree" / "sub").symlink_to(guest.own_home / "precious")
    done = run(guest, "copy", "ci-1", tree, ".")
    assert done.error_id == "guest-path-unsafe" and not list((guest.own_home / "precious").iterdir())
    (guest.own_home / "file").symlink_to("precious/x")
    done = run(guest, "copy", "ci-1", tree / "sub" / "file", "file")
    assert done.error_id == "guest-path-unsafe" and not list((guest.own_home / "precious").iterdir())


def test_a_running_program_keeps_its_file(guest, tmp_path):
    target = guest.own_home / "tool"
    for size in (10, LARGE):
        target.write_bytes(b"former")
        with open(target, "rb") as running:
            (tmp_path / "tool").write_bytes(noise(size))
            copied(guest, tmp_path / "tool", "tool")
            assert running.read() == b"former" and os.fstat(running.fileno()).st_ino != target.stat().st_ino
    assert not leftovers(guest.own_home)


def test_quarantine_is_not_carried_along(guest, tmp_path):
    for size in (10, LARGE):
        source = tmp_path / f"file-{size}"
        source.write_bytes(noise(size))
        os.setxattr(source, "user.com.apple.quarantine", b"0081;x;Safari;")
        copied(guest, source, source.name)
        assert os.listxattr(guest.own_home / source.name) == []


def test_interrupted_copy_goes_on(guest, tmp_path):
    source = tmp_path / "model.gguf"
    source.write_bytes(noise(3 * LARGE))
    guest.fault("sftp", at_byte=2 * LARGE, stall=600, times=1)
    child = start(guest, "copy", "ci-1", source, "model.gguf")
    part = guest.own_home / ".model.gguf.lumelift-part"
    deadline = time.monotonic() + 60
    while not (part.exists() and part.stat().st_size > LARGE) and time.monotonic() < deadline:
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == 130 and "goes on" in errors
    assert part.exists() and not (guest.own_home / "model.gguf").exists()
    guest.clear_faults()
    answer = copied(guest, source, "model.gguf")
    assert states(answer) == {"model.gguf": "continued"} and answer["bytes_sent"] < 2 * LARGE + MIB
    assert (guest.own_home / "model.gguf").read_bytes() == source.read_bytes() and not part.exists()


def test_r88_a_lost_connection_is_made_anew(guest, tmp_path):
    source = tmp_path / "model.gguf"
    source.write_bytes(noise(3 * LARGE))
    guest.fault("sftp", at_byte=2 * LARGE, cut=True, times=1)
    done = run(guest, "copy", "ci-1", source, "model.gguf")
    assert done.rc == 0 and "going on where it stopped" in done.err, done
    assert (guest.own_home / "model.gguf").read_bytes() == source.read_bytes()


def test_r88_twenty_cuts_in_a_row_end_in_the_right_bytes(guest, tmp_path):
    """At random offsets, more of them than one command has patience for: the next one goes on."""
    source = tmp_path / "model.gguf"
    source.write_bytes(noise(45 * MIB))
    offsets = random.Random()
    seed = offsets.randrange(1 << 32)
    offsets.seed(seed)
    cuts = [6, 6, 6, 2]
    for count in cuts:
        for number in range(count):
            guest.fault("sftp", at_byte=offsets.randrange(100_000, 2 * MIB), cut=True, nth=number + 1)
        done = run(guest, "--json", "copy", "ci-1", source, "model.gguf")
        assert done.err.count("going on where it stopped") == min(count, 5), (seed, done)
        if count == 6:
            assert done.rc == 1 and done.error_id == "guest-lost" and not (guest.own_home / "model.gguf").exists(), (seed, done)
    assert done.rc == 0 and done.json["files"][0]["state"] == "continued" and done.json["bytes_sent"] < 44 * MIB, (seed, done)
    assert (guest.own_home / "model.gguf").read_bytes() == source.read_bytes(), seed
    assert not leftovers(guest.own_home)


def test_r87_no_room_is_named(lab, tmp_path):
    lab.add_vm("ci-1", running=True, arch="x86_64", disk_kb=3000)
    lab.start()
    (tmp_path / "model.gguf").write_bytes(noise(LARGE))
    done = run(lab, "copy", "ci-1", tmp_path / "model.gguf", "model.gguf")
    assert done.rc == 1 and done.error_id == "guest-disk-full" and "9217 kB needed" in done.err
    assert not leftovers(guest_home(lab, "ci-1"))


def test_r82_a_guest_that_allows_one_channel_and_one_login_at_a_time(lab, tmp_path):
    lab.add_vm("ci-1", running=True, arch="x86_64", sshd=["MaxSessions 1", "MaxStartups 1:100:1"])
    lab.start()
    before = lab.snapshot()
    for name in ("a", "b", "c"):
        (tmp_path / name).write_bytes(noise(LARGE, seed=ord(name)))
    answer = copied(lab, tmp_path / "a", tmp_path / "b", tmp_path / "c", "there/")
    assert set(states(answer).values()) == {"copied"}
    for name in ("a", "b", "c"):
        assert (guest_home(lab, "ci-1") / "there" / name).read_bytes() == noise(LARGE, seed=ord(name))
    shutil.rmtree(guest_home(lab, "ci-1") / "there")
    assert run(lab, "unlock", "ci-1", "--workload", workload(tmp_path / "w", model_size=LARGE)).rc == 0
    assert run(lab, "verify", "ci-1").rc == 0
    assert run(lab, "rollback", "ci-1").rc == 0
    assert lab.snapshot() == before


def test_wrong_words(guest, tmp_path):
    assert run(guest, "copy", "ci-1", tmp_path / "none", ".").error_id == "file-unreadable"
    assert run(guest, "copy", "ci-1", tmp_path).rc == 2
    os.mkfifo(tmp_path / "fifo")
    assert run(guest, "copy", "ci-1", tmp_path / "fifo", ".").error_id == "copy-special-file"
    assert run(guest, "copy", "--from", "ci-1", "none", tmp_path).error_id == "guest-file-missing"
    (tmp_path / "x").write_bytes(b"x")
    assert run(guest, "copy", "ci-1", tmp_path / "x", "no/such/folder/x").error_id == "guest-folder-missing"


def test_r85_memory_stays_small(guest, tmp_path):
    source = tmp_path / "sparse"
    with open(source, "wb") as file:
        file.truncate(300 * MIB)
    done = subprocess.run(["/usr/bin/python3", "-c", "import resource, subprocess, sys; status = subprocess.run(sys.argv[1:]).returncode;"
                           "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss); sys.exit(status)",
                           *command(guest, "--quiet", "copy", "ci-1", source, "sparse")],
                          env={**guest.env(), "LUMELIFT_PORT": str(guest.port)}, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    # A sanitizer keeps what was freed for a while, or notes about every byte; gcov counts each line.
    watched = any(name in os.environ for name in ("ASAN_OPTIONS", "TSAN_OPTIONS", "LUMELIFT_COVERAGE"))
    assert int(done.stdout.split()[-1]) < (128 if watched else 64) * 1024
    assert (guest.own_home / "sparse").stat().st_size == 300 * MIB


def test_unlock_sends_a_large_model_once_and_rollback_leaves_nothing(guest, tmp_path):
    before = guest.snapshot()
    file = workload(tmp_path / "w", model_size=LARGE)
    first = run(guest, "--json", "unlock", "ci-1", "--workload", file)
    assert first.rc == 0, first
    model = (tmp_path / "w" / "model.gguf").read_bytes()
    recorded = next(item for item in first.json["files"] if item["path"].endswith("model.gguf"))
    assert recorded["sha256"] == hashlib.sha256(model).hexdigest()
    guest.forget_calls()
    assert run(guest, "unlock", "ci-1", "--workload", file).rc == 0
    assert run(guest, "verify", "ci-1").rc == 0
    assert not guest.calls("sftp")
    assert run(guest, "unlock", "ci-1", "--verify", "--workload", file).rc == 0
    assert not guest.calls("sftp")
    (tmp_path / "w" / "model.gguf").write_bytes(model[:-1] + b"x")
    assert run(guest, "unlock", "ci-1", "--workload", file).rc == 0
    assert run(guest, "rollback", "ci-1").rc == 0
    assert guest.snapshot() == before


def test_unlock_over_a_lost_connection_goes_on(guest, tmp_path):
    before = guest.snapshot()
    file = workload(tmp_path / "w", model_size=2 * LARGE)
    guest.fault("sftp", at_byte=LARGE, cut=True, times=1)
    done = run(guest, "unlock", "ci-1", "--workload", file)
    assert done.rc == 0 and "going on where it stopped" in done.err, done
    assert run(guest, "rollback", "ci-1").rc == 0
    assert guest.snapshot() == before
