"""What scenario and crash tests share: the built program in a rehearsal lab, and a small workload."""

import json
import os
import pathlib
import subprocess
import sys
import textwrap

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "lab"))

from lab import Lab  # noqa: E402, F401

BUILD = pathlib.Path(os.environ.get("LUMELIFT_BUILD", HERE.parent / "build")).resolve()
LUMELIFT = BUILD / "lumelift"
DOMAIN, KEY = "com.apple.gpusw.ParavirtualizedGraphics", "ForceUnrestrictedDeviceFeatureLevel"
LABEL = "io.lumelift.server"


class Result:
    """One run of the program: status, both streams, and the JSON object where there is one."""

    def __init__(self, done):
        self.rc, self.out, self.err = done.returncode, done.stdout, done.stderr

    @property
    def json(self):
        return json.loads(self.out)

    @property
    def error_id(self):
        """The id in "error[id]: …", None without an error."""
        for line in self.err.splitlines():
            if line.startswith("error["):
                return line[6:line.index("]")]
        return None

    def __repr__(self):
        return f"rc={self.rc}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


def command(lab, *words):
    return [str(LUMELIFT), *map(str, words)]


def run(lab, *words, env=None, timeout=120, **options):
    """Runs lumelift as the lab's host user."""
    environment = {**lab.env(), "LUMELIFT_PORT": str(lab.port), **(env or {})}
    options = {"stdin": subprocess.DEVNULL, **options}
    return Result(subprocess.run(command(lab, *words), env=environment, capture_output=True, text=True, errors="surrogateescape",
                                 timeout=timeout, check=False, **options))


def start(lab, *words, env=None, **options):
    """The same in the background."""
    environment = {**lab.env(), "LUMELIFT_PORT": str(lab.port), **(env or {})}
    return subprocess.Popen(command(lab, *words), env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, errors="surrogateescape", **options)


def workload(folder, model_size=200_000, program="lab-llama-server", **more):
    """Writes a workload file with a program and a model beside it; returns its path."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / program
    if not target.exists():
        target.write_bytes((BUILD / "tests/lab/workloads" / program).read_bytes())
        target.chmod(0o755)
    (folder / "model.gguf").write_bytes(b"GGUF\3\0\0\0" + bytes(range(256)) * (model_size // 256))
    extra = "".join(f"{key}: {value}\n" for key, value in more.items())
    path = folder / "workload.yaml"
    path.write_text(textwrap.dedent(f"""\
        schema: 1
        name: server
        executable: {{ host: ./{program} }}
        arguments: [--model, model.gguf]
        files:
          - from: ./model.gguf
        """) + extra)
    return path


def set_preference(lab, former):
    """`former` is a pair (type, value) or None for absent."""
    if former is None:
        lab.preference(None)
    else:
        lab.preference(former[1], former[0])


def guest_home(lab, name):
    return pathlib.Path(lab.vm(name).home)
