"""The pictures in docs/pictures (made by tests/docs/pictures) show this program, and nothing of the machine that they were made on."""

import pathlib
import re
import subprocess
import xml.etree.ElementTree

import pytest

from product import LUMELIFT

ROOT = pathlib.Path(__file__).resolve().parents[2]
PICTURES = sorted((ROOT / "docs/pictures").glob("*.svg"))


def test_there_are_pictures():
    assert len(PICTURES) >= 5


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.stem)
def test_picture(path):
    texts = [element.text or "" for element in xml.etree.ElementTree.parse(path).iter() if element.tag.endswith("}text")]
    assert "simulated" in texts[0] or "published" in texts[0]
    assert not [text for text in texts if re.search(r"/tmp/|/home/|/root/", text)]
    typed = [words for words in map(str.split, texts) if words[:1] == ["lumelift"]]
    assert typed and all(len(words) < 8 for words in typed)
    if path.stem == "refusals":  # commands that do not exist are what it shows
        return
    known = subprocess.run([LUMELIFT, "--help"], capture_output=True, text=True, check=True).stdout
    assert [words for words in typed if len(words) > 1 and not re.search(rf"^  {words[1]} ", known, re.M)] == []
