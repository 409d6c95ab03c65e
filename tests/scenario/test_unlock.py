"""The main job, end to end in the lab: unlock, unlock again, rollback; the assertion is on the world."""

import fcntl
import json
import os
import threading

import pytest

from product import DOMAIN, KEY, LABEL, guest_home, run, set_preference, workload

FORMER = [None, ("boolean", False), ("boolean", True), ("integer", 1), ("string", "1")]


@pytest.mark.parametrize("running", [True, False], ids=["running", "stopped"])
@pytest.mark.parametrize("former", FORMER, ids=lambda f: "absent" if f is None else f"{f[0]}-{f[1]}")
def test_rollback_gives_the_former_world_back(lab, tmp_path, former, running):
    """R105, R106, R107: the preference comes back with its exact type, a VM with its power."""
    lab.add_vm("ci-1", running=running)
    set_preference(lab, former)
    lab.start()
    before = lab.snapshot()
    done = run(lab, "unlock", "ci-1", "--workload", workload(tmp_path / "w"))
    assert done.rc == 0, done
    assert f"{DOMAIN} {KEY} boolean true" in lab.snapshot()
    undone = run(lab, "rollback", "ci-1")
    assert undone.rc == 0, undone
    assert lab.snapshot() == before


def test_the_second_unlock_changes_nothing(up, tmp_path):
    file = workload(tmp_path / "w")
    first = run(up, "--json", "unlock", "ci-1", "--workload", file)
    assert first.rc == 0 and first.json["changed"], first
    world = without_receipts(up.snapshot())
    pid = first.json["agent"]["pid"]
    second = run(up, "--json", "unlock", "ci-1", "--workload", file)
    assert second.rc == 0 and second.json["changed"] is False and second.json["steps"] == [], second
    assert second.json["agent"]["pid"] == pid
    assert without_receipts(up.snapshot()) == world
    assert "nothing to change" in run(up, "unlock", "ci-1", "--workload", file).out


def without_receipts(snapshot):
    """The probe's own receipt is written anew at every proof."""
    return "\n".join(line for line in snapshot.splitlines() if "run/probe.json" not in line and ".log" not in line)


def without_boots(snapshot):
    """A VM rolled back while another one still claims the preference was started under it; it was told so."""
    return "\n".join(line for line in snapshot.splitlines() if not line.startswith("preference at start"))


def test_answers_before_and_after(up):
    done = run(up, "--json", "unlock", "ci-1")
    assert done.rc == 0, done
    stock, unlocked = done.json["probe"]["stock"], done.json["probe"]["unlocked"]
    assert (stock["apple_family"], stock["threadgroup_memory"], stock["metal3"]) == (1005, 32768, False)
    assert unlocked["apple_family"] == 1009 and unlocked["threadgroup_memory"] == 65536 and unlocked["metal3"] is False
    assert unlocked["raw"]["device"]["families"]["1010"] is False


def test_the_minimal_profile_keeps_threadgroup_memory(up):
    done = run(up, "--json", "unlock", "ci-1", "--profile", "minimal")
    assert done.rc == 0, done
    unlocked = done.json["probe"]["unlocked"]
    assert unlocked["apple_family"] == 1007 and unlocked["threadgroup_memory"] == 32768


def test_the_running_process_is_unlocked(up, tmp_path):
    done = run(up, "--json", "unlock", "ci-1", "--workload", workload(tmp_path / "w"))
    assert done.rc == 0, done
    agent = done.json["agent"]
    assert agent["label"] == LABEL and agent["domain"] == "gui/501" and agent["library"] == "active"
    assert agent["receipt"]["pid"] == agent["pid"] and agent["receipt"]["after"]["highest_apple_family"] == 1009
    printed = up.ssh("ci-1", f"/bin/launchctl print gui/501/{LABEL}").stdout
    assert f"pid = {agent['pid']}" in printed


