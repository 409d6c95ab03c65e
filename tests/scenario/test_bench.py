"""`bench`: stock, unlocked, CPU and bare metal, measured in turns; R31, R96, R112, R116."""

import json
import os
import pathlib
import re
import signal
import time

import pytest

from product import BUILD, Lab, guest_home, run, start

PROGRAMS = BUILD / "tests/lab/workloads"
QUICK = ("-p", "16", "-n", "4", "-r", "4", "--cool-down", "0", "--spread-limit", "50")


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """One guest for all tests of this file: each leaves it as it was. Its programs run as x86_64 ones, which is quicker."""
    with Lab(tmp_path_factory.mktemp("bench") / "lab", build=BUILD) as made:
        made.add_vm("ci-1", running=True, arch="x86_64")
        made.start()
        yield made


@pytest.fixture
def kit(tmp_path):
    """Program and model as they lie on a Mac; the text program beside llama-bench is found by itself."""
    for name, program in (("llama-bench", "lab-llama-bench"), ("llama-cli", "lab-llama-cli")):
        (tmp_path / name).write_bytes((PROGRAMS / program).read_bytes())
        (tmp_path / name).chmod(0o755)
    model = b"GGUF\3\0\0\0" + bytes(range(256)) * 400
    (tmp_path / "tiny.gguf").write_bytes(model)
    (tmp_path / "stale.gguf").write_bytes(model)
    return tmp_path


def bench(lab, kit, *words, model="tiny.gguf", quick=QUICK, **options):
    return run(lab, "bench", "ci-1", "--bench", kit / "llama-bench", "--model", kit / model, *quick, *words, cwd=kit, **options)


def folder_of(kit):
    (folder,) = kit.glob("bench-ci-1-*")
    return folder


def host_script(kit):
    """This Mac's own llama-bench: the same program on a real GPU's class."""
    script = kit / "host-bench"
    script.write_text(f'#!/bin/sh\nLAB_METAL=real-gpu exec {BUILD}/tests/lab/machrun-x86_64 -- {PROGRAMS}/lab-llama-bench "$@"\n')
    script.chmod(0o755)
    return script


def arms_of(result, test):
    (found,) = [t for t in result["report"]["workloads"][0]["tests"] if t["test"] == test]
    return found


def test_a_whole_run_ends_with_a_table_and_a_page(lab, kit):
    before = lab.snapshot()
    done = bench(lab, kit, "--host-bench", host_script(kit))
    assert done.rc == 0, done
    lines = {line.split()[0]: line for line in done.out.splitlines() if line.startswith(("pp16", "tg4"))}
    assert float(re.search(r"(\d+\.\d+)×", lines["pp16"]).group(1)) > 1, done
    assert "guest CPU" in done.out and "of host" in done.out and "same text from guest CPU and guest GPU: yes" in done.out
    folder = folder_of(kit)
    assert f"{folder.name}/index.html" in done.out
    page = (folder / "index.html").read_text()
    assert page.lower().startswith("<!doctype html>")
    assert "pp16" in page and "http://" not in page.replace("http://www.w3.org", "")
    result = json.loads((folder / "result.json").read_text())
    cells = arms_of(result, "pp16")["arms"]
    assert set(cells) == {"stock", "unlocked", "cpu", "host"}
    assert all(len(cell["samples"]) == 4 for cell in cells.values())
    assert arms_of(result, "pp16")["unlocked_against"]["stock"]["ratio"] > 1
    assert lab.snapshot() == before


def test_each_arm_is_recorded_with_its_proof_and_its_surroundings(lab, kit):
    done = bench(lab, kit, "--no-host", env={"GGML_METAL_NO_RESIDENCY": "1", "DYLD_INSERT_LIBRARIES": "/tmp/none"})
    assert done.rc == 0, done
    folder = folder_of(kit)
    names = sorted(path.name for path in folder.glob("*.status"))
    assert names == [f"{arm}-{n}.status" for arm in ("cpu", "stock", "unlocked") for n in (1, 2)]
    stock, unlocked, cpu = (json.loads((folder / f"{arm}-1.conditions.json").read_text()) for arm in ("stock", "unlocked", "cpu"))
    assert stock["variables_set"] == [] and stock["variables_found"] == []
    assert ["LUME_METAL_APPLE_FAMILY_MAX", "1009"] in unlocked["variables_set"]
    assert cpu["command"][-4:] == ["-dev", "none", "-ngl", "0"]
    assert stock["host_preference"] == "absent"
    for when in ("before", "after"):
        asked = [one["asked"] for one in stock[when]["guest"]]
        assert asked == ["/bin/date -u +%s", "/usr/bin/uptime", "/usr/bin/vm_stat", "/usr/bin/pmset -g therm"]
    receipt = json.loads((folder / "unlocked-1.receipt.json").read_text())
    assert receipt["outcome"] == "active"
    assert not (folder / "stock-1.receipt.json").exists()
    assert "MTLGPUFamilyApple5" in (folder / "stock-1.stderr").read_text().replace(" ", "")
    assert "MTLGPUFamilyApple9" in (folder / "unlocked-1.stderr").read_text().replace(" ", "")
    hashes = json.loads((folder / "parameters.json").read_text())["files_sha256"]
    assert len(hashes) == 3 and all(re.fullmatch("[0-9a-f]{64}", h) for h in hashes)


