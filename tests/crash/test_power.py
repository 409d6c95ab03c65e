"""Loss of power: what the journal's calls wrote is replayed to every moment, with the bytes that were not flushed yet dropped,
kept, torn or mixed. What opens then must be a state that the journal really had, no older than the last commit that returned;
and no program that changes anything may have been started before its intent was safe on disk."""

import dataclasses
import json
import os
import pathlib
import random
import sqlite3
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import matrix  # noqa: E402
from product import LUMELIFT, Lab, BUILD, command, workload  # noqa: E402

NAME = "journal.sqlite"
SECTOR = 512


@dataclasses.dataclass
class Op:
    what: str          # write, cut, sync, unlink, start
    offset: int
    path: str          # of a start: its words
    data: bytes


def parse(trace):
    ops, raw, at = [], trace.read_bytes(), 0
    while at < len(raw):
        end = raw.index(b"\n", at)
        what, offset, size, path = raw[at:end].decode().split(" ", 3)
        ops.append(Op(what, int(offset), path, raw[end + 1:end + 1 + int(size)]))
        at = end + 1 + int(size)
    return [op for op in ops if not op.path.endswith("-shm")]


def put(content, op, data=None):
    """One write or cut on a file's bytes."""
    if op.what == "cut":
        return content[:op.offset].ljust(op.offset, b"\0")
    data = op.data if data is None else data
    return content[:op.offset].ljust(op.offset, b"\0") + data + content[op.offset + len(data):]


class Disk:
    """What is safe, and what the drive or the system still holds back."""

    def __init__(self):
        self.safe, self.waiting = {}, []

    def apply(self, op):
        if op.what == "sync":
            left = []
            for waiting in self.waiting:
                # A file's flush saves its bytes; that it is gone is saved by its folder's.
                if op.path == os.path.dirname(waiting.path) if waiting.what == "unlink" else op.path == waiting.path:
                    self.settle(self.safe, waiting)
                else:
                    left.append(waiting)
            self.waiting = left
        elif op.what != "start":
            self.waiting.append(op)

    @staticmethod
    def settle(files, op, data=None):
        name = os.path.basename(op.path)
        if op.what == "unlink":
            files.pop(name, None)
        else:
            files[name] = put(files.get(name, b""), op, data)

    def after_loss(self, policy, chance):
        files = dict(self.safe)
        for op in self.waiting:
            if policy == "dropped" or (policy == "mixed" and chance.random() < 0.5):
                continue
            data = None
            if policy == "torn" and op.what == "write":
                data = op.data[:chance.randrange(0, len(op.data) + 1) // SECTOR * SECTOR]
            self.settle(files, op, data)
        return files


def lay_down(folder, files):
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder / NAME


def content_of(database):
    """The journal's rows, after SQLite has put right what it can; None for one that was never finished."""
    if not database.exists() or database.stat().st_size == 0 and not database.with_name(NAME + "-wal").exists():
        return None
    link = sqlite3.connect(database)
    try:
        assert link.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        if not link.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
            return None
        return tuple(tuple(link.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall()) for table in ("run", "step", "claim", "pin"))
    finally:
        link.close()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Two unlocks, with a rollback between them: every call on the journal's files, and every program that was started."""
    folder = tmp_path_factory.mktemp("power")
    trace = folder / "trace"
    with Lab(folder / "lab", build=BUILD) as lab:
        lab.add_vm("ci-1", running=True, **matrix.GUEST)
        lab.start()
        for words in (("unlock", "ci-1", "--workload", workload(folder / "w", 20_000)), ("rollback", "ci-1"), ("unlock", "ci-1")):
            environment = {**lab.env(), "LUMELIFT_PORT": str(lab.port), "LD_PRELOAD": str(matrix.STRIKE), "STRIKE_NAME": NAME,
                           "STRIKE_TRACE": str(trace)}
            done = subprocess.run(command(lab, *words), env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
    return parse(trace)


@pytest.fixture(scope="module")
def states(recorded, tmp_path_factory):
    """After each call: the journal's content with nothing lost."""
    ops, folder = recorded, tmp_path_factory.mktemp("whole")
    disk, states, last = Disk(), [], None
    for op in ops:
        disk.apply(op)
        # Of a frame in the log the head alone makes no difference.
        if op.what != "start" and not (op.what == "write" and len(op.data) == 24):
            last = content_of(lay_down(folder, disk.after_loss("kept", random)))
        states.append(last)
    return states


@pytest.mark.parametrize("policy", ["dropped", "torn", "mixed"])
def test_r95_every_moment_of_a_power_loss(recorded, states, tmp_path, policy):
    chance = random.Random(policy)
    disk, promised, cut_short = Disk(), 0, 0
    for number, op in enumerate(recorded):
        disk.apply(op)
        if op.what == "sync":
            promised = number
        if op.what == "start":
            continue
        now = content_of(lay_down(tmp_path / "after", disk.after_loss(policy, chance)))
        allowed = states[promised:number + 1] if states[promised] is not None else [None, *states[:number + 1]]
        assert now in allowed, f"after call {number} ({op.what} {op.path}) the journal opens with a state that it never had"
        cut_short += now != states[number]
    assert len(recorded) > 200 and (cut_short or policy != "dropped")


def test_nothing_is_started_before_its_intent_is_safe(recorded, tmp_path):
    """For each program that changes this Mac: with everything lost that was not flushed, the journal knows the step."""
    kinds = {("lume", "run"): "power", ("lume", "stop"): "power", ("defaults", "write"): "preference", ("defaults", "delete"): "preference"}
    disk, seen = Disk(), []
    for op in recorded:
        disk.apply(op)
        kind = kinds.get(tuple(op.path.split()[:2])) if op.what == "start" else None
        if not kind:
            continue
        content = content_of(lay_down(tmp_path / "after", disk.after_loss("dropped", random)))
        assert content, op.path
        open_steps = [json.loads(row[2])["kind"] for row in content[1] if row[3] in ("intended", "done")]
        assert kind in open_steps, f"{op.path}: {content[1]}"
        seen.append(op.path.split()[1])
    assert seen.count("run") >= 3 and "write" in seen and "delete" in seen


def test_the_program_itself_reads_what_a_power_loss_left(recorded, tmp_path):
    chance, disk = random.Random(7), Disk()
    looked = 0
    for number, op in enumerate(recorded):
        disk.apply(op)
        if number % 37 or op.what == "start":
            continue
        state = tmp_path / f"state-{number}"
        lay_down(state, disk.after_loss("torn", chance))
        state.chmod(0o700)
        done = subprocess.run([LUMELIFT, "--json", "history"], env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "LUMELIFT_STATE_DIR": str(state)},
                              capture_output=True, text=True, check=False)
        assert done.returncode == 0, done
        looked += 1
    assert looked > 5
