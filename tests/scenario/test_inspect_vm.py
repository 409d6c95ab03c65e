"""`inspect --vm`: the verdict on files of a guest, with what is known of that guest."""

import pytest

from product import BUILD, Lab, guest_home, run


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with Lab(tmp_path_factory.mktemp("inspect") / "lab", build=BUILD) as made:
        made.add_vm("ci-1", running=True, arch="x86_64", sip=True)
        made.start()
        home = guest_home(made, "ci-1")
        program = (BUILD / "tests/lab/workloads/lab-llama-cli").read_bytes()
        (home / "tool").write_bytes(program)
        (home / "tool").chmod(0o755)
        (home / "link").symlink_to("tool")
        (home / "setuid").write_bytes(program)
        (home / "setuid").chmod(0o4755)
        (home / "script").write_text("#!/bin/sh\nexec ./tool \"$@\"\n")
        (home / "cut").write_bytes(program[:5000])
        (home / "odd\x1b]0;title\x07\nname").write_bytes(program)
        yield made


def verdicts(lab, *names):
    done = run(lab, "--json", "inspect", "--vm", "ci-1", *names)
    return done.rc, {file["file"]: file for file in done.json["files"]}


def test_each_file_gets_its_verdict_in_one_run(lab):
    before = lab.snapshot()
    rc, files = verdicts(lab, "./tool", "~/link", str(guest_home(lab, "ci-1") / "setuid"), "script", "./script", "/bin/cat")
    assert rc == 2, files
    assert {name.split("/")[-1]: file["verdict"] for name, file in files.items() if name != "script"} == {
        "tool": "works", "link": "works", "setuid": "ignored", "script": "ignored", "cat": "ignored"}
    assert files["script"]["verdict"] == "unreadable"
    assert [link["role"] for link in files["~/link"]["chain"]] == ["symlink", "program"]
    assert lab.snapshot() == before


def test_what_works_exits_0(lab):
    rc, files = verdicts(lab, "./tool")
    assert rc == 0 and files["./tool"]["acceptable"], files


def test_the_state_of_sip_is_the_guests(lab):
    lab.change_vm("ci-1", sip=False)
    try:
        _, files = verdicts(lab, "/bin/cat")
    finally:
        lab.change_vm("ci-1", sip=True)
    assert files["/bin/cat"]["verdict"] == "killed"


def test_damaged_and_missing_files(lab):
    rc, files = verdicts(lab, "./cut", "./nothing")
    assert rc == 2 and files["./nothing"]["verdict"] == "unreadable" and files["./cut"]["verdict"] in ("unreadable", "killed"), files


def test_a_name_full_of_control_characters_does_no_harm(lab):
    done = run(lab, "inspect", "--vm", "ci-1", "./odd\x1b]0;title\x07\nname")
    assert done.rc == 0 and "\x1b" not in done.out and "\x07" not in done.out and len(done.out.splitlines()) <= 3, done