def test_a_whole_flow_from_measurement_to_what_unlock_says(tmp_path, kit):
    """Bench, report, bundle, check, posting, and what is known from then on: each from the folder alone, without naming an arm."""
    with Lab(tmp_path / "lab", build=BUILD) as made:
        made.add_vm("ci-1", running=True, arch="x86_64")
        made.start()
        assert "Nothing was proven" in run(made, "compat").out
        done = bench(made, kit, "--host-bench", host_script(kit))
        assert done.rc == 0, done
        folder = folder_of(kit)
        live = json.loads((folder / "result.json").read_text())["report"]
        again = run(made, "--json", "report", folder)  # by the limits that it was measured with
        assert again.rc == 0 and again.json["workloads"][0]["tests"] == live["workloads"][0]["tests"], again
        assert again.json["limits"]["reject"] == 50 and any(one["subject"] == "limits" for one in again.json["findings"]), again
        bundle = kit / "bundle"
        packed = run(made, "--json", "evidence", "pack", folder, bundle)
        assert packed.rc == 0 and packed.json["tests"] == 2, packed
        assert run(made, "evidence", "verify", bundle).rc == 0
        issue = run(made, "evidence", "issue", bundle)
        assert issue.rc == 0 and "| GPU cores | 48 |" in issue.out and "| Profile | tested |" in issue.out, issue
        text = "".join(path.read_text(errors="replace") for path in bundle.rglob("*") if path.is_file())
        assert str(made.home) not in text and made.vm("ci-1")["ip"] not in text
        known = run(made, "--json", "compat").json["records"]
        assert [(one["workload"], one["outcome"], one["stale"]) for one in known] == [("tiny (llama.cpp)", "verified", False)], known
        assert run(made, "compat", "add", bundle).rc == 0 and len(run(made, "--json", "compat").json["records"]) == 1
        unlocked = run(made, "unlock", "ci-1", "--restart", "never", "--host-preference", "keep")
        assert unlocked.rc == 0 and "proven on this host" in unlocked.out, unlocked


def test_the_mac_is_kept_awake_while_it_is_measured(lab, kit):
    done = bench(lab, kit, "--no-host", "--no-text-check")
    assert done.rc == 0 and "caffeinate" not in done.err, done
    (call,) = [call for call in lab.calls("caffeinate")][-1:]
    assert call["argv"][:2] == ["-i", "-w"]
    assert not any(b"caffeinate" in path.read_bytes() and lab.world.path("host").encode() in path.read_bytes() for path in readable_command_lines())


def test_arms_take_turns_or_not(lab, kit):
    def order(*words):
        done = bench(lab, kit, "--no-host", "--no-text-check", *words, quick=("-p", "8", "-n", "0", "-r", "2", "--cool-down", "0", "--spread-limit", "50"))
        assert done.rc == 0, done
        return re.findall(r"^\s+(stock|unlocked|cpu)-(\d)", done.err, re.M)

    turns = [(arm, n) for n in "12" for arm in ("stock", "unlocked", "cpu")]
    assert order("--output", "turns") == turns
    assert order("--output", "blocks", "--order", "aabb", "--warmup", "off") == sorted(turns, key=lambda run: ("stock", "unlocked", "cpu").index(run[0]))
    command = json.loads((kit / "blocks/stock-1.conditions.json").read_text())["command"]
    assert "--no-warmup" in command and command[command.index("-r") + 1] == "1"


