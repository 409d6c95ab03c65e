"""Large files of a workload over a shared folder: from the start of the VM to what a rollback leaves."""

import pathlib

import pytest

from product import guest_home, run, workload

MIB = 1 << 20
LARGE = 9 * MIB
FAST = {"arch": "x86_64", "boot_delay": 0.05, "shutdown_delay": 0.05}
PLACE = "/Volumes/My Shared Files"


@pytest.fixture
def guest(lab):
    lab.add_vm("ci-1", running=True, **FAST)
    return lab.start()


def shares(lab):
    """What is in our staging folders."""
    return sorted(path for path in pathlib.Path(lab.home).rglob("shares/**/*"))


def ran_with(lab):
    """The shared folders of the running VM: host path and whether it is read-only."""
    return [(share["hostPath"], share["readOnly"]) for share in lab.vm("ci-1").run_state()["options"].get("shared") or []]


def model(lab):
    return guest_home(lab, "ci-1") / ".local/share/lumelift/server/model.gguf"


def several(folder, *extra):
    """A workload file whose first file is the program's model, and lines for more."""
    file = workload(folder, model_size=LARGE)
    file.write_text(file.read_text() + "".join(line + "\n" for line in extra))
    return file


def test_a_vm_that_could_not_be_stopped_keeps_its_share(guest, tmp_path):
    """The folder goes with the restart without it, not from under a VM that still runs with it."""
    before = guest.snapshot()
    assert run(guest, "unlock", "ci-1", "--workload", workload(tmp_path / "w", model_size=LARGE, transfer="share")).rc == 0
    there = shares(guest)
    assert run(guest, "rollback", "ci-1", "--user", "lumw").rc == 3
    assert there and shares(guest) == there and ran_with(guest)
    assert run(guest, "rollback", "ci-1").rc == 0
    assert guest.snapshot() == before and not shares(guest) and ran_with(guest) == []


def test_a_model_comes_from_a_share_and_rollback_leaves_nothing(guest, tmp_path):
    before = guest.snapshot()
    file = workload(tmp_path / "w", model_size=LARGE, transfer="share")
    source = tmp_path / "w" / "model.gguf"
    done = run(guest, "--json", "unlock", "ci-1", "--workload", file)
    assert done.rc == 0, done
    assert model(guest).read_bytes() == source.read_bytes() and model(guest).stat().st_mode & 0o777 == 0o644
    assert not guest.calls("sftp")
    (path, read_only), = ran_with(guest)
    assert read_only and pathlib.Path(path).name == "server"
    # Nothing of this Mac is left in the guest's sight, and the model has no second name.
    assert [entry.name for entry in pathlib.Path(path).iterdir()] == [f".lumelift-{pathlib.Path(path).parent.name}"]
    assert source.stat().st_nlink == 1
    guest.forget_calls()
    assert run(guest, "unlock", "ci-1", "--workload", file).rc == 0
    assert not guest.calls("sftp") and not any("pull" in str(call["argv"]) for call in guest.calls("guest"))
    assert run(guest, "rollback", "ci-1").rc == 0
    assert guest.snapshot() == before and not shares(guest) and ran_with(guest) == []


def test_wrong_bytes_on_the_share_are_found(guest, tmp_path):
    before = guest.snapshot()
    file = workload(tmp_path / "w", model_size=LARGE, transfer="share")
    guest.fault("lume", match="run", nth=1, shell_before="for f in $(find host/home -name '.send-*'); do rm $f; head -c 9437184 /dev/zero > $f; done")
    done = run(guest, "unlock", "ci-1", "--workload", file)
    assert done.rc == 1 and done.error_id == "transfer-corrupt", done
    guest.clear_faults()
    assert guest.snapshot() == before and not shares(guest)


