"""A rollback that cannot finish leaves a world that the next one puts right: what came before a step that could not be undone waits for it."""

import pytest

from product import guest_home, run, workload

QUICK = {"boot_delay": 0.1, "shutdown_delay": 0.1, "ip_delay": 0.1, "stop_delay": 0.1}


def raised(lab, **options):
    lab.add_vm("ci-1", **{**QUICK, "running": True, **options})
    lab.start()
    return lab.snapshot()


def finished(lab, first):
    done = run(lab, "rollback", "ci-1")
    assert done.rc == 0 and lab.snapshot() == first, (done, lab.snapshot())
    assert "nothing to take back" in run(lab, "rollback", "ci-1").out


def test_a_login_that_was_wrong_once(lab):
    """The VM is stopped and started by turns: seen running, the start that could not be undone is no sign that the stop was."""
    first = raised(lab)
    assert run(lab, "unlock", "ci-1").rc == 0
    done = run(lab, "rollback", "ci-1", "--user", "lumw")
    assert done.rc == 3 and "waits for what came after it" in done.out, done
    assert len(lab.events("hard-stop")) == 0
    finished(lab, first)


@pytest.mark.parametrize("command", ["rollback", "unlock"])
def test_a_login_that_was_wrong_once_after_a_crash(lab, tmp_path, command):
    first = raised(lab)
    lab.fault("guest", match="'--ceiling'", nth=1, kill_parent="before")
    assert run(lab, "unlock", "ci-1", "--workload", workload(tmp_path / "w")).rc == -9
    lab.clear_faults()
    done = run(lab, command, "ci-1", "--user", "lumw")
    assert done.rc == 3, done
    finished(lab, first)


def test_a_stop_that_failed_once(lab):
    first = raised(lab, sudo="none")
    assert run(lab, "unlock", "ci-1", "--restart", "always").rc == 0
    lab.fault("lume", match="stop", nth=1, exit=1, stderr="no\n")
    assert run(lab, "rollback", "ci-1").rc == 3
    lab.clear_faults()
    finished(lab, first)


def test_a_file_of_two_unlocks_that_could_not_be_put_back_once(lab, tmp_path):
    """The older unlock's undo would take the newer file for somebody else's."""
    first = raised(lab)
    for folder, size in (("a", 200_000), ("b", 1_000)):
        assert run(lab, "unlock", "ci-1", "--workload", workload(tmp_path / folder, size), "--host-preference", "keep").rc == 0
    lab.fault("guest", match="former-missing", nth=1, exit=1)
    done = run(lab, "rollback", "ci-1")
    assert done.rc == 3 and "changed by somebody else" not in done.out, done
    lab.clear_faults()
    finished(lab, first)


def test_a_folder_whose_file_could_not_be_removed_once(lab, tmp_path):
    first = raised(lab)
    assert run(lab, "unlock", "ci-1", "--workload", workload(tmp_path / "w"), "--host-preference", "keep").rc == 0
    folder = guest_home(lab, "ci-1") / ".local/share/lumelift/server"
    mode = folder.stat().st_mode & 0o7777
    assert lab.ssh("ci-1", "chmod 500 .local/share/lumelift/server").returncode == 0
    done = run(lab, "rollback", "ci-1")
    assert done.rc == 3 and "left alone" not in done.out, done
    folder.chmod(mode)
    finished(lab, first)


def test_a_former_file_that_is_lost(lab, tmp_path):
    """Its way out is told: the file back from a backup, or nothing in its place."""
    raised(lab)
    home = guest_home(lab, "ci-1")
    model = home / ".local/share/lumelift/server/model.gguf"
    assert lab.ssh("ci-1", "mkdir -p .local/share/lumelift/server; printf precious > .local/share/lumelift/server/model.gguf").returncode == 0
    first = lab.snapshot()
    mode = model.stat().st_mode & 0o7777
    assert run(lab, "unlock", "ci-1", "--workload", workload(tmp_path / "w"), "--host-preference", "keep").rc == 0
    for kept in home.rglob(".*lumelift-before-*"):
        kept.unlink()
    for command in ("rollback", "unlock"):
        done = run(lab, command, "ci-1")
        assert done.rc == 3 and "from a backup of yours" in done.out + done.err, done
    model.write_text("precious")
    model.chmod(mode)
    finished(lab, first)


@pytest.mark.parametrize("words", [["unlock", "ci-1"], ["power", "ci-1", "on"]])
def test_a_guest_that_refuses_the_login_after_its_start_keeps_its_plug(lab, words):
    """A refusal is an answer: such a guest may be well, and is not stopped hard because of a name that was mistyped."""
    first = raised(lab, running=False)
    done = run(lab, *words, "--user", "lumw")
    assert done.rc in (1, 3) and done.error_id == "guest-auth-failed" and "plug" not in done.err, done
    assert len(lab.events("hard-stop")) == 0
    if done.rc == 3:
        finished(lab, first)
    else:
        assert run(lab, "power", "ci-1", "off").rc == 0
