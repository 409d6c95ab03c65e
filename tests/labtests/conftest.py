import pytest

from labtest import BUILD, Lab


@pytest.fixture
def lab(tmp_path):
    with Lab(tmp_path / "lab", build=BUILD) as made:
        yield made


@pytest.fixture
def up(lab):
    lab.add_vm("tahoe", running=True)
    return lab.start()
