"""`ablate`: host preference off and on by library off and on, and everything as it was afterwards. R23."""

import pytest

from product import BUILD, Lab, guest_home, run, set_preference

FAST = {"arch": "x86_64", "boot_delay": 0.02, "shutdown_delay": 0.02, "ip_delay": 0.02, "stop_delay": 0.02}


@pytest.fixture
def make(tmp_path):
    made = []

    def lab(running=True, former=None, **options):
        one = Lab(tmp_path / "lab", build=BUILD)
        made.append(one)
        one.add_vm("ci-1", running=running, **FAST, **options)
        set_preference(one, former)
        one.start()
        one.pristine = one.snapshot()
        return one
    yield lab
    for one in made:
        one.down()


def boots(lab):
    return len(list(lab.events("boot")))


@pytest.mark.parametrize("running, former, restarts", [(True, None, 2), (False, None, 2), (True, ("boolean", True), 2), (True, ("string", "1"), 2)],
                         ids=["running", "stopped", "already-on", "foreign-text"])
def test_the_four_arms_and_the_world_as_it_was(make, running, former, restarts):
    lab = make(running, former)
    before = boots(lab)
    done = run(lab, "--json", "ablate", "ci-1", timeout=240)
    assert done.rc == 0, done
    arms = {(arm["preference"], arm["library"]): arm["answers"] for arm in done.json["arms"]}
    assert sorted(arms) == [(False, False), (False, True), (True, False), (True, True)]
    assert {key: arm["Apple family"] for key, arm in arms.items()} == {(False, False): "5", (False, True): "9", (True, False): "5", (True, True): "9"}
    assert done.json["lever"] == {"answers": "library", "figures": None}
    assert done.json["levers"]["answers"]["Apple family"] == "library" and done.json["levers"]["answers"]["family 5001"] == "neither"
    assert boots(lab) - before == restarts
    assert lab.snapshot() == lab.pristine
    assert run(lab, "rollback", "ci-1").out.endswith("nothing to take back.\n")


def test_a_benchmark_in_each_arm(make):
    lab = make()
    program = guest_home(lab, "ci-1") / "lab-llama-bench"
    program.write_bytes((BUILD / "tests/lab/workloads/lab-llama-bench").read_bytes())
    program.chmod(0o755)
    before = lab.snapshot()
    words = ("ablate", "ci-1", "--", "./lab-llama-bench", "-p", "32", "-n", "0", "-r", "3", "-o", "json")
    done = run(lab, "--json", *words, timeout=240)
    assert done.rc == 0, done
    figures = {(arm["preference"], arm["library"]): arm["figures"]["pp32"] for arm in done.json["arms"]}
    assert min(figures[p, True] for p in (False, True)) > max(figures[p, False] for p in (False, True)), figures
    assert done.json["levers"]["figures"]["pp32"] in ("library", "both")
    assert lab.snapshot() == before


def test_the_table(make):
    done = run(make(), "ablate", "ci-1", "--", "/bin/test", "-d", "/tmp", timeout=240)
    assert done.rc == 0 and "Answers change by: library." in done.out and "Apple family" in done.out and "seconds" in done.out, done


def test_what_is_unlocked_or_relied_on_is_not_touched(make):
    lab = make()
    assert run(lab, "unlock", "ci-1").rc == 0
    before = lab.snapshot()
    done = run(lab, "ablate", "ci-1")
    assert done.rc == 2 and done.error_id == "ablate-unlocked", done
    assert lab.snapshot() == before


def test_a_failure_in_the_second_half_takes_everything_back(make):
    lab = make()
    lab.fault("guest", match="--functional", nth=3, exit=1)
    done = run(lab, "ablate", "ci-1", timeout=240)
    assert done.rc in (1, 5) and "has been undone" in done.err, done
    lab.clear_faults()
    assert lab.snapshot() == lab.pristine