def test_a_guest_that_does_not_show_the_share(lab, tmp_path):
    lab.add_vm("ci-1", running=True, shares_visible=False, **FAST)
    lab.start()
    before = lab.snapshot()
    done = run(lab, "unlock", "ci-1", "--workload", workload(tmp_path / "w", model_size=LARGE, transfer="share"))
    assert done.rc == 1 and done.error_id == "share-not-mounted", done
    assert lab.snapshot() == before and not shares(lab)
    file = workload(tmp_path / "w2", model_size=65 * MIB)
    done = run(lab, "unlock", "ci-1", "--workload", file)
    assert done.rc == 0 and "go over SSH" in done.err, done
    assert model(lab).stat().st_size > 65 * MIB and lab.calls("sftp") and not [path for path in shares(lab) if "send" in path.name]
    assert run(lab, "rollback", "ci-1").rc == 0
    assert lab.snapshot() == before and not shares(lab)


def test_without_a_restart_a_share_is_refused_and_auto_uses_ssh(guest, tmp_path):
    assert run(guest, "unlock", "ci-1").rc == 0
    before = guest.snapshot()
    file = workload(tmp_path / "w", model_size=LARGE, transfer="share")
    done = run(guest, "unlock", "ci-1", "--workload", file)
    assert done.rc == 1 and done.error_id == "share-needs-restart" and "--restart always" in done.err, done
    assert guest.snapshot() == before and not shares(guest)
    assert run(guest, "unlock", "ci-1", "--workload", file, "--restart", "always").rc == 0
    assert not guest.calls("sftp")
    assert run(guest, "rollback", "ci-1").rc == 0
    assert not shares(guest) and ran_with(guest) == []
    assert run(guest, "unlock", "ci-1").rc == 0
    auto = workload(tmp_path / "auto", model_size=65 * MIB)
    assert run(guest, "unlock", "ci-1", "--workload", auto).rc == 0
    assert guest.calls("sftp") and ran_with(guest) == []


def test_auto_takes_the_share_for_large_models(guest, tmp_path):
    file = workload(tmp_path / "w", model_size=65 * MIB)
    assert run(guest, "unlock", "ci-1", "--workload", file).rc == 0
    assert not guest.calls("sftp") and model(guest).stat().st_size > 65 * MIB
    # R96: a Mac that falls asleep would lose the connection.
    assert len(guest.calls("caffeinate")) == 1


def test_ssh_is_taken_where_it_is_asked_for(guest, tmp_path):
    assert run(guest, "unlock", "ci-1", "--workload", workload(tmp_path / "w", model_size=65 * MIB, transfer="ssh")).rc == 0
    assert guest.calls("sftp") and ran_with(guest) == []


def test_a_file_that_stays_on_the_share(guest, tmp_path):
    before = guest.snapshot()
    file = several(tmp_path / "w", "  - from: ./weights.bin", "    mode: share")
    (tmp_path / "w" / "weights.bin").write_bytes(b"weights")
    (tmp_path / "w" / "private.txt").write_text("not asked for")
    done = run(guest, "unlock", "ci-1", "--workload", file)
    assert done.rc == 0 and f"'{PLACE}/server/weights.bin', which macOS refuses to LaunchAgents such as io.lumelift.server" in done.err, done
    assert guest.ssh("ci-1", f"cat '{PLACE}/server/weights.bin'").stdout == "weights"
    assert guest.ssh("ci-1", f"echo x >> '{PLACE}/server/weights.bin'").returncode != 0
    assert guest.ssh("ci-1", f"ls '{PLACE}/server'").stdout == "weights.bin\n"
    assert not list(guest_home(guest, "ci-1").rglob("weights.bin"))
    # It stands: a second unlock finds it without a restart.
    assert run(guest, "unlock", "ci-1", "--workload", file).rc == 0
    assert run(guest, "rollback", "ci-1").rc == 0
    assert guest.snapshot() == before and not shares(guest) and (tmp_path / "w" / "weights.bin").read_bytes() == b"weights"


@pytest.mark.parametrize("lines", [
    ["    mode: share"], ["environment: {MODEL: '/Volumes/My Shared Files/server/x'}"], ["working_directory: /Volumes/My Shared Files/server"]])
def test_an_agent_is_refused_what_is_on_a_share(guest, tmp_path, lines):
    done = run(guest, "unlock", "ci-1", "--workload", several(tmp_path / "w", *lines))
    assert done.rc == 2 and done.error_id == "share-refused-to-agents" and "io.lumelift.server" in done.err, done