def test_a_wrong_text_gives_no_speed_up(lab, kit):
    """R112: right speed, wrong text."""
    before = lab.snapshot()
    done = bench(lab, kit, "--no-host", model="stale.gguf")
    assert done.rc == 5 and done.error_id == "bench-text-differs", done
    assert "×" not in done.out + done.err and not list(folder_of(kit).glob("*-1.json"))
    assert (folder_of(kit) / "text-cpu.txt").read_text() != (folder_of(kit) / "text-unlocked.txt").read_text()
    assert ("stale (llama.cpp)", "failing") in [(one["workload"], one["outcome"]) for one in run(lab, "--json", "compat").json["records"]]
    assert lab.snapshot() == before
    tolerant = bench(lab, kit, "--no-host", "--text-tolerance", "1", "--output", "tolerant", model="stale.gguf")
    assert tolerant.rc == 0 and "the first" in tolerant.out, tolerant


def test_a_device_that_computes_wrong_gives_no_speed_up(tmp_path, kit):
    with Lab(tmp_path / "lab", build=BUILD) as made:
        made.add_vm("ci-1", running=True, arch="x86_64", metal="kernels-wrong")
        made.start()
        done = bench(made, kit, "--no-host")
        assert done.rc == 5 and done.error_id in ("bench-text-differs", "probe-not-unlocked"), done
        assert "×" not in done.out + done.err


def test_interrupted_and_taken_up_again(lab, kit):
    before = lab.snapshot()
    words = ("bench", "ci-1", "--bench", kit / "llama-bench", "--model", kit / "tiny.gguf", "--no-host", *QUICK, "--rounds", "4")
    first = start(lab, *words, cwd=kit)
    deadline = time.monotonic() + 60
    while not list(kit.glob("bench-*/unlocked-1.status")):
        assert first.poll() is None and time.monotonic() < deadline, first.communicate()
        time.sleep(0.02)
    first.send_signal(signal.SIGINT)
    out, err = first.communicate(timeout=60)
    assert first.returncode == 130, (out, err)
    assert lab.snapshot() == before
    folder = folder_of(kit)
    made = {path.name: path.stat().st_mtime_ns for path in folder.glob("*.status")}
    assert 2 <= len(made) < 12
    second = run(lab, *words, cwd=kit)
    assert second.rc == 0 and second.err.count("finished before") == len(made), second
    assert folder_of(kit) == folder and len(list(folder.glob("*.status"))) == 12
    assert all((folder / name).stat().st_mtime_ns == at for name, at in made.items())
    # Other parameters never mix with what is there.
    other = bench(lab, kit, "--no-host", "--output", folder.name)
    assert other.rc == 2 and other.error_id == "bench-folder-taken", other
    (kit / "mine").mkdir()
    (kit / "mine/thesis.txt").write_text("not a benchmark")
    taken = bench(lab, kit, "--no-host", "--output", "mine")
    assert taken.rc == 2 and taken.error_id == "bench-folder-taken" and "copy" not in taken.err, taken


def test_a_killed_program_is_refused_with_the_reason(lab, kit):
    """A program that dies prints rows all the same; they do not count. The bare-metal arm is a script here, which can die."""
    script = kit / "host-bench"
    script.write_text(f'#!/bin/sh\n{BUILD}/tests/lab/machrun-x86_64 -- {PROGRAMS}/lab-llama-bench "$@"\nkill -KILL $$\n')
    script.chmod(0o755)
    before = lab.snapshot()
    done = bench(lab, kit, "--host-bench", script)
    assert done.rc == 5, done
    assert "host-1.json: the run ended with exit status 137" in done.out and "unlocked/stock" in done.out
    assert (folder_of(kit) / "host-1.status").read_text() == "137\n"
    assert "host-2" not in done.err and not (folder_of(kit) / "result.json").exists()
    assert lab.snapshot() == before


def test_a_program_killed_in_the_guest_is_refused(lab, kit):
    words = ("bench", "ci-1", "--bench", kit / "llama-bench", "--model", kit / "tiny.gguf", "--no-host", "--no-text-check", "-p", "0", "-n", "60000", "-r", "2",
             "--rounds", "1", "--cool-down", "0")
    first = start(lab, *words, cwd=kit)
    victim = None
    for _ in ("stock", "unlocked", "cpu"):
        victim = await_process("-n\00060000\0", first, other_than=victim)
        os.kill(victim, signal.SIGKILL)
    out, err = first.communicate(timeout=60)
    assert first.returncode == 5, (out, err)
    assert re.search("stock-1: the run ended with (signal KILL|exit status 137)", err) and "137" in out, (out, err)


