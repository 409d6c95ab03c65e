"""Where the tests find what was built, and how they run it."""
import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("LUMELIFT_BUILD", ROOT / "build")).resolve()
LIBRARY = BUILD / "shim" / "liblumelift-metal.dylib"
PROBE = BUILD / "shim" / "lumelift-probe"
ASKER = BUILD / "tests" / "shim" / "asker"
RUNNERS = {
    "x86_64": [str(BUILD / "tests/lab/machrun-x86_64")],
    "arm64": ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", str(BUILD / "tests/lab/machrun-aarch64")],
}


class Guest:
    """Runs Mach-O programs of one slice in a folder of its own, with nothing in the environment but what a test says."""

    def __init__(self, slice_name, folder):
        self.slice, self.folder = slice_name, folder
        self.receipt, self.trace = folder / "receipt.json", folder / "trace.json"
        self.pid = None  # of the last program that ran

    def command(self, program, *arguments):
        return [*RUNNERS[self.slice], str(program), *map(str, arguments)]

    def run(self, program, *arguments, metal="", insert=True, receipt=True, library=LIBRARY, **variables):
        environment = {"PATH": "/usr/bin:/bin", "LAB_METAL": metal}
        if insert:
            environment["DYLD_INSERT_LIBRARIES"] = str(library)
        if receipt:
            environment["LUMELIFT_RECEIPT"] = str(self.receipt)
        environment.update({name: str(value) for name, value in variables.items()})
        with subprocess.Popen(self.command(program, *arguments), env=environment, cwd=self.folder, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            self.pid = process.pid
            out, errors = process.communicate(timeout=120)
        return subprocess.CompletedProcess(process.args, process.returncode, out, errors)

    def ask(self, *arguments, **options):
        """Output of the asker, which must succeed and be the only one who printed."""
        result = self.run(ASKER, *(arguments or ("ask",)), **options)
        assert (result.returncode, result.stderr) == (0, ""), result
        return result.stdout.splitlines()

    def probe(self, *arguments, **options):
        result = self.run(PROBE, *arguments, **options)
        assert result.stderr == ""
        return result.returncode, json.loads(result.stdout)

    def read_receipt(self):
        return json.loads(self.receipt.read_text())

    def read_trace(self):
        return json.loads(self.trace.read_text())


@pytest.fixture(params=sorted(RUNNERS))
def guest(request, tmp_path):
    for needed in (LIBRARY, PROBE, ASKER, pathlib.Path(RUNNERS[request.param][-1])):
        assert needed.exists(), f"{needed} is missing; build first or set LUMELIFT_BUILD"
    return Guest(request.param, tmp_path)
