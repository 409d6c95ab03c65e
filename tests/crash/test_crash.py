"""The quick set of the crash matrix, one test for each scenario; `tests/crash/crash --full` covers all points."""

import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import matrix  # noqa: E402


@pytest.mark.parametrize("scenario", matrix.QUICK)
def test_r132_r136_killed_anywhere_one_command_puts_the_world_right(scenario):
    assert matrix.ready() is None
    done = subprocess.run([matrix.HERE / "crash", "--only", scenario, "--jobs", "1"], capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].endswith(" passed, 0 failed")
