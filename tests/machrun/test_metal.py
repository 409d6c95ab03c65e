"""The simulated Metal: does each word of LAB_METAL give the device that its description promises?

What this cannot show: anything about Apple's Metal. The device is a simulation by published answers.
"""

import json
import os
import re
import subprocess

import pytest

BUILD = os.environ.get("LUMELIFT_BUILD", "")
LAB = os.path.join(BUILD, "tests", "lab")
PROBE = os.path.join(BUILD, "shim", "lumelift-probe")
pytestmark = pytest.mark.skipif(not BUILD, reason="LUMELIFT_BUILD names the build folder")


@pytest.fixture(params=["x86_64", "arm64"], scope="session")
def run(request):
    loader = [f"{LAB}/machrun-x86_64"] if request.param == "x86_64" else ["/usr/bin/qemu-aarch64", "-L", "/usr/aarch64-linux-gnu",
                                                                         f"{LAB}/machrun-aarch64"]

    def start(metal, program, *arguments):
        path = program if "/" in program else f"{LAB}/workloads/{program}"
        return subprocess.run([*loader, path, *map(str, arguments)], env={"LAB_METAL": metal, "LAB_MACHRUN_DIR": LAB}, text=True,
                              capture_output=True, timeout=60)
    return start


@pytest.fixture
def probe(run):
    if not os.path.exists(PROBE):
        pytest.skip("the probe is not built")

    def ask(metal="", *options):
        result = run(metal, PROBE, *options)
        assert result.stderr == ""
        return json.loads(result.stdout)
    return ask


def families(device):
    return [int(value) for value, answer in device["families"].items() if answer]


STOCK = [1001, 1002, 1003, 1004, 1005, 2002, 3001, 3002, 3003]


def test_stock_guest(probe):
    device = probe()["device"]
    assert families(device) == STOCK and device["families_beyond"] == []
    assert device["class"] == ["AppleParavirtDevice", "_MTLDevice", "NSObject"]
    assert (device["name"], device["architecture"]) == ("Apple Paravirtual device", "air64_v27")
    assert (device["max_threadgroup_memory"], device["recommended_working_set"]) == (32768, 11453246122)
    assert device["unified_memory"] and not device["raytracing"] and device["residency_set"] == "nil"


@pytest.mark.parametrize("word, expected", [("metal3", STOCK + [5001]), ("hole", sorted(STOCK + [1007])),
                                            ("broad", sorted([*STOCK, 1006, 1007, 1008, 1009, 1010, 5001, 5002])),
                                            ("real-gpu", sorted([*STOCK, 1006, 1007, 2001, 5001, 5002]))])
def test_families_by_word(probe, word, expected):
    device = probe(word)["device"]
    assert families(device) == expected
    assert bool(device["families_beyond"]) == (word == "broad")


@pytest.mark.parametrize("word, default, listed", [("", True, 1), ("two-devices", True, 2), ("sibling", True, 2), ("no-default", False, 1),
                                                   ("no-list", True, 1), ("empty-list", True, 0), ("no-device", False, 0)])
def test_ways_to_find_a_device(probe, word, default, listed):
    """R113, R114: default and list do not always agree."""
    answers = probe(word)
    assert (answers["default_device"], answers["listed_devices"]) == (default, listed)


def test_default_first_or_never(run):
    """R114: the list stays empty until the default device was asked for. lab-devices asks the default first."""
    assert "listed AppleParavirtDevice" in run("no-list", "lab-devices", 1).stdout
    assert "listed" not in run("empty-list", "lab-devices", 1).stdout


@pytest.mark.parametrize("word, value", [("ram-8", 5726623060), ("ram-64", 45812984490)])
def test_memory(probe, word, value):
    assert abs(probe(word)["device"]["recommended_working_set"] - value) <= 2
    assert probe("memory-16384")["device"]["max_threadgroup_memory"] == 16384


@pytest.mark.parametrize("word, names", [("no-class", ["AppleParavirtDeviceV2", "_MTLDeviceV2", "NSObject"]),
                                         ("no-paravirt-class", ["AppleParavirtDeviceV2", "_MTLDevice", "NSObject"]),
                                         ("middle-class", ["AppleParavirtDevice", "IOGPUMetalDevice", "_MTLDevice", "NSObject"]),
                                         ("real-gpu", ["AGXG13XDevice", "AGXG13XFamilyDevice", "_MTLDevice", "NSObject"])])
def test_class_chains(probe, word, names):
    assert probe(word)["device"]["class"] == names


@pytest.mark.parametrize("words, failing", [("", []), ("kernels-fail", ["simd_sum", "simd_matrix", "bfloat"]), ("fail-simd", ["simd_sum"]),
                                            ("fail-matrix", ["simd_matrix"]), ("fail-bfloat", ["bfloat"]),
                                            ("kernels-wrong", ["simd_sum", "simd_matrix", "bfloat"]),
                                            ("no-compiler", ["simd_sum", "simd_matrix", "bfloat"])])
def test_kernels(probe, words, failing):
    """The physical GPU runs what a stock guest denies, so kernels are right unless the scenario breaks them."""
    checks = probe(words, "--functional")["functional"]
    assert [name for name, check in checks.items() if check["result"] != "pass"] == failing