def test_dry_run_changes_nothing_and_says_what_it_would(up, tmp_path):
    before = up.snapshot()
    done = run(up, "--json", "unlock", "ci-1", "--workload", workload(tmp_path / "w"), "--dry-run")
    assert done.rc == 0 and done.json["dry_run"] and done.json["guest_known"], done
    kinds = [step["kind"] for step in done.json["steps"]]
    assert kinds[:3] == ["power", "preference", "power"] and kinds[-1] == "agent" and "file" in kinds
    assert up.snapshot() == before
    assert not (guest_home(up, "ci-1") / ".local").exists()
    assert run(up, "history").out == "No runs yet.\n"
    assert "would do" in run(up, "unlock", "ci-1", "--dry-run").out


def test_the_dry_run_of_a_rollback_says_what_it_would_take_back(up, tmp_path):
    nothing = run(up, "--json", "rollback", "ci-1", "--dry-run")
    assert nothing.rc == 0 and nothing.json["dry_run"] and nothing.json["changes"] is False and nothing.json["steps"] == [], nothing
    done = run(up, "--json", "unlock", "ci-1", "--workload", workload(tmp_path / "w"))
    assert done.rc == 0, done
    world = up.snapshot()
    told = run(up, "--json", "rollback", "ci-1", "--dry-run")
    assert told.rc == 0 and told.json["changes"], told
    swapped = [{**step, "before": step["after"], "after": step["before"]} if "before" in step else step for step in reversed(done.json["steps"])]
    assert told.json["steps"] == swapped
    text = run(up, "rollback", "ci-1", "--dry-run").out
    assert "would take back" in text and "true → absent" in text and "remove /" in text, text
    assert "absent → true" not in text and "put /" not in text, "what was done is not what would be done"
    assert up.snapshot() == world and run(up, "verify", "ci-1").rc == 0
    assert run(up, "rollback", "--all", "--dry-run").rc == 2


def test_the_dry_run_of_a_rollback_leaves_what_another_vm_claims(lab):
    for name in ("a", "b"):
        lab.add_vm(name, running=True, arch="x86_64")
    lab.start()
    assert run(lab, "unlock", "a").rc == 0 and run(lab, "unlock", "b").rc == 0
    told = run(lab, "--json", "rollback", "a", "--dry-run").json
    assert told["changes"] and {step["kind"] for step in told["steps"]}.isdisjoint({"preference", "power"}) and "another VM" in told["notes"][0]
    restarting = run(lab, "--json", "rollback", "a", "--dry-run", "--restart", "always").json
    assert "power" in {step["kind"] for step in restarting["steps"]}


def test_a_vm_started_after_the_preference_is_not_restarted(up):
    """`auto` restarts only what needs it."""
    assert run(up, "unlock", "ci-1").rc == 0
    boots = len(up.events("boot"))
    assert run(up, "unlock", "ci-1").rc == 0
    assert len(up.events("boot")) == boots
    assert run(up, "unlock", "ci-1", "--restart", "always").rc == 0
    assert len(up.events("boot")) == boots + 1


def test_a_vm_started_before_the_preference_is_stale_and_restarted(lab):
    """R111: two VMs run; unlocking one leaves the other on the old answer until its next start."""
    lab.add_vm("a", running=True)
    lab.add_vm("b", running=True)
    lab.start()
    assert run(lab, "unlock", "a").rc == 0
    done = run(lab, "--json", "unlock", "b", "--restart", "never")
    assert done.rc == 0, done
    boots = len(lab.events("boot"))
    assert run(lab, "unlock", "b").rc == 0
    assert len(lab.events("boot")) in (boots, boots + 1)


def test_host_preference_keep_leaves_it_alone(up):
    before = up.snapshot().splitlines()[:2]
    done = run(up, "--json", "unlock", "ci-1", "--host-preference", "keep")
    assert done.rc == 0, done
    assert done.json["preference"]["now"] == {"type": "absent"}
    assert up.snapshot().splitlines()[:2] == before
    assert len(up.events("boot")) == 1


