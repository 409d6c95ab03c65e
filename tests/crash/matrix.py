"""The crash matrix: kills lumelift at every point of every command, recovers, and compares the world with the first one.

A point is a moment to die at:
  tool    before or after the n-th call of a stand-in: host tools, SSH commands, and each tool in the guest that changes anything
  disk    before the n-th call by which SQLite changes the journal's files or makes them durable, or after the last (strike.c)
  bytes   inside a file's transfer, at one byte of its stream
  sftp    inside a large file's transfer, at one byte of its SFTP session
A case is a scenario, the step of it that is killed, a point, and how to recover; a second point kills the recovery too.
"""

import dataclasses
import difflib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from product import BUILD, LABEL, Lab, command, set_preference, workload  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
STRIKE = BUILD / "tests" / "crash" / "strike.so"
GUEST = {"arch": "x86_64", "boot_delay": 0.02, "shutdown_delay": 0.02, "ip_delay": 0.02, "stop_delay": 0.02}
NEVER = 1 << 40
MODEL_BYTES = 20_000
LARGE_BYTES = 9 << 20             # goes over SFTP, in segments


@dataclasses.dataclass(frozen=True)
class Scenario:
    """A world and a list of commands that bring it back to where it began when nothing crashes."""
    name: str
    vms: tuple                    # (name, running)
    steps: tuple                  # commands, in order
    victims: tuple                # which of them are killed
    former: tuple = None          # the preference before: (type, value) or absent
    shared: bool = False          # a VM may have been started while the other one still claimed the preference


W, OTHER, LARGE, SHARED = "{w}", "{other}", "{large}", "{shared}"
SCENARIOS = {s.name: s for s in (
    Scenario("unlock-running", (("ci-1", True),), (("unlock", "ci-1", "--workload", W), ("rollback", "ci-1")), (0,)),
    Scenario("unlock-large", (("ci-1", True),), (("unlock", "ci-1", "--workload", LARGE), ("rollback", "ci-1")), (0,)),
    Scenario("unlock-share", (("ci-1", True),), (("unlock", "ci-1", "--workload", SHARED), ("rollback", "ci-1")), (0, 1)),
    Scenario("unlock-stopped", (("ci-1", False),), (("unlock", "ci-1"), ("rollback", "ci-1")), (0,), ("string", "1")),
    Scenario("re-unlock", (("ci-1", True),), (("unlock", "ci-1", "--workload", W),
                                              ("unlock", "ci-1", "--profile", "minimal", "--workload", OTHER), ("rollback", "ci-1")), (1,)),
    Scenario("rollback", (("ci-1", True),), (("unlock", "ci-1", "--workload", W), ("rollback", "ci-1")), (1,), ("boolean", False)),
    Scenario("agent-stop", (("ci-1", True),), (("unlock", "ci-1", "--workload", W), ("agents", "ci-1", "stop", LABEL), ("rollback", "ci-1")), (1, 2)),
    Scenario("agent-remove", (("ci-1", True),), (("unlock", "ci-1", "--workload", W), ("agents", "ci-1", "remove", LABEL), ("rollback", "ci-1")), (1,)),
    Scenario("ablate", (("ci-1", True),), (("ablate", "ci-1"),), (0,), ("integer", 1)),
    Scenario("rollback-stopped", (("ci-1", False),), (("unlock", "ci-1"), ("rollback", "ci-1")), (1,)),
    Scenario("rollback-all", (("a", True), ("b", True)), (("unlock", "a"), ("unlock", "b"), ("rollback", "--all")), (2,), ("integer", 1), True),
    Scenario("install-key", (("ci-1", True),), (("unlock", "ci-1", "--host-preference", "keep", "--install-key"), ("rollback", "ci-1")), (0, 1)),
    Scenario("shared-a-first", (("a", True), ("b", True)),
             (("unlock", "a"), ("unlock", "b"), ("rollback", "a"), ("rollback", "b")), (0, 1, 2, 3), None, True),
    Scenario("shared-b-first", (("a", True), ("b", False)),
             (("unlock", "a"), ("unlock", "b"), ("rollback", "b"), ("rollback", "a")), (1, 2, 3), ("integer", 1), True),
)}


# The quick set: points and second kills for each step.
QUICK = {"unlock-running": (12, 2), "unlock-large": (8, 1), "unlock-share": (8, 1), "unlock-stopped": (5, 1), "re-unlock": (5, 1), "rollback": (9, 2),
         "agent-stop": (3, 1), "agent-remove": (3, 0), "ablate": (4, 1), "rollback-stopped": (3, 1), "rollback-all": (3, 1),
         "install-key": (4, 1), "shared-a-first": (2, 0), "shared-b-first": (2, 0)}


@dataclasses.dataclass(frozen=True)
class Point:
    kind: str                     # tool, disk, bytes (of a command) or sftp (bytes of a session)
    at: int
    side: str = "before"
    match: str = ""

    def __str__(self):
        return f"{self.side} {self.kind} {self.at}{' of ' + self.match if self.match else ''}"


