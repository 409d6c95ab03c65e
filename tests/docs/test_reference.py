"""What is made of the command line's declarations: man pages, tables in docs/, schemas. The copies in the repository must be those that
the program writes now; LUMELIFT_ACCEPT=1 takes the new ones."""

import json
import os
import pathlib
import re
import subprocess

import pytest
import yaml
from jsonschema import Draft202012Validator

from product import LUMELIFT

ROOT = pathlib.Path(__file__).resolve().parents[2]
BEGIN, END = "<!-- options: written by the program -->\n", "<!-- end of options -->\n"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reference")
    subprocess.run([LUMELIFT, "reference", folder], check=True, capture_output=True)
    return folder


def compare(path, now, wanted):
    """Fails where the copy in the repository differs, or replaces it."""
    if os.environ.get("LUMELIFT_ACCEPT") == "1" and now != wanted:
        path.parent.mkdir(exist_ok=True)
        path.write_text(wanted)
        return
    assert now == wanted, f"{path.relative_to(ROOT)} is not what the program writes; LUMELIFT_ACCEPT=1 takes the new text"


def commands():
    text = subprocess.run([LUMELIFT, "--help"], check=True, capture_output=True, text=True).stdout
    return re.findall(r"^  ([a-z][a-z-]*)  +\S", text.split("Subcommands:")[1], re.M)


def test_tables_in_the_manual(made):
    path = ROOT / "docs/commands.md"
    page = path.read_text()
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    compare(path, page, before + BEGIN + (made / "commands.md").read_text() + END + after)


def test_schemas(made):
    for path in sorted((made / "schemas").iterdir()):
        kept = ROOT / "templates/schemas" / path.name
        compare(kept, kept.read_text() if kept.exists() else "", path.read_text())
    assert len(list((made / "schemas").iterdir())) >= 2


def test_every_command_is_in_the_manual(made):
    page = (ROOT / "docs/commands.md").read_text()
    table = page.split("| command |")[1].split("\n\n")[0]
    assert len(commands()) > 10
    for name in commands():
        assert f"## `lumelift {name}`" in page, name
        assert re.search(rf"`{name}[ `]", table), f"{name} is missing in the table of docs/commands.md"


def test_man_pages_are_rendered_without_a_warning(made):
    pages = sorted((made / "man").iterdir())
    assert {p.name for p in pages} >= {"lumelift.1"} | {f"lumelift-{name}.1" for name in commands()}
    for page in pages:
        shown = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", str(page)], capture_output=True, text=True, check=True,
                               env={**os.environ, "MANWIDTH": "100", "MAN_KEEP_FORMATTING": "", "LC_ALL": "C.UTF-8"})
        assert shown.stderr == "", page.name
        assert "EXIT STATUS" in shown.stdout and "NAME" in shown.stdout
        lint = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", str(page)], capture_output=True, text=True, check=False)
        complaints = [line for line in lint.stdout.splitlines() if "missing date" not in line and "cannot parse date" not in line]
        assert complaints == [], page.name


def test_a_man_page_says_what_help_says(made):
    shown = subprocess.run(["man", "-E", "ASCII", "-l", str(made / "man/lumelift-unlock.1")], capture_output=True, text=True, check=True,
                           env={**os.environ, "MANWIDTH": "200", "LC_ALL": "C"}).stdout
    shown = re.sub(r".\x08", "", shown)
    options = set(re.findall(r"--[a-z-]+", subprocess.run([LUMELIFT, "unlock", "--help"], check=True, capture_output=True, text=True).stdout))
    assert len(options) > 10 and options <= set(re.findall(r"--[a-z-]+", shown)) | {"--help"}
    assert "LUMELIFT_KEY" in shown and "auto|always|never" in shown


def test_pages_of_commands_that_take_a_program(made):
    def shown(name):
        page = subprocess.run(["man", "-E", "ASCII", "-l", str(made / f"man/lumelift-{name}.1")], capture_output=True, text=True, check=True,
                              env={**os.environ, "MANWIDTH": "200", "LC_ALL": "C"}).stdout
        return re.sub(r".\x08", "", page)
    assert "lumelift run VM [OPTIONS] -- CMD ARG..." in shown("run")
    assert "lumelift explain [VM] [OPTIONS] [-- CMD ARG...]" in shown("explain")
    assert "lumelift ablate VM [OPTIONS] [-- CMD ARG...]" in shown("ablate")
    assert "128 + N" in shown("run") and "128 + N" not in shown("copy")
    assert shown("run").count("-h, --help") == 1