def test_unknown_words_are_errors(run):
    for word in ("no-clas", "ram-", "ram-x", "memory-12k"):
        result = run(f"sibling,{word}", "lab-devices", 1)
        assert (result.returncode, result.stderr) == (2, f"LAB_METAL: unknown word '{word}'\n")


@pytest.mark.parametrize("words", ["fresh-devices", "fresh-devices,sibling", "", "fresh-devices,own-methods,middle-class"])
def test_threads_create_devices_at_once(run, words):
    result = run(words, "lab-devices", 8, 40)
    assert result.returncode == 0 and "created=320 inconsistent=0\n" in result.stdout, result
    assert ("listed LabSiblingDevice: 1005=1 1006=0 " in result.stdout) == ("sibling" in words)


def test_unknown_selector_ends_the_process(run):
    """As an exception that nobody catches does: R118. The method has another name here, and lab-devices does not look."""
    result = run("no-memory-method", "lab-devices", 1)
    assert result.returncode == -6
    assert "-[AppleParavirtDevice maxThreadgroupMemoryLength]: unrecognized selector" in result.stderr


# -- programs that choose by the answers --

def bench(run, metal, *options):
    result = run(metal, "lab-llama-bench", "-p", 32, "-n", 16, "-r", 3, "-o", "json", *options)
    assert result.returncode == 0
    return json.loads(result.stdout), result.stderr


def test_bench_measures_the_difference(run):
    """Apple7 or not decides between two kernels. Far apart, so that a busy machine does not blur it."""
    (slow, stock), (fast, real) = bench(run, ""), bench(run, "real-gpu")
    assert "simdgroup reduction   = false" in stock and "GPU family: MTLGPUFamilyApple5  (1005)" in stock
    assert "simdgroup reduction   = true" in real and "GPU family: MTLGPUFamilyMetal4  (5002)" in real
    for before, after in zip(slow, fast):
        assert min(before["samples_ns"]) > 2 * min(after["samples_ns"])


def test_bench_keys_and_figures(run):
    rows, _ = bench(run, "", "-dev", "none", "-ngl", 0)
    assert [(row["n_prompt"], row["n_gen"], row["devices"], row["n_gpu_layers"]) for row in rows] == [(32, 0, "none", 0), (0, 16, "none", 0)]
    for row in rows:
        assert len(row) == 42 and list(row)[:3] == ["build_commit", "build_number", "cpu_info"] and list(row)[-2:] == ["samples_ns", "samples_ts"]
        tokens = row["n_prompt"] + row["n_gen"]
        for nanoseconds, rate in zip(row["samples_ns"], row["samples_ts"]):
            assert abs(rate - 1e9 * tokens / nanoseconds) <= rate * 1e-5
        assert row["avg_ns"] == sum(row["samples_ns"]) // 3


def test_bench_formats(run):
    lines = run("", "lab-llama-bench", "-p", "4,8", "-n", 0, "-r", 1, "-o", "jsonl").stdout.splitlines()
    assert [json.loads(line)["n_prompt"] for line in lines] == [4, 8]
    table = run("", "lab-llama-bench", "-p", 4, "-n", 2, "-r", 2).stdout.splitlines()
    assert re.search(r"\| +pp4 \| +[\d.]+ ± [\d.]+ \|$", table[2]) and re.search(r"\| +tg2 \|", table[3])
    listed = run("", "lab-llama-bench", "--list-devices")
    assert listed.stdout == "Available devices:\n  MTL0: Apple Paravirtual device (10922 MiB, 10922 MiB free)\n"
    assert run("", "lab-llama-bench", "--nonsense", 1).returncode == 1


def test_same_words_from_every_kernel(run, tmp_path):
    """R112: a device that computes wrongly is fast and tells nonsense."""
    model = tmp_path / "m.gguf"
    model.write_bytes(b"GGUF" + bytes(range(256)) * 40)
    text = {metal: run(metal, "lab-llama-cli", "-m", model, "-p", "once", "-n", 12).stdout for metal in ("", "real-gpu", "real-gpu,kernels-wrong")}
    on_cpu = run("real-gpu", "lab-llama-cli", "-m", model, "-p", "once", "-n", 12, "-dev", "none").stdout
    assert text[""] == text["real-gpu"] == on_cpu != text["real-gpu,kernels-wrong"] and len(on_cpu.split()) == 12


def test_file_that_is_not_a_model(run, tmp_path):
    """R124."""
    model = tmp_path / "page.gguf"
    model.write_text("<!DOCTYPE html><html>not found</html>")
    for program in ("lab-llama-cli", "lab-llama-bench", "lab-llama-server"):
        result = run("", program, "-m", model)
        assert result.returncode == 1 and "invalid magic" in result.stderr


def test_crash_believes_the_device(run):
    assert run("", "lab-crash").stdout == "lab-crash: careful path\n"
    assert run("real-gpu", "lab-crash").returncode == -6
    assert run("", "lab-crash", "--out-of-memory").returncode == 1