@dataclasses.dataclass(frozen=True)
class Case:
    scenario: str
    victim: int
    point: Point
    recovery: str = "rollback"    # or "unlock": the next unlock recovers, and is then rolled back
    second: Point = None          # kills the recovery

    def __str__(self):
        more = f", recovery by {self.recovery}" + (f" killed {self.second}" if self.second else "")
        return f"{self.scenario}: `{' '.join(SCENARIOS[self.scenario].steps[self.victim])}` killed {self.point}{more}"


@dataclasses.dataclass
class Verdict:
    case: Case
    killed: bool = False
    killed_twice: bool = False
    trouble: str = ""             # empty: passed
    where: str = ""               # the last call before the end


class Worker:
    """Runs cases one after another. Keeps one lab per scenario for as long as every case gives its first world back."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lumelift-crash-"))
        self.labs = {}
        self.made = 0

    def close(self):
        for lab, _ in self.labs.values():
            lab.down(remove=True)
        subprocess.run(["rm", "-rf", str(self.folder)], check=False)

    def lab(self, scenario):
        if scenario.name not in self.labs:
            self.made += 1
            lab = Lab(self.folder / f"lab-{self.made}", build=BUILD, guest_limit=None)
            for name, running in scenario.vms:
                lab.add_vm(name, running=running, **GUEST)
            set_preference(lab, scenario.former)
            lab.start()
            self.labs[scenario.name] = lab, world_of(lab, scenario)
        return self.labs[scenario.name]

    def forget(self, scenario):
        lab, _ = self.labs.pop(scenario.name)
        lab.down(remove=True)

    def words(self, step):
        """The command with its workload files made: two of them, with other models."""
        kinds = {W: (MODEL_BYTES, {}), OTHER: (MODEL_BYTES // 2, {}), LARGE: (LARGE_BYTES, {}), SHARED: (LARGE_BYTES, {"transfer": "share"})}
        return [str(workload(self.folder / word.strip("{}"), kinds[word][0], **kinds[word][1])) if word in kinds else word for word in step]

    def run(self, lab, step, point=None, count=None):
        """One command, killed at `point`. `count`: a file for the number of journal calls."""
        environment = {**lab.env(), "LUMELIFT_PORT": str(lab.port)}
        if (point and point.kind == "disk") or count:
            environment |= {"LD_PRELOAD": str(STRIKE), "STRIKE_NAME": "journal.sqlite"}
            environment |= {"STRIKE_REPORT": str(count)} if count else {"STRIKE_AT": str(point.at), "STRIKE_SIDE": point.side}
        if point and point.kind == "tool":
            lab.fault("*", nth=point.at, kill_parent=point.side)
        if point and point.kind == "bytes":
            lab.fault("guest", match=point.match, at_byte=point.at, kill_parent="before", nth=1)
        if point and point.kind == "sftp":
            lab.fault("sftp", at_byte=point.at, kill_parent="before", nth=1)
        try:
            return subprocess.run(command(lab, *self.words(step)), env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                                  text=True, errors="replace", timeout=300, check=False)
        finally:
            if point:
                lab.clear_faults()

    def count(self, scenario, victim):
        """How many calls of stand-ins and of the journal a step makes when nothing happens to it."""
        lab, _ = self.lab(scenario)
        for step in scenario.steps[:victim]:
            self.must(lab, step)
        tally = lab.fault("*", nth=NEVER)
        report = self.folder / "calls"
        report.unlink(missing_ok=True)
        done = self.run(lab, scenario.steps[victim], count=report)
        if done.returncode:
            raise RuntimeError(f"{scenario.name}: {done.stderr}")
        calls = lab.fault_count(tally)
        lab.clear_faults()
        for step in scenario.steps[victim + 1:]:
            self.must(lab, step)
        return calls, int(report.read_text())

    def must(self, lab, step):
        done = self.run(lab, step)
        if done.returncode == 1 and "Everything that was done has been undone" in done.stderr:
            done = self.run(lab, step)  # a machine too busy to answer in time; nothing crashed here
        if done.returncode:
            raise Trouble(f"`{' '.join(step)}` without a crash gave {done.returncode}\n{done.stderr}")

    def judge(self, case):
        """Runs one case; a Verdict says what was wrong, if anything."""
        scenario, verdict = SCENARIOS[case.scenario], Verdict(case)
        try:
            lab, first = self.lab(scenario)
            lab.forget_calls()
            self.play(lab, scenario, case, verdict)
            world = world_of(lab, scenario)
            if world != first:
                verdict.trouble = "another world than at first:\n" + "\n".join(
                    difflib.unified_diff(first.splitlines(), world.splitlines(), "first", "now", lineterm="", n=0))
        except Trouble as trouble:
            verdict.trouble = str(trouble)
        except subprocess.TimeoutExpired as late:
            verdict.trouble = f"no end within {late.timeout} s: {' '.join(map(str, late.cmd))}"
        if verdict.trouble and scenario.name in self.labs:
            self.forget(scenario)
        return verdict

    def play(self, lab, scenario, case, verdict):
        for step in scenario.steps[:case.victim]:
            self.must(lab, step)
        victim = scenario.steps[case.victim]
        done = self.run(lab, victim, case.point)
        verdict.killed = done.returncode == -9
        verdict.where = last_call(lab)
        if not verdict.killed and done.returncode:
            raise Trouble(f"not killed, yet status {done.returncode}\n{done.stderr}")
        recovery = victim if victim[0] == "rollback" or case.recovery == "unlock" else ("rollback", victim[1])
        if case.second:
            verdict.killed_twice = self.run(lab, recovery, case.second).returncode == -9
        done = self.run(lab, recovery)
        if done.returncode:
            raise Trouble(f"the recovery `{' '.join(recovery)}` gave {done.returncode}\n{done.stdout}{done.stderr}")
        # What the scenario has left to do; a VM that was recovered by rollback has nothing to take back any more.
        for step in scenario.steps[case.victim + 1:]:
            self.must(lab, step)


def last_call(lab):
    """What was called last before the end, for the message. Of a call that began before the log was emptied only its end is there."""
    with open(lab.world.path("calls.jsonl"), encoding="utf-8", errors="replace") as file:
        begun = [record for record in map(json.loads, file) if "tool" in record]
    return f"{begun[-1]['tool']} {' '.join(begun[-1]['argv'])[-120:]!r}" if begun else ""


class Trouble(Exception):
    """A finding about the product."""


def world_of(lab, scenario):
    lines = lab.snapshot().splitlines()
    return "\n".join(line for line in lines if not (scenario.shared and line.startswith("preference at start")))


def transfer_points():
    """Offsets in the stream of one file: its first byte, around its middle and end, within the word that lets it be renamed."""
    size = len(b"GGUF\3\0\0\0") + 256 * (MODEL_BYTES // 256)
    return [Point("bytes", at, match="model.gguf") for at in (1, size // 2, size - 1, size, size + 1, size + 6)]


def points_of(counts):
    """Every point of a step with so many calls of stand-ins and of the journal.

    What a kill leaves behind changes with effects only: after one call of the journal is before the next effect, be it the
    journal's or a tool's. A tool is killed on both sides, since its caller may die before it has seen the answer.
    """
    calls, disk = counts
    return ([Point("tool", at, side) for at in range(1, calls + 1) for side in ("before", "after")] +
            [Point("disk", at) for at in range(1, disk + 1)] + [Point("disk", disk, "after")])


def sample(points, most):
    """A spread of each kind: most of the tools', since there the world changes."""
    kinds = [[point for point in points if point.kind in kind] for kind in (("tool",), ("disk",), ("bytes", "sftp"))]
    shares = [most - 2 * (most // 4), most // 4, most // 4] if kinds[2] else [most - most // 3, most // 3, 0]
    return [point for kind, share in zip(kinds, shares) for point in spread(kind, share)]


def spread(items, most):
    """At most `most` of them, evenly spread, on both sides of calls."""
    if len(items) <= most:
        return list(items)
    return [items[min(int((i + 0.5) * len(items) / most) // 2 * 2 + i % 2, len(items) - 1)] for i in range(most)]


def cases_of(name, victim, counts, most=None, seconds=0):
    """The cases of one step: all of its points or a spread of them, and some with a second kill or the next unlock as recovery."""
    scenario = SCENARIOS[name]
    points = points_of(counts)
    if scenario.steps[victim][-1] in (W,) and victim == 0:
        points += transfer_points()
    if scenario.steps[victim][-1] == LARGE:
        # Before the session is opened in earnest, in its first, middle and last block, and at its close.
        points += [Point("sftp", at) for at in (5, 40, 5_000, LARGE_BYTES // 2, LARGE_BYTES, LARGE_BYTES + 8_000)]
    chosen = sample(points, most) if most else points
    cases = [Case(name, victim, point) for point in chosen]
    kill_again = [Point("tool", 3, "before"), Point("disk", 9, "before"), Point("tool", 9, "after"), Point("disk", 23, "after"),
                  Point("tool", 17, "before"), Point("disk", 41, "after"), Point("tool", 29, "before"), Point("tool", 6, "after")]
    for number, point in enumerate(sample(points, seconds) if seconds else []):
        cases.append(Case(name, victim, point, second=kill_again[number % len(kill_again)]))
        if scenario.steps[victim][0] == "unlock" and number % 2:
            cases.append(Case(name, victim, point, recovery="unlock"))
    return cases


def describe(verdict):
    text = f"FAILED {verdict.case}\n"
    if verdict.where:
        text += f"  last call: {verdict.where}\n"
    return text + "".join(f"  {line}\n" for line in verdict.trouble.splitlines())


def ready():
    """What must be built first, else why not."""
    for path in (command(None)[0], STRIKE, BUILD / "tests/lab/libguestexec.so"):
        if not os.path.exists(path):
            return f"build first: {path} is missing"
    return None
