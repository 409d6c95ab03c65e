"""`verify`: green when all is as it was proven, red for each single thing that is broken on purpose. R74."""

import time
import json

import pytest

from product import BUILD, LABEL, Lab, guest_home, run, set_preference, workload


@pytest.fixture
def lab(tmp_path):
    with Lab(tmp_path / "lab", build=BUILD) as made:
        made.add_vm("ci-1", running=True, arch="x86_64")
        made.start()
        assert run(made, "unlock", "ci-1", "--workload", workload(tmp_path / "w")).rc == 0
        yield made


def failed(lab):
    """The ids of the failed checks; the exit status and the list must agree."""
    done = run(lab, "--json", "verify", "ci-1")
    assert done.rc in (0, 5), done
    ids = sorted({check["id"] for check in done.json["checks"] if not check["passed"]})
    assert done.json["verified"] == (done.rc == 0) == (not ids), done
    return ids


def receipt(lab):
    return guest_home(lab, "ci-1") / ".local/share/lumelift/server/run/receipt.json"


def break_file(lab):
    (guest_home(lab, "ci-1") / ".local/share/lumelift/server/model.gguf").write_bytes(b"other")
    return ["file"]


def break_mode(lab):
    (guest_home(lab, "ci-1") / ".local/share/lumelift/lumelift-probe").chmod(0o700)
    return ["file"]


def break_library(lab):
    (guest_home(lab, "ci-1") / ".local/share/lumelift/liblumelift-metal.dylib").unlink()
    return ["agent-library", "answers", "file"]


def break_preference(lab):
    set_preference(lab, ("boolean", False))
    return ["preference"]


def break_build(lab):
    lab.change_vm("ci-1", build="25G99")
    return ["guest-build"]


def break_agent(lab):
    assert lab.ssh("ci-1", f"/bin/launchctl bootout gui/501/{LABEL}").returncode == 0
    return ["agent-running"]


def break_receipt_pid(lab):
    text = json.loads(receipt(lab).read_text())
    receipt(lab).write_text(json.dumps({**text, "pid": text["pid"] + 1}))
    return ["agent-receipt"]


def break_receipt_age(lab):
    text = json.loads(receipt(lab).read_text())
    receipt(lab).write_text(json.dumps({**text, "started": "1000000000.000000"}))
    return ["agent-receipt"]


def break_receipt(lab):
    receipt(lab).unlink()
    return ["agent-receipt"]


def break_mapping(lab):
    """The receipt says yes, the process's own mappings do not."""
    lab.fault("lsof", exit=0, stdout="p1\nftxt\nn/bin/other\n")
    return ["agent-library"]


BREAKS = [break_file, break_mode, break_library, break_preference, break_build, break_agent, break_receipt_pid, break_receipt_age,
          break_receipt, break_mapping]


@pytest.mark.parametrize("damage", BREAKS, ids=lambda f: f.__name__)
def test_each_single_thing_that_is_broken_turns_it_red(lab, damage):
    assert failed(lab) == []
    expected = damage(lab)
    assert failed(lab) == expected


def test_r59_one_that_launchd_starts_again_while_it_is_looked_at_is_red(tmp_path):
    """Ended by a signal between two looks; the new process alone would look well."""
    with Lab(tmp_path / "lab", build=BUILD) as lab:
        lab.add_vm("ci-1", running=True, arch="x86_64", throttle_scale=0)
        lab.start()
        assert run(lab, "unlock", "ci-1", "--workload", workload(tmp_path / "w", keep_alive="true")).rc == 0
        assert failed(lab) == []
        pid = run(lab, "--json", "agents", "ci-1").json["agents"][0]["pid"]
        lab.fault("guest", match="'--ceiling'", nth=1, shell_before=f"kill -9 {pid}")
        done = run(lab, "--json", "verify", "ci-1")
        lab.clear_faults()
        red = [check for check in done.json["checks"] if not check["passed"]]
        assert done.rc == 5 and [check["id"] for check in red] == ["agent-running"], done
        assert "does not last: 2 starts so far, 1 of them since the first look; last ended by signal" in red[0]["evidence"], red
        assert run(lab, "--json", "agents", "ci-1").json["agents"][0]["pid"] != pid


def test_a_workload_that_runs_stock_is_seen_twice(lab):
    """Restarted by hand without the variables: it runs, and is not unlocked."""
    plist = guest_home(lab, "ci-1") / f"Library/LaunchAgents/{LABEL}.plist"
    text = plist.read_text()
    plist.write_text(text.replace("DYLD_INSERT_LIBRARIES", "DYLD_NOTHING"))
    assert lab.ssh("ci-1", f"/bin/launchctl bootout gui/501/{LABEL}").returncode == 0
    assert lab.ssh("ci-1", f"/bin/launchctl bootstrap gui/501 {plist}").returncode == 0
    assert failed(lab) == ["agent-library", "agent-receipt", "file"]


def test_a_vm_that_is_off_or_was_never_unlocked_is_red(lab):
    assert lab.host("lume", "stop", "ci-1").returncode == 0
    assert failed(lab) == ["vm-running"]
    assert run(lab, "rollback", "ci-1").rc == 0
    assert failed(lab) == ["unlocked"]


def test_a_guest_that_was_booted_before_the_preference_is_red(lab):
    assert run(lab, "rollback", "ci-1").rc == 0
    time.sleep(5)  # the boot must be older than what two clocks of whole seconds may differ by
    assert run(lab, "unlock", "ci-1", "--restart", "never").rc == 0
    assert failed(lab) == ["boot"]


def test_self_test_shows_that_a_stock_process_is_refused(lab):
    done = run(lab, "--json", "verify", "ci-1", "--self-test")
    assert done.rc == 0 and done.json["verified"], done
    evidence = {check["id"]: check["evidence"] for check in done.json["checks"]}
    assert "refused" in evidence["self-test-agent-receipt"] and "refused" in evidence["self-test-agent-library"], done
    assert "the process is pid" in evidence["self-test-agent-receipt"]
    assert "not among the" in evidence["self-test-agent-library"], "refused because it was seen, not because nothing was"
    assert {"unlocked", "file", "answers"} <= set(evidence), "and then it verifies"


def test_self_test_does_not_make_a_stock_vm_green(lab):
    assert run(lab, "rollback", "ci-1").rc == 0
    done = run(lab, "--json", "verify", "ci-1", "--self-test")
    assert done.rc == 5 and not done.json["verified"], done
    assert [check["id"] for check in done.json["checks"] if not check["passed"]] == ["unlocked"]


def test_another_profile_is_what_verify_asks_for_from_then_on(lab):
    done = run(lab, "--json", "unlock", "ci-1", "--profile", "minimal")
    assert done.rc == 0 and not done.json["changed"], done
    evidence = {check["id"]: check["evidence"] for check in run(lab, "--json", "verify", "ci-1").json["checks"]}
    assert "'minimal'" in evidence["answers"], evidence
    again = run(lab, "--json", "history").json["runs"]
    assert run(lab, "unlock", "ci-1", "--profile", "minimal").rc == 0
    assert run(lab, "--json", "history").json["runs"] == again, "nothing new to record"


def test_verify_changes_nothing_but_the_probes_receipt(lab):
    def world():
        return "\n".join(line for line in lab.snapshot().splitlines() if "run/probe.json" not in line and ".log" not in line)
    before = world()
    assert run(lab, "verify", "ci-1").rc == 0
    assert world() == before
