"""The program for the Mac, built on Linux: what the file says about itself, that its signature holds, and that it runs where the loader can.

What this cannot show: that a Mac's kernel and dyld take it.
"""

import json
import os
import pathlib
import struct
import subprocess
import sys

import pytest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "shim"))
import machofile  # noqa: E402

BUILD = pathlib.Path(os.environ.get("LUMELIFT_BUILD") or TESTS.parent / "build")
LAB = BUILD / "tests/lab"
DYLIB_COMMANDS = {0xC, 0x80000018, 0x8000001F, 0x20, 0x80000023}  # load, weak, re-export, lazy, upward
MAIN, ENTRY_LIBRARY = 0x80000028, 0xE


@pytest.fixture(scope="session")
def program():
    done = subprocess.run([TESTS / "cross/build"], capture_output=True, text=True, env={**os.environ, "LUMELIFT_BUILD": str(BUILD)})
    if done.returncode == 77:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr
    return pathlib.Path(done.stdout.splitlines()[-1])


@pytest.fixture(scope="session")
def only(program):
    """The file's one slice."""
    content = program.read_bytes()
    assert struct.unpack_from("<II", content) == (machofile.MACHO_64, 0x0100000C)
    return machofile.parse("arm64", 0, content)


@pytest.fixture(scope="session")
def seen(program):
    """What our own reader says about it."""
    done = subprocess.run([BUILD / "lumelift", "inspect", "--json", program], capture_output=True, text=True)
    (file,) = json.loads(done.stdout)["files"]
    (one,) = file["slices"]
    return file, one


def test_it_needs_only_libsystem(only, seen):
    named = [only.text_of(body, 8) for command, body in only.commands if command in DYLIB_COMMANDS]
    assert named == ["/usr/lib/libSystem.B.dylib"]
    assert [library["path"] for library in seen[1]["libraries"]] == named
    assert not any(b"/usr/local" in body or b"homebrew" in body for _, body in only.commands)


def test_it_is_a_program_for_macos_13(only, seen):
    assert only.filetype == 2 and only.of(MAIN)
    assert only.text_of(only.of(ENTRY_LIBRARY)[0], 8) == "/usr/lib/dyld"
    assert only.minimum_os == (1, (13, 0))
    assert seen[1]["minimum_os"] == "13.0"
    assert only.flags & 0x200000, "position independent"


def test_it_has_an_identity(only, seen):
    (body,) = only.of(machofile.LC_UUID)
    assert any(body[8:24])
    assert seen[1]["uuid"].replace("-", "").lower() == body[8:24].hex()


def test_its_adhoc_signature_holds_for_every_page(only, seen):
    signature = only.signature
    assert signature.flags & 2, "signed ad hoc"
    assert signature.limit == struct.unpack_from("<I", only.of(machofile.LC_CODE_SIGNATURE)[0], 8)[0], "all before the signature is covered"
    assert signature.slots == -(-signature.limit // signature.page) and signature.bad_pages() == []
    damaged = bytearray(only.data)
    damaged[signature.limit // 2] ^= 1
    assert signature.bad_pages(bytes(damaged)) == [signature.limit // 2 // signature.page]
    assert seen[1]["signature"]["adhoc"] and seen[1]["signature"]["intact"] and seen[1]["signature"]["pages"] == signature.slots


def test_nothing_of_this_machine_is_in_it(program):
    content = program.read_bytes()
    for path in (str(TESTS.parent), str(pathlib.Path.home() / ".cache")):
        assert path.encode() not in content


# -- as far as it runs here ------------------------------------------------------------------------------------------------------

@pytest.fixture
def both(program, tmp_path):
    """What the program for the Mac does, as arm64 by the loader under qemu, and what the one for this machine does."""
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "LUMELIFT_KIT_DIR": str(BUILD / "shim"), "LUMELIFT_TEMPLATES_DIR": str(TESTS.parent / "templates"),
           "LUMELIFT_STATE_DIR": str(tmp_path / "state")}
    loader = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", LAB / "machrun-aarch64", "--argv0", BUILD / "lumelift", "--absent-at-call", "--", program]

    def started(*words):
        return [subprocess.run([*first, *map(str, words)], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120)
                for first in (loader, [BUILD / "lumelift"])]
    return started


@pytest.mark.parametrize("status, words", [
    (0, ["--version"]), (0, ["--help"]), (0, ["unlock", "--help"]), (2, ["unlokc"]), (2, ["unlock"]),
    (0, ["history"]),  # opens the journal: SQLite
    (0, ["report", TESTS / "data/evidence/m1-ultra-tinyllama"]),
    (0, ["inspect", BUILD / "shim/lumelift-probe"]), (0, ["inspect", "--json", BUILD / "shim/liblumelift-metal.dylib"]),
], ids=lambda value: " ".join(map(os.path.basename, map(str, value))) if isinstance(value, list) else str(value))
def test_it_does_what_the_program_of_this_machine_does(both, status, words):
    result, expected = both(*words)
    assert (result.returncode, result.stdout, result.stderr) == (expected.returncode, expected.stdout, expected.stderr)
    assert expected.returncode == status


def test_it_inspects_itself(both, program):
    result, expected = both("inspect", "--json", program)
    assert (result.returncode, json.loads(result.stdout)) == (expected.returncode, json.loads(expected.stdout)), result.stderr


def test_versions_are_those_of_its_own_libraries(both):
    result, expected = (json.loads(one.stdout) for one in both("--json", "--version"))
    assert set(result) == set(expected) and result["lumelift"] == expected["lumelift"]


def test_what_is_no_macho_is_refused(both, tmp_path):
    (tmp_path / "text").write_text("hello")
    result, expected = both("inspect", "--json", tmp_path / "text")
    assert (result.returncode, result.stdout, result.stderr) == (expected.returncode, expected.stdout, expected.stderr)