@pytest.mark.parametrize("lines", [["transfer: fast"], ["    mode: link"]])
def test_words_that_are_none(guest, tmp_path, lines):
    done = run(guest, "unlock", "ci-1", "--workload", several(tmp_path / "w", *lines))
    assert done.rc == 2 and done.error_id == "workload-invalid" and "one of" in done.err, done


def test_the_user_s_own_shares_are_kept(lab, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "note").write_text("mine")
    lab.add_vm("ci-1", **FAST)
    lab.start()
    assert lab.host("lume", "run", "ci-1", "--display", "none", "--detach", "--shared-dir", f"{tmp_path}/mine:rw").returncode == 0
    file = workload(tmp_path / "w", model_size=LARGE, transfer="share")
    assert run(lab, "unlock", "ci-1", "--workload", file).rc == 0
    assert [path for path, _ in ran_with(lab)][0] == str(tmp_path / "mine") and len(ran_with(lab)) == 2
    assert lab.ssh("ci-1", f"cat '{PLACE}/mine/note'").stdout == "mine"
    assert run(lab, "unlock", "ci-1", "--workload", file, "--restart", "always").rc == 0
    assert len(ran_with(lab)) == 2 and model(lab).exists()
    assert run(lab, "rollback", "ci-1").rc == 0
    assert ran_with(lab) == [(str(tmp_path / "mine"), False)] and not shares(lab)


def test_dry_run_shows_the_share_and_makes_none(guest, tmp_path):
    file = workload(tmp_path / "w", model_size=LARGE, transfer="share")
    done = run(guest, "unlock", "ci-1", "--workload", file, "--dry-run")
    assert done.rc == 0 and "/server read-only, with a file of this Mac" in done.out, done
    assert not shares(guest)


def test_large_files_go_side_by_side(guest, tmp_path):
    before = guest.snapshot()
    file = several(tmp_path / "w", "  - from: ./second.gguf", "  - from: ./third.gguf")
    for number, name in enumerate(("second", "third")):
        (tmp_path / "w" / f"{name}.gguf").write_bytes(b"GGUF" + bytes([number]) * LARGE)
    guest.fault("sftp", delay=1)
    done = run(guest, "unlock", "ci-1", "--workload", file)
    assert done.rc == 0, done
    sessions = guest.calls("sftp")
    assert len(sessions) == 3 and abs(sessions[0]["start"] - sessions[1]["start"]) < 1
    for name in ("model", "second", "third"):
        assert model(guest).with_name(f"{name}.gguf").read_bytes() == (tmp_path / "w" / f"{name}.gguf").read_bytes()
    guest.clear_faults()
    assert run(guest, "rollback", "ci-1").rc == 0
    assert guest.snapshot() == before


def test_a_file_that_fails_stops_the_other_and_all_is_taken_back(guest, tmp_path):
    before = guest.snapshot()
    file = several(tmp_path / "w", "  - from: ./second.gguf")
    (tmp_path / "w" / "second.gguf").write_bytes(b"GGUF" + bytes(LARGE))
    guest.fault("sftp", nth=2, shell_before=f"sleep 1; echo more >> {tmp_path}/w/second.gguf; echo more >> {tmp_path}/w/model.gguf")
    guest.fault("sftp", nth=1, delay=3)
    done = run(guest, "unlock", "ci-1", "--workload", file)
    assert done.rc == 1 and done.error_id == "source-changed", done
    guest.clear_faults()
    assert guest.snapshot() == before


def test_one_session_per_connection_is_enough(lab, tmp_path):
    lab.add_vm("ci-1", running=True, sshd=["MaxSessions 1"], **FAST)
    lab.start()
    before = lab.snapshot()
    for way in ("ssh", "share"):
        done = run(lab, "unlock", "ci-1", "--workload", workload(tmp_path / way, model_size=LARGE, transfer=way))
        assert done.rc == 0, done
        assert run(lab, "rollback", "ci-1").rc == 0
        assert lab.snapshot() == before