def test_a_file_that_was_there_comes_back_with_bytes_and_mode(up):
    root = guest_home(up, "ci-1") / ".local/share/lumelift"
    root.mkdir(parents=True)
    former = root / "lumelift-probe"
    former.write_bytes(b"somebody's own\n")
    former.chmod(0o640)
    before = up.snapshot()
    assert run(up, "unlock", "ci-1").rc == 0
    assert former.read_bytes() != b"somebody's own\n"
    assert run(up, "rollback", "ci-1").rc == 0
    assert up.snapshot() == before


def test_several_unlocks_are_taken_back_one_by_one(up, tmp_path):
    """A file of the user's, replaced twice: the rollback goes back to his, not to the first replacement."""
    home = guest_home(up, "ci-1")
    (home / "models").mkdir()
    (home / "models/m.gguf").write_bytes(b"the user's own\n")
    before = up.snapshot()
    for size in (10_000, 20_000):
        file = workload(tmp_path / "w", model_size=size)
        file.write_text(file.read_text().replace("from: ./model.gguf", "from: ./model.gguf\n    to: ~/models/m.gguf").replace("model.gguf]", "~/models/m.gguf]"))
        done = run(up, "unlock", "ci-1", "--workload", file)
        assert done.rc == 0, done
    assert run(up, "rollback", "ci-1").rc == 0
    assert up.snapshot() == before


def test_two_vms_share_the_preference_and_the_last_one_restores_it(lab):
    """R111."""
    for name in ("a", "b"):
        lab.add_vm(name, running=True)
    set_preference(lab, ("string", "1"))
    lab.start()
    before = without_boots(lab.snapshot())
    assert run(lab, "unlock", "a").rc == 0
    assert run(lab, "unlock", "b").rc == 0
    kept = run(lab, "rollback", "a")
    assert kept.rc == 0 and "b still claims it" in kept.err, kept
    assert "boolean true" in lab.snapshot()
    assert run(lab, "rollback", "b").rc == 0
    assert without_boots(lab.snapshot()) == before


def test_a_preference_deleted_under_a_claim_is_set_again(lab):
    for name in ("a", "b"):
        lab.add_vm(name, running=True, arch="x86_64")
    set_preference(lab, ("boolean", False))
    lab.start()
    before = without_boots(lab.snapshot())
    assert run(lab, "unlock", "a").rc == 0
    set_preference(lab, None)
    assert run(lab, "unlock", "b").rc == 0
    assert run(lab, "rollback", "a").rc == 0
    assert run(lab, "rollback", "b").rc == 0
    assert without_boots(lab.snapshot()) == before


def test_rollback_host_restores_the_preference_alone(up):
    assert run(up, "unlock", "ci-1").rc == 0
    done = run(up, "rollback", "--host")
    assert done.rc == 0 and "restored to absent" in done.out and "ci-1" in done.out, done
    assert KEY not in up.snapshot()
    assert "host preference is absent now" in run(up, "status").out
    assert run(up, "rollback", "ci-1").rc == 0


def test_rollback_all(lab):
    for name in ("a", "b"):
        lab.add_vm(name, running=True)
    lab.start()
    before = without_boots(lab.snapshot())
    assert run(lab, "unlock", "a").rc == 0
    assert run(lab, "unlock", "b").rc == 0
    done = run(lab, "rollback", "--all")
    assert done.rc == 0, done
    assert without_boots(lab.snapshot()) == before


def test_rollback_starts_a_vm_that_was_switched_off_and_stops_it_again(up):
    assert run(up, "unlock", "ci-1").rc == 0
    assert up.host("lume", "stop", "ci-1").returncode == 0
    done = run(up, "rollback", "ci-1")
    assert done.rc == 0, done
    world = up.snapshot()
    assert "status stopped" in world and "lumelift" not in world and KEY not in world


def test_rollback_without_anything_to_take_back(up):
    """R33."""
    before = up.snapshot()
    for _ in range(2):
        done = run(up, "rollback", "ci-1")
        assert done.rc == 0 and "nothing to take back" in done.out, done
    assert up.snapshot() == before