def await_process(words, parent, other_than=None):
    """The lab process of the guest that has these words, separated by NUL bytes."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                text = path.read_bytes()
            except OSError:
                continue
            pid = int(path.parent.name)
            if words.encode() in text and b"machrun" in text and pid not in (parent.pid, other_than):
                return pid
        assert parent.poll() is None, parent.communicate()
        time.sleep(0.02)
    raise AssertionError("no such process")


def test_a_hung_program_is_killed(lab, kit):
    """R116: a stock guest may hang instead of being slow."""
    done = bench(lab, kit, "--no-host", "--no-text-check", "--repetition-limit", "1",
                 quick=("-p", "0", "-n", "200000", "-r", "1", "--rounds", "1", "--cool-down", "0"))
    assert done.rc == 5 and "no test was done within 3 s" in done.out + done.err, done
    assert "-n\000200000" not in "".join(path.read_text(errors="replace") for path in readable_command_lines())


def readable_command_lines():
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            path.read_bytes()
        except OSError:
            continue
        yield path


def test_files_that_are_in_the_guest_already(lab, kit):
    home = guest_home(lab, "ci-1")
    for name in ("llama-bench", "llama-cli", "tiny.gguf"):
        (home / name).write_bytes((kit / name).read_bytes())
        (home / name).chmod(0o755)
    words = ("bench", "ci-1", "--guest-bench", "~/llama-bench", "--guest-cli", "~/llama-cli", "--guest-model", "~/tiny.gguf", "--no-host", *QUICK)
    before = lab.snapshot()
    done = run(lab, "--json", *words, cwd=kit)
    assert done.rc == 0 and arms_of(done.json, "pp16")["unlocked_against"]["stock"]["ratio"] > 1, done
    assert lab.snapshot() == before
    (home / "tiny.gguf").unlink()
    missing = run(lab, *words, cwd=kit)
    assert missing.rc == 2 and missing.error_id == "bench-file-missing", missing


def test_keep_leaves_the_files_until_rollback(lab, kit):
    before = lab.snapshot()
    done = bench(lab, kit, "--no-host", "--keep", "--no-text-check")
    assert done.rc == 0, done
    assert (guest_home(lab, "ci-1") / ".local/share/lumelift/bench/tiny.gguf").exists()
    assert run(lab, "rollback", "ci-1").rc == 0
    assert lab.snapshot() == before


@pytest.mark.parametrize("words, error", [
    (("-p", "x"), "bench-settings"), (("-p", "0", "-n", "0"), "bench-settings"), (("--arg=-ngl",), "bench-settings"),
    (("--order", "baba"), "usage"), (("--rounds", "0"), "usage")])
def test_wrong_usage_touches_nothing(lab, kit, words, error):
    before = lab.snapshot()
    done = bench(lab, kit, *words, quick=())
    assert done.rc == 2 and done.error_id == error, done
    assert lab.snapshot() == before and not list(kit.glob("bench-*"))


def test_what_is_missing_is_named(lab, kit):
    assert run(lab, "bench", "ci-1", "--bench", kit / "llama-bench", cwd=kit).error_id == "bench-model-missing"
    (kit / "llama-cli").unlink()
    assert bench(lab, kit).error_id == "bench-cli-missing"
    assert run(lab, "bench", "ci-1", "--model", kit / "tiny.gguf", cwd=kit).error_id == "bench-program-missing"
    other = kit / "other.gguf"
    other.write_bytes(b"GGUF\3\0\0\0 another one")
    done = bench(lab, kit, "--no-text-check", "--host-bench", host_script(kit), "--host-model", other)
    assert done.rc == 2 and done.error_id == "bench-model-differs", done


def test_report_refuses_limits_that_are_none_and_formats_that_contradict(lab, tmp_path):
    published = pathlib.Path(__file__).resolve().parents[1] / "data/evidence/m1-ultra-tinyllama"
    for words in (("--spread-reject", "nan"), ("--material", "nan"), ("--spread-flag", "-1"), ("--spread-flag", "inf"), ("--json", "--format", "html")):
        done = run(lab, "report", published, *words)
        assert done.rc == 2 and done.error_id in ("usage", "report-format"), (words, done)
    written = run(lab, "--json", "report", published, "-o", tmp_path / "r.json")
    assert written.rc == 0 and written.json["output"] == str(tmp_path / "r.json"), written
    assert json.loads((tmp_path / "r.json").read_text())["schema"] == written.json["schema"] == 1
    for words in (("compat", "add"), ("compat", "list", "more"), ("evidence", "verify", published, "more")):
        done = run(lab, *words)
        assert done.rc == 2 and done.error_id in ("compat-argument", "evidence-argument"), done