def test_the_manual_uses_commands_and_options_that_exist():
    known = {"": set(re.findall(r"--[a-z-]+", subprocess.run([LUMELIFT, "--help"], capture_output=True, text=True, check=True).stdout))}
    for name in commands():
        text = subprocess.run([LUMELIFT, name, "--help"], capture_output=True, text=True, check=True).stdout
        known[name] = known[""] | set(re.findall(r"--[a-z-]+", text))
    uses = 0
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for line in re.findall(r"^(?: {4,}|\$ )(lumelift .*)$|`(lumelift [^`]+)`", page.read_text(), re.M):
            words = re.split(r"\s--\s|[|;#]", next(part for part in line if part))[0].split()[1:]
            named = [word for word in words if re.fullmatch(r"[a-z][a-z-]+", word)]
            if not words or words[0].startswith(("reference", "complete", "COMMAND")):
                continue
            name = named[0] if named and named[0] in known else ""
            assert name or words[0].startswith("-"), f"{page.name}: lumelift {' '.join(words)}"
            if not name:
                continue
            for option in (word.split("=")[0] for word in words if word.startswith("--") and len(word) > 2):
                assert option in known[name], f"{page.name}: lumelift {name} {option}"
                uses += 1
    assert uses > 15


# Schemas and reader agree

GOOD_PROFILE = {"schema": 1, "name": "careful", "apple_family_max": 1007}
GOOD_WORKLOAD = {"schema": 1, "name": "server", "executable": "/usr/local/bin/server"}
PROFILES = [
    (GOOD_PROFILE, True),
    ({**GOOD_PROFILE, "threadgroup_memory": 65536, "working_set": 0, "description": "for tests"}, True),
    ({**GOOD_PROFILE, "apple_family_max": 1010}, False),
    ({**GOOD_PROFILE, "apple_family_max": "1007"}, False),
    ({**GOOD_PROFILE, "threadgroup_memory": 65537}, False),
    ({**GOOD_PROFILE, "name": "Careful"}, False),
    ({**GOOD_PROFILE, "family": 1007}, False),
    ({**GOOD_PROFILE, "schema": 2}, False),
    ({"schema": 1, "name": "careful"}, False),
]
WORKLOADS = [
    (GOOD_WORKLOAD, True),
    ({**GOOD_WORKLOAD, "arguments": ["-c", 4096, "x"], "environment": {"A": "1", "B": 2}, "inherit": True, "logs": {"stdout": "~/out.log"}}, True),
    ({**GOOD_WORKLOAD, "executable": {"guest": "/usr/local/bin/server"}}, True),
    ({**GOOD_WORKLOAD, "environment": {"DYLD_INSERT_LIBRARIES": "x"}}, False),
    ({**GOOD_WORKLOAD, "logs": {"out": "~/out.log"}}, False),
    ({**GOOD_WORKLOAD, "keep_alive": "true"}, False),
    ({**GOOD_WORKLOAD, "label": "a b"}, False),
    ({**GOOD_WORKLOAD, "files": [{"to": "x"}]}, False),
    ({**GOOD_WORKLOAD, "name": "x" * 65}, False),
    ({"schema": 1, "name": "server"}, False),
]


def accepted_by_schema(kind, value):
    return Draft202012Validator(json.loads((ROOT / f"templates/schemas/{kind}.schema.json").read_text())).is_valid(value)


def accepted_by_lumelift(lab, tmp_path, kind, value):
    """A file that is refused ends the command before the VM is asked for."""
    file = tmp_path / f"{kind}.yaml"
    file.write_text(yaml.safe_dump(value))
    done = subprocess.run([LUMELIFT, "unlock", "nobody", f"--{kind}", file], env=lab.env(), capture_output=True, text=True, check=False,
                          stdin=subprocess.DEVNULL)
    assert f"{kind}-invalid" in done.stderr or "vm-unknown" in done.stderr, done.stderr
    return f"{kind}-invalid" not in done.stderr


def test_schemas_and_reader_agree(lab, tmp_path):
    lab.start()
    for kind, cases in (("profile", PROFILES), ("workload", WORKLOADS)):
        for value, good in cases:
            assert accepted_by_schema(kind, value) == good, (kind, value)
            assert accepted_by_lumelift(lab, tmp_path, kind, value) == good, (kind, value)


def test_shipped_files_fit_their_schemas():
    for kind in ("profile", "workload", "fleet"):
        files = sorted((ROOT / f"templates/{kind}s").glob("*.yaml"))
        assert files and all(accepted_by_schema(kind, yaml.safe_load(file.read_text())) for file in files)