def test_one_connection_for_each_boot_of_the_guest(up, tmp_path):
    done = run(up, "--json", "unlock", "ci-1", "--workload", workload(tmp_path / "w"))
    assert done.rc == 0 and done.json["ssh_connections"] == 2, done
    again = run(up, "--json", "unlock", "ci-1", "--workload", workload(tmp_path / "w"))
    assert again.json["ssh_connections"] == 1


def test_status_history_and_probe_only_read(up, tmp_path):
    assert run(up, "unlock", "ci-1", "--workload", workload(tmp_path / "w")).rc == 0
    world = up.snapshot()
    status = run(up, "--json", "status")
    assert status.rc == 0 and status.json["preference"]["claims"] == ["ci-1"], status
    line = status.json["vms"][0]
    assert line["unlocked"] == "yes" and line["agents"][0]["running"], status
    assert run(up, "--json", "history").json["runs"][0]["state"] == "committed"
    assert up.snapshot() == world
    (guest_home(up, "ci-1") / ".local/share/lumelift/server/model.gguf").write_bytes(b"changed")
    drifted = run(up, "--json", "status", "ci-1").json["vms"][0]
    assert drifted["unlocked"] == "drifted" and "model.gguf was changed" in drifted["differences"][0]


def test_probe_shows_both_sides_and_leaves_nothing(up):
    before = up.snapshot()
    done = run(up, "probe", "ci-1")
    assert done.rc == 0 and "Apple 9 (1009)" in done.out and "65536 B" in done.out, done
    assert up.snapshot() == before
    both = run(up, "--json", "probe", "ci-1").json
    assert both["as_promised"] and both["stock"]["device"]["families"]["1009"] is False


def test_json_is_one_object_on_stdout(up):
    done = run(up, "--json", "unlock", "nobody")
    assert done.rc == 2
    assert json.loads(done.out)["error"]["id"] == "vm-unknown"


def test_doctor_gives_each_finding_an_id(up):
    done = run(up, "--json", "doctor", "ci-1")
    assert done.rc == 0, done
    levels = {finding["id"]: finding["level"] for finding in done.json["findings"]}
    assert {"host-chip", "kit", "lume", "host-preference", "vm-state", "guest-login", "guest-domain", "guest-disk"} <= set(levels)
    assert all(finding["evidence"] for finding in done.json["findings"])


def test_doctor_says_of_a_silent_df_that_it_is_silent(up):
    fault = up.fault("df", exit=1, stderr="df: no such volume\n")
    done = run(up, "--json", "doctor", "ci-1")
    assert done.rc == 0 and up.fault_count(fault), done
    disk = next(finding for finding in done.json["findings"] if finding["id"] == "guest-disk")
    assert disk["level"] == "warning" and "not known" in disk["evidence"], disk


def test_a_lock_that_its_former_process_still_holds_is_waited_for(lab):
    """lume lists a VM as stopped while the process that ran it is still about to end, with the VM's lock."""
    lab.add_vm("ci-1", running=False)
    lab.start()
    holder = open(os.path.join(lab.world.home, ".lume", "ci-1", "config.json"), "rb")
    fcntl.flock(holder, fcntl.LOCK_EX)
    release = threading.Timer(1.5, holder.close)
    release.start()
    done = run(lab, "unlock", "ci-1")
    release.join()
    assert done.rc == 0, done
    assert len(lab.events("boot")) == 1


def test_what_was_left_alone_is_shown_again(up, tmp_path):
    assert run(up, "unlock", "ci-1").rc == 0
    (guest_home(up, "ci-1") / ".local/share/lumelift/mine.txt").write_text("mine")
    assert run(up, "rollback", "ci-1").rc == 3
    line = run(up, "--json", "status", "ci-1").json["vms"][0]
    assert "lumelift history ci-1" in line["note"] and line["unlocked"] == "no", line
    assert "lumelift history ci-1" in run(up, "status").out
    told = run(up, "history", "ci-1").out
    assert "left alone: make folder" in told and ".local/share/lumelift" in told, told
    assert run(up, "unlock", "ci-1").rc == 0 and "history" not in run(up, "--json", "status", "ci-1").json["vms"][0]["note"]
