import pathlib
import signal
import sys

import pytest

# Started by nohup or in the background of a script, a program may ignore these; what the tests start must not inherit that.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from product import BUILD, Lab  # noqa: E402


@pytest.fixture
def lab(tmp_path):
    """A lab without VMs, taken down at the end."""
    with Lab(tmp_path / "lab", build=BUILD) as made:
        yield made


@pytest.fixture
def up(lab):
    """A lab with one running VM, `ci-1`."""
    lab.add_vm("ci-1", running=True)
    return lab.start()
