"""The collection as a package: built, documented, clean, and what it sends is what the command line takes."""

import importlib.util
import json
import re
import shutil
import subprocess
import tarfile

import pytest
import yaml

from control import COLLECTION
from product import LUMELIFT

FOUND = importlib.util.spec_from_file_location("cli", COLLECTION / "plugins/module_utils/cli.py")
cli = importlib.util.module_from_spec(FOUND)
FOUND.loader.exec_module(cli)
MODULES = sorted(path.stem for path in (COLLECTION / "plugins/modules").glob("*.py"))


def test_the_archive_holds_what_is_needed(collections):
    with tarfile.open(collections.tarball) as archive:
        names = set(archive.getnames())
    for needed in ("MANIFEST.json", "meta/runtime.yml", "COPYING", "plugins/inventory/lume.py", "plugins/action/over_ssh.py", "playbooks/unlock.yml",
                   *(f"plugins/modules/{name}.py" for name in MODULES), *(f"roles/{role}/tasks/main.yml" for role in ("host", "unlock", "verify", "rollback"))):
        assert needed in names
    assert not [name for name in names if "__pycache__" in name]


@pytest.mark.parametrize("kind", ["module", "inventory", "role"])
def test_every_part_has_its_page(control, kind):
    names = {"module": MODULES, "inventory": ["lume"], "role": ["host", "unlock", "verify", "rollback"]}[kind]
    shown = control.run("ansible-doc", "--json", "-t", kind, *(f"lumelift.fleet.{name}" for name in names))
    assert shown.returncode == 0 and "WARNING" not in shown.stderr, shown.stderr
    pages = json.loads(shown.stdout)
    assert sorted(pages) == sorted(f"lumelift.fleet.{name}" for name in names)
    if kind != "module":
        return
    for name, spec in cli.SPECS.items():
        options = pages[f"lumelift.fleet.{name}"]["doc"]["options"]
        assert set(options) == set(spec), name
        for option, about in spec.items():
            page = options[option]
            assert (page["type"], page.get("default"), page.get("choices"), page.get("required", False)) == (
                about["type"], about.get("default"), about.get("choices"), about.get("required", False)), (name, option)


def answer(argv, password, passphrase):
    return 0, json.dumps({"schema": 1, "vm": "x", "changes": True, "changed": True, "steps": [], "warnings": [], "vms": [], "checks": [], "problems": [],
                          "agents": [{"label": "x"}], "files": [], "preference": {"claims": ["x"], "now": {"type": "absent"}, "before": {"type": "absent"}}}), ""


def test_the_command_line_takes_what_the_modules_send():
    """Every option that a module may pass is one of lumelift's, and no secret is among them."""
    def help_of(*words):
        return subprocess.run([LUMELIFT, *words, "--help"], capture_output=True, text=True, check=True, env={"HOME": "/nonexistent"}).stdout

    samples, known = {"str": "x", "int": 1, "bool": False, "list": ["x", "y"]}, {}
    for name, spec in cli.SPECS.items():
        for state in spec.get("state", {}).get("choices", [None]):
            sent = []
            params = {option: "SECRET" if about.get("no_log") else about.get("choices", [samples[about["type"]]])[0] for option, about in spec.items()}
            done = cli.perform(name, {**params, "state": state}, False, lambda argv, *secrets: sent.append(argv) or answer(argv, *secrets))
            assert not done.get("failed"), done
            assert any("--password-fd=0" in argv for argv in sent)
            for argv in sent:
                verb = next(word for word in argv[1:] if not word.startswith("-"))
                known[verb] = known.get(verb) or help_of() + help_of(verb)
                assert [word for word in argv[1:] if word.startswith("-") and word.split("=")[0] not in known[verb]] == [] and "SECRET" not in str(argv)


def test_a_name_that_is_an_option_is_not_sent():
    """R138: `--all` would be every VM."""
    params = {option: about.get("default") for option, about in cli.SPECS["unlock"].items()}
    sent = []
    done = cli.perform("unlock", {**params, "vm": "--all", "state": "absent"}, False, lambda *words: sent.append(words))
    assert done["failed"] and not sent, done


def test_answers_that_cannot_be_read_are_failures():
    params = {option: about.get("default") for option, about in cli.SPECS["verify"].items()}
    for out, words in (("", "no JSON object"), ("[1]", "no JSON object"), ('{"schema": 2}', "schema")):
        done = cli.perform("verify", {**params, "vm": "x"}, False, lambda *_: (1, out, "last words"))
        assert done["failed"] and words in done["msg"], done


def test_no_fault_is_found_by_the_linter(control, tmp_path):
    copy = tmp_path / "ansible_collections/lumelift/fleet"
    shutil.copytree(COLLECTION, copy)
    found = subprocess.run(["ansible-lint", "--offline", "--nocolor", "--strict", "-v"], cwd=copy, capture_output=True, text=True, check=False,
                           env={**control.env(), "ANSIBLE_COLLECTIONS_PATH": str(tmp_path)}, timeout=300)
    looked_at = re.search(r"on (\d+) files", found.stdout + found.stderr)
    assert found.returncode == 0 and int(looked_at[1]) > 30, found.stdout + found.stderr


def test_rollouts_end_with_the_first_failure():
    for name in ("host", "unlock"):
        play = yaml.safe_load((COLLECTION / f"playbooks/{name}.yml").read_text())[0]
        assert play["max_fail_percentage"] == 0 and "serial" in play
