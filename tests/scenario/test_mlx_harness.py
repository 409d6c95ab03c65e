"""templates/mlx_harness.py against a small stand-in for mlx-lm; `report` reads what it writes."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from product import LUMELIFT

HARNESS = pathlib.Path(__file__).resolve().parents[2] / "templates/mlx_harness.py"
STAND_IN = '''
import os, pathlib, types
class Tokenizer:
    vocab_size = 50
    _eos_token_ids = {2}
def load(path):
    return None, Tokenizer()
def stream_generate(model, tokenizer, prompt, max_tokens):
    with open(os.environ["PROMPTS"], "a") as log:
        log.write(",".join(map(str, [prompt] if isinstance(prompt, str) else prompt)) + "\\n")
    if os.environ.get("SHORT"): max_tokens -= 1
    speed = float(os.environ.get("SPEED", "1"))
    for n in range(1, max_tokens + 1):
        if 2 in tokenizer._eos_token_ids and n > 3: return
        yield types.SimpleNamespace(text=f"{n} ", prompt_tokens=len(prompt), prompt_tps=1000.0 * speed, generation_tokens=n,
            generation_tps=100.0 * speed, peak_memory=1.5, finish_reason="length" if n == max_tokens else None)
'''


@pytest.fixture
def harness(tmp_path):
    (tmp_path / "mlx_lm").mkdir()
    (tmp_path / "mlx_lm/__init__.py").write_text(STAND_IN)

    def call(*words, **variables):
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PROMPTS": str(tmp_path / "prompts"), **variables}
        return subprocess.run([sys.executable, HARNESS, "--model", "owner/tiny-4bit", *map(str, words)], env=environment, cwd=tmp_path,
                              capture_output=True, text=True, check=False)
    return call


def test_report_compares_two_arms(harness, tmp_path):
    for arm, speed in (("stock", "1"), ("unlocked", "1.01")):
        done = harness("-p", 32, "-n", 8, "-r", 4, "-o", f"{arm}.json", SPEED=speed)
        assert done.returncode == 0 and done.stdout == "", done
    report = subprocess.run([LUMELIFT, "--json", "report", tmp_path / "stock.json", tmp_path / "unlocked.json"], capture_output=True, text=True, check=False)
    assert report.returncode == 0, report
    tests = {test["test"]: test for test in json.loads(report.stdout)["workloads"][0]["tests"]}
    assert set(tests) == {"pp32", "tg8"}
    assert tests["pp32"]["unlocked_against"]["stock"]["verdict"] == "no material change"
    assert tests["pp32"]["unlocked_against"]["stock"]["ratio"] == pytest.approx(1.01)
    assert len(tests["tg8"]["arms"]["stock"]["samples"]) == 4


def test_prompts_follow_from_the_seed_and_differ_between_repeats(harness, tmp_path):
    for _ in range(2):
        assert harness("-p", 32, "-n", 8, "-r", 3).returncode == 0
    prompts = (tmp_path / "prompts").read_text().splitlines()
    assert len(prompts) == 8 and prompts[:4] == prompts[4:] and len(set(prompts)) == 4
    assert all(len(prompt.split(",")) == 32 for prompt in prompts[1:4])


def test_a_greedy_text_may_end_where_the_model_ends_it(harness, tmp_path):
    done = harness("--text", "Name the planets", "-n", 8)
    assert done.returncode == 0 and done.stdout == "1 2 3 \n", done
    assert (tmp_path / "prompts").read_text() == "Name the planets\n"


def test_the_cpu_arm_is_on_the_cpu_and_says_so(harness, tmp_path):
    (tmp_path / "mlx").mkdir()
    (tmp_path / "mlx/__init__.py").write_text("")
    (tmp_path / "mlx/core.py").write_text("cpu = 'the CPU'\ndef set_default_device(device):\n    print(device, file=__import__('sys').stderr)\n")
    done = harness("--cpu", "--no-warmup", "-r", 2, "-p", 8, "-n", 4)
    assert done.returncode == 0 and "the CPU" in done.stderr, done
    made = json.loads(done.stdout)
    assert made["configuration"]["devices"] == "none" and made["warmup"] is None and len(made["samples"]) == 2
    assert len((tmp_path / "prompts").read_text().splitlines()) == 2


def test_a_text_that_ends_early_is_no_result(harness, tmp_path):
    done = harness("-n", 8, "-o", "x.json", SHORT="1")
    assert done.returncode == 1 and "15 of 16 tokens" in done.stderr and not (tmp_path / "x.json").exists(), done


def test_no_folder_of_the_user_is_written(harness, tmp_path):
    model = tmp_path / "models--owner--tiny/snapshots/abc123"
    model.mkdir(parents=True)
    done = harness("--model", model, "-r", 1)
    assert done.returncode == 0, done
    assert json.loads(done.stdout)["model"] == {"id": "owner/tiny", "revision": "abc123", "path": "abc123"}
    assert str(tmp_path) not in done.stdout
