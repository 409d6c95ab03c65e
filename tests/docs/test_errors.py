"""Every id that lumelift can say is explained in docs/errors.md, and nothing else is."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
MANUAL = ROOT / "docs/errors.md"

# Words of that shape in the sources that are no ids: names, and words between two halves of the program.
OTHER_WORDS = {"llama-server", "lumelift-server", 
    "lumelift-evidence", "lumelift-probe", "llama-bench", "llama-cli", "keyboard-interactive", "write-test", "start-for-rollback", "password-file",
    "bug-report", "nlohmann-json", "yaml-cpp", "ssh-keygen", "sshd-session", "power-on", "power-off",
    "lumelift-fleet-plan",
    "mode-set",  # of a file, in the answer of copy
    # what a script in the guest answers
    "no-folder", "no-sum", "no-write", "remove-file", "link-folder", "former-missing", "former-differs",
    # verdicts of inspect and of the probe
    "aborts-children", "needs-slice", "not-a-program", "not-needed", "no-device", "over-broad",
}
# Where names of other programs and formats stand, and no ids.
OTHER_FILES = {"cli/app.cpp", "cli/file_keys.cpp"}

KEBAB = re.compile(r'"([a-z][a-z0-9]*(?:-[a-z0-9]+)+)"')
PLAIN = re.compile(r'ErrorKind::\w+, "([a-z]+)"')
FINDING = re.compile(r'\badd\("([a-z]+)"')  # of doctor
CHECK = re.compile(r'\{"([a-z]+)", ')  # of verify
COMMENT = re.compile(r"//[^\n]*")


def ids_in_sources():
    found = {}
    for path in sorted(p for folder in ("cli", "host", "remote", "shim") for p in (ROOT / folder).rglob("*.[ch]pp")):
        name = path.relative_to(ROOT).as_posix()
        text = COMMENT.sub("", path.read_text())
        words = set(PLAIN.findall(text)) | set(FINDING.findall(text) if name == "cli/cmd_doctor.cpp" else [])
        words |= set(CHECK.findall(text) if name == "cli/verification.cpp" else [])
        if name not in OTHER_FILES:
            words |= set(KEBAB.findall(text))
        for word in words - OTHER_WORDS:
            found.setdefault(word, name)
    return found


def ids_in_manual():
    return re.findall(r"^### (\S+)$", MANUAL.read_text(), re.M)


def test_every_id_is_explained():
    missing = {word: where for word, where in ids_in_sources().items() if word not in ids_in_manual()}
    assert not missing, f"explain in docs/errors.md, with cause and fix: {missing}"


def test_nothing_is_explained_that_is_not_there():
    assert not set(ids_in_manual()) - set(ids_in_sources())


def test_each_once_with_cause_and_fix():
    text = MANUAL.read_text()
    sections = re.split(r"^### ", text, flags=re.M)[1:]
    names = [section.split("\n", 1)[0] for section in sections]
    assert len(names) == len(set(names)) and len(names) > 100
    for name, section in zip(names, sections):
        cause, fix = section.split("\n\n")[1].split(" **Fix:** ")
        assert len(cause) > 15 and len(fix.strip()) > 2, name


def test_the_collection_sees_an_id():
    assert ids_in_sources()["guest-host-key-changed"].startswith("cli/")
    assert ids_in_sources()["usage"].startswith("cli/")
