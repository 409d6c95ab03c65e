"""`explain`: what a program asks its device in the stock guest, and what an unlock would change of it. R30, R113, R117, R118."""

import json

import pytest

from product import BUILD, Lab, guest_home, run

# What llama.h asks for: the three that decide, then each group from the highest number down to the first yes.
DECIDING = {1007, 5001, 1006}
LISTED = set(range(1005, 1022)) | {3003, 3004, 3005, 3006} | set(range(5001, 5007))


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with Lab(tmp_path_factory.mktemp("explain") / "lab", build=BUILD) as made:
        made.add_vm("ci-1", running=True, arch="x86_64", sip=True)
        made.start()
        for name in ("lab-llama-cli", "lab-llama-bench", "lab-ignore", "lab-crash", "lab-children"):
            target = guest_home(made, "ci-1") / name
            target.write_bytes((BUILD / "tests/lab/workloads" / name).read_bytes())
            target.chmod(0o755)
        made.pristine = made.snapshot()
        yield made


def explained(lab, *words):
    done = run(lab, "--json", "explain", "ci-1", *words)
    assert done.rc == 0, done
    return done.json


def families(answer):
    return {q["family"] for q in answer["questions"] if q["family"] is not None}


def test_the_llama_like_program_is_told_exactly_the_families_that_it_asked_for(lab):
    answer = explained(lab, "--", "./lab-llama-bench", "--list-devices")
    assert families(answer) == DECIDING | LISTED
    assert {q["selector"] for q in answer["questions"]} == {"supportsFamily:", "maxThreadgroupMemoryLength", "recommendedMaxWorkingSetSize"}
    assert answer["granted"] == [1006, 1007, 1008, 1009]
    counts = {q["family"]: q["count"] for q in answer["questions"]}
    assert counts[1007] == 3 and counts[1021] == 1 and counts[5001] == 3, counts
    assert not [q for q in answer["questions"] if q["stock"] and q["family"] not in (1005, 3003, None)]
    assert answer["runtime"]["name"] == "llama.cpp" and answer["verdicts"] == ["large-gain"] and "Apple 7 is enough" in answer["reason"]
    assert "GPU family: MTLGPUFamilyApple" in answer["program"]["stderr"] and answer["complete"]
    assert lab.snapshot() == lab.pristine


def test_a_profile_that_grants_less_changes_less(lab):
    assert explained(lab, "--profile", "minimal", "--", "./lab-llama-bench", "--list-devices")["granted"] == [1006, 1007]


def test_the_text_names_each_question_with_both_answers(lab):
    done = run(lab, "explain", "ci-1", "--", "./lab-llama-bench", "--list-devices")
    assert done.rc == 0, done
    line = next(line for line in done.out.splitlines() if line.startswith("supportsFamily Apple 7 (1007)"))
    assert line.split()[-3:] == ["no", "yes", "3"], line
    assert "no (kept)" in done.out and "Large gain expected." in done.out and "Source: " in done.out


def test_a_program_without_a_device_is_no_gain_for_certain(lab):
    done = run(lab, "explain", "ci-1", "--", "./lab-ignore")
    assert done.rc == 0 and "it asked its device nothing" in done.out, done


def test_one_that_crashes_when_unlocked_runs_its_careful_path(lab):
    answer = explained(lab, "--", "./lab-crash")
    assert "careful path" in answer["program"]["stdout"] and answer["granted"] == [1007] and answer["verdicts"] == ["unknown"]


def test_only_the_program_itself_is_traced(lab):
    answer = explained(lab, "--", "./lab-children")
    parent, child = [json.loads(line) for line in answer["program"]["stdout"].splitlines()[:2]]
    assert parent["injected"] and not parent["apple7"] and not child["injected"], answer
    assert families(answer) == {1007} and answer["questions"][0]["count"] == 1


def test_runtimes_can_be_named_and_must_exist(lab):
    assert explained(lab, "--runtime", "MLX", "--", "./lab-llama-bench", "--list-devices")["verdicts"] == ["no-gain", "breaks-with-metal3"]
    assert run(lab, "explain", "ci-1", "--runtime", "x", "--", "./lab-ignore").error_id == "runtime-unknown"


def test_what_cannot_be_injected_cannot_be_traced(lab):
    done = run(lab, "explain", "ci-1", "--", "/bin/cat")
    assert done.rc == 2 and done.error_id == "explain-not-injectable", done
    assert lab.snapshot() == lab.pristine


def test_a_trace_file_is_explained_without_any_vm(lab, tmp_path):
    trace = {"schema": 1, "executable": "/x/llama-server", "complete": True, "lost": 0,
             "queries": [{"selector": "supportsFamily:", "argument": 1007, "stock": False, "given": False, "count": 2}]}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(trace))
    done = run(lab, "--json", "explain", "--trace", path)
    assert done.rc == 0 and done.json["verdicts"] == ["large-gain"] and done.json["runtime"]["name"] == "llama.cpp", done
    path.write_text("no trace")
    assert run(lab, "explain", "--trace", path).error_id == "trace-unreadable"
    assert run(lab, "explain").error_id == "usage"
    assert run(lab, "explain", "ci-1").error_id == "usage"


def test_inspect_gives_the_first_guess(lab):
    done = run(lab, "--json", "inspect", BUILD / "tests/lab/workloads/lab-llama-cli", BUILD / "tests/lab/workloads/lab-ignore")
    first, second = done.json["files"]
    assert first["runtime"] == "llama.cpp" and first["first_guess"] == "llama.cpp: large gain expected" and second["runtime"] is None, done
    assert "first guess: llama.cpp" in run(lab, "inspect", "--vm", "ci-1", "./lab-llama-cli").out
