"""`bench` on servers that are asked over HTTP inside the guest, and on MLX-LM."""

import json
import pathlib
import socket

import pytest

from product import BUILD, Lab, guest_home, run

PROGRAMS = BUILD / "tests/lab/workloads"
QUICK = ("-p", "16", "-n", "4", "-r", "2", "--cool-down", "0", "--spread-limit", "50")


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with Lab(tmp_path_factory.mktemp("servers") / "lab", build=BUILD) as made:
        made.add_vm("ci-1", running=True, arch="x86_64")
        made.start()
        yield made


@pytest.fixture
def kit(tmp_path):
    for name, program in (("llama-server", "lab-llama-server"), ("ollama", "lab-llama-server"), ("python3", "lab-mlx")):
        (tmp_path / name).write_bytes((PROGRAMS / program).read_bytes())
        (tmp_path / name).chmod(0o755)
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF\3\0\0\0" + bytes(range(256)) * 400)
    return tmp_path


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def bench(lab, kit, *words, quick=QUICK, **options):
    return run(lab, "--json", "bench", "ci-1", *quick, *words, cwd=kit, **options)


def check(lab, kit, done, name, before):
    assert done.rc == 0, done
    workload = done.json["report"]["workloads"][0]
    assert workload["name"] == name
    assert set(workload["arms"]) == {"stock", "unlocked", "cpu"}
    for test in workload["tests"]:
        assert all(len(arm["samples"]) == 2 for arm in test["arms"].values())
    assert done.json["text"]["checked"] and done.json["text"]["words"] == done.json["text"]["common"] > 0
    folder = pathlib.Path(kit / done.json["folder"])
    assert '"active"' in (folder / "unlocked-1.receipt.json").read_text()
    assert not (folder / "stock-1.receipt.json").exists()
    assert lab.snapshot() == before
    again = run(lab, "--json", "report", folder, "--spread-reject", "50")
    assert again.json["workloads"][0]["tests"] == workload["tests"], again
    return folder


def test_llama_server_is_measured_by_its_own_replies(lab, kit):
    before = lab.snapshot()
    done = bench(lab, kit, "--target", f"http://127.0.0.1:{free_port()}", "--bench", kit / "llama-server", "--model", kit / "tiny.gguf")
    folder = check(lab, kit, done, "tiny (llama-server)", before)
    assert [test["test"] for test in done.json["report"]["workloads"][0]["tests"]] == ["prompt ~16", "generate 4"]
    stock = json.loads((folder / "stock-1.json").read_text())
    assert stock["server"]["version"] == "b1-1ab0000" and "content" not in (folder / "stock-1.json").read_text()
    command = json.loads((folder / "cpu-1.conditions.json").read_text())["command"]
    assert command[-4:] == ["-dev", "none", "-ngl", "0"]
    assert "MTLGPUFamilyApple9" in (folder / "unlocked-1.stderr").read_text().replace(" ", "")


def test_ollama_is_measured_with_its_children_in_mind(lab, kit):
    before = lab.snapshot()
    done = bench(lab, kit, "--target", f"http://127.0.0.1:{free_port()}", "--bench", kit / "ollama", "--guest-model", "tiny")
    folder = check(lab, kit, done, "tiny (Ollama)", before)
    assert json.loads((folder / "stock-1.json").read_text())["model"] == {"name": "tiny", "digest": "0123456789ab"}
    missing = bench(lab, kit, "--target", f"http://127.0.0.1:{free_port()}", "--bench", kit / "ollama", "--guest-model", "other", "--no-text-check")
    assert missing.rc == 5 and "model not found" in missing.out, missing


def test_a_server_that_is_not_ours_is_not_measured(lab, kit):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen(1)
        done = run(lab, "bench", "ci-1", *QUICK, "--target", f"http://127.0.0.1:{other.getsockname()[1]}", "--bench", kit / "llama-server",
                   "--model", kit / "tiny.gguf", cwd=kit)
    assert done.rc == 2 and done.error_id == "bench-port-taken", done


def test_a_server_that_computes_wrong_gives_no_speed_up(tmp_path, kit):
    with Lab(tmp_path / "lab", build=BUILD) as made:
        made.add_vm("ci-1", running=True, arch="x86_64", metal="kernels-wrong")
        made.start()
        done = run(made, "bench", "ci-1", *QUICK, "--target", f"http://127.0.0.1:{free_port()}", "--bench", kit / "llama-server", "--model", kit / "tiny.gguf", cwd=kit)
        assert done.rc == 5 and done.error_id in ("bench-text-differs", "probe-not-unlocked"), done


def test_mlx_runs_in_a_python_of_the_guest(lab, kit):
    home = guest_home(lab, "ci-1")
    (home / "python3").write_bytes((kit / "python3").read_bytes())
    (home / "python3").chmod(0o755)
    (kit / "tiny-4bit").mkdir()
    (kit / "tiny-4bit/config.json").write_text("{}")
    (kit / "tiny-4bit/model.safetensors").write_bytes(b"weights")
    before = lab.snapshot()
    done = bench(lab, kit, "--mlx", "--guest-bench", "~/python3", "--model", kit / "tiny-4bit")
    check(lab, kit, done, "tiny-4bit (MLX-LM)", before)


@pytest.mark.parametrize("words", [
    ("--target", "http://10.0.0.1:80", "--bench", "llama-server", "--model", "tiny.gguf"), ("--target", "http://127.0.0.1:8080", "--model", "tiny.gguf"),
    ("--target", "http://127.0.0.1:8080", "--bench", "ollama", "--model", "tiny.gguf"), ("--mlx", "--bench", "python3"),
    ("--mlx", "--target", "http://127.0.0.1:8080", "--bench", "llama-server"), ("--mlx", "--guest-bench", "x", "-p", "16,32")])
def test_options_that_do_not_go_together_touch_nothing(lab, kit, words):
    before = lab.snapshot()
    done = bench(lab, kit, *words, quick=())
    assert done.rc == 2 and lab.snapshot() == before, done
