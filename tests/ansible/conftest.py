import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from control import Collections, Control  # noqa: E402


@pytest.fixture(scope="session")
def collections(tmp_path_factory):
    return Collections(tmp_path_factory.mktemp("collections"))


@pytest.fixture
def control(tmp_path, collections):
    """A control node without Macs."""
    with Control(tmp_path / "control", collections) as made:
        yield made
