"""Many VMs of one Mac by one file: waves under the limit of guests, canaries, budgets, hooks, plans, interrupted runs."""

import json
import os
import pathlib
import pty
import signal
import subprocess
import time

import pytest

from product import BUILD, DOMAIN, KEY, LUMELIFT, Lab, command, run, start, workload

QUICK = {"arch": "x86_64", "boot_delay": 0.05, "shutdown_delay": 0.05, "ip_delay": 0.05}
TRUE = f"{DOMAIN} {KEY} boolean true"


def fleet_file(folder, text, name="fleet.yaml"):
    path = pathlib.Path(folder) / name
    path.write_text("schema: 1\n" + text)
    return path


def every(folder, more=""):
    return fleet_file(folder, f"{more}vms:\n  - match: '*'\n")


def rows(result):
    return {row["vm"]: row for row in result.json["vms"]}


def most_running(lab):
    """The most guests that ran at the same time, by the lab's own record of boots and ends."""
    now, most = set(), 0
    for event in lab.events():
        if event["event"] == "boot":
            now.add(event["vm"])
        elif event["event"] in ("clean-shutdown", "hard-stop"):
            now.discard(event["vm"])
        most = max(most, len(now))
    return most


def least_running(lab, names):
    """The fewest of these that ran at any time after all of them did."""
    now, least = set(), None
    for event in lab.events():
        if event["event"] == "boot":
            now.add(event["vm"])
        elif event["event"] in ("clean-shutdown", "hard-stop"):
            now.discard(event["vm"])
        ours = len(now & set(names))
        if least is not None or ours == len(names):
            least = ours if least is None else min(least, ours)
    return least


def without_boots(snapshot):
    return "\n".join(line for line in snapshot.splitlines() if not line.startswith("preference at start"))


def wait_for(condition, process=None, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.02)


def plain_list(lab):
    return [{"name": vm.name, "status": "running" if vm.run_state() else "stopped"} for vm in lab.world.vms()]


@pytest.fixture
def free(tmp_path):
    """A lab without the limit of two guests."""
    with Lab(tmp_path / "lab", build=BUILD, guest_limit=None) as made:
        yield made


@pytest.fixture
def ten(lab):
    for number in range(10):
        lab.add_vm(f"ci-{number}", **QUICK)
    return lab.start()


def test_r126_ten_vms_under_the_limit_never_show_a_third_running_guest(ten, tmp_path):
    before, file = ten.snapshot(), every(tmp_path)
    done = run(ten, "--json", "fleet", "apply", "-f", file, "--jobs", "8", timeout=600)
    assert done.rc == 0 and done.json["changed"], done
    assert {row["result"] for row in done.json["vms"]} == {"changed"} and len(done.json["vms"]) == 10
    assert {row["now"] for row in done.json["vms"]} == {"stopped"}
    assert len(ten.events("boot")) == 10 and most_running(ten) <= 2 and not ten.events("limit-reached")
    writes = [call for call in ten.calls("defaults") if call["argv"][:1] == ["write"]]
    assert len(writes) == 1, writes
    assert TRUE in ten.snapshot()
    again = run(ten, "--json", "fleet", "apply", "-f", file, timeout=300)
    assert again.rc == 0 and not again.json["changed"] and len(ten.events("boot")) == 10, again
    back = run(ten, "--json", "fleet", "rollback", "-f", file, "--jobs", "8", timeout=600)
    assert back.rc == 0 and back.json["changed"], back
    assert most_running(ten) <= 2 and not ten.events("limit-reached")
    assert without_boots(ten.snapshot()) == without_boots(before)


def test_another_profile_is_a_change_once(lab, tmp_path):
    lab.add_vm("ci-1", running=True, **QUICK)
    lab.start()
    assert run(lab, "fleet", "apply", "-f", every(tmp_path)).rc == 0
    file = every(tmp_path, "defaults: { profile: minimal }\n")
    assert not run(lab, "--json", "fleet", "status", "-f", file).json["vms"][0]["as_wanted"]
    plan = run(lab, "--json", "fleet", "plan", "-f", file)
    assert [(change["resource"], change["after"]) for change in plan.json["resources"]] == [("profile", "minimal")], plan
    assert run(lab, "fleet", "apply", "-f", file).rc == 0
    assert run(lab, "--json", "fleet", "plan", "-f", file).json["resources"] == []
    assert run(lab, "--json", "fleet", "status", "-f", file).json["vms"][0]["as_wanted"]
    checks = {check["id"]: check["evidence"] for check in run(lab, "--json", "verify", "ci-1").json["checks"]}
    assert "'minimal'" in checks["answers"], checks


def test_what_serves_makes_room_one_at_a_time_and_serves_again(lab, tmp_path):
    for name in ("ci-1", "ci-2"):
        lab.add_vm(name, running=True, **QUICK)
    for name in ("ci-3", "ci-4"):
        lab.add_vm(name, **QUICK)
    lab.start()
    log = tmp_path / "hooks"
    script = tmp_path / "hook"
    script.write_text(f"#!/bin/sh\necho $1 $LUMELIFT_VM $2 >> {log}\n")
    script.chmod(0o755)
    file = every(tmp_path, "defaults:\n  before_stop: [./hook, drain, \"${vm}\"]\n  after_start: [./hook, resume, \"${vm}\"]\n")
    done = run(lab, "--json", "fleet", "apply", "-f", file, "--keep-ready", "1", timeout=300)
    assert done.rc == 0, done
    assert least_running(lab, ["ci-1", "ci-2"]) == 1 and most_running(lab) == 2 and not lab.events("limit-reached")
    assert {vm["name"]: vm["status"] for vm in plain_list(lab)} == {"ci-1": "running", "ci-2": "running", "ci-3": "stopped", "ci-4": "stopped"}
    lines = log.read_text().splitlines()
    # Each was restarted once, one was put to sleep once for the two that were off.
    assert sorted(lines).count("drain ci-1 ci-1") + sorted(lines).count("drain ci-2 ci-2") == 3, lines
    assert sum(line.startswith("drain") for line in lines) == sum(line.startswith("resume") for line in lines) == 3, lines
    assert not (pathlib.Path(lab.home) / ".local/state/lumelift/fleet-run.json").exists()


@pytest.mark.parametrize("command, status", [("./hook", 0), ("/usr/bin/false", 1)])
def test_after_start_alone_runs_once_the_vm_is_up_again(lab, tmp_path, command, status):
    lab.add_vm("ci-1", running=True, **QUICK)
    lab.start()
    log = tmp_path / "hooks"
    (tmp_path / "hook").write_text(f"#!/bin/sh\necho $LUMELIFT_VM >> {log}\n")
    (tmp_path / "hook").chmod(0o755)
    file = every(tmp_path, f"defaults:\n  after_start: [{command}]\n")
    done = run(lab, "--json", "fleet", "apply", "-f", file, timeout=300)
    assert done.rc == status, done
    if status == 0:
        assert log.read_text() == "ci-1\n"
        assert run(lab, "fleet", "rollback", "-f", file, timeout=300).rc == 0
        assert log.read_text() == "ci-1\nci-1\n"


def test_where_all_must_serve_nothing_is_stopped(lab, tmp_path):
    for name in ("ci-1", "ci-2"):
        lab.add_vm(name, running=True, **QUICK)
    lab.add_vm("ci-3", **QUICK)
    lab.start()
    before = lab.snapshot()
    done = run(lab, "--json", "fleet", "apply", "-f", every(tmp_path), "--keep-ready", "2")
    assert done.rc == 4 and {row["result"] for row in done.json["vms"]} == {"skipped"}, done
    assert "fewer than 2 serving" in rows(done)["ci-1"]["note"] and "no room" in rows(done)["ci-3"]["note"]
    assert lab.snapshot() == before


def test_a_plan_shows_each_change_and_a_saved_one_is_refused_when_the_world_moved(free, tmp_path):
    free.add_vm("ci-1", running=True, **QUICK)
    free.add_vm("ci-2", **QUICK)
    free.start()
    before, file, saved = free.snapshot(), every(tmp_path), tmp_path / "plan.json"
    seen = run(free, "--json", "fleet", "plan", "-f", file, "--exit-code", "--out", saved)
    assert seen.rc == 2 and seen.json["changes"], seen
    resources = seen.json["resources"]
    assert resources[0] == {"vm": None, "resource": "preference", "name": KEY, "before": "absent", "after": "true"}
    assert {"vm": "ci-1", "resource": "power", "name": "power", "before": "running", "after": "running, restarted"} in resources
    assert any(one["vm"] == "ci-1" and one["resource"] == "file" and one["name"].endswith("/lumelift-probe") for one in resources)
    assert any(one["vm"] == "ci-2" and one["resource"] == "guest" for one in resources)
    assert free.snapshot() == before
    text = run(free, "fleet", "plan", "-f", file)
    assert text.rc == 0 and "  - absent\n  + true\n" in text.out and "2 VMs: 2 to change, 0 as wanted" in text.out, text

    free.boot("ci-2")
    moved = run(free, "--json", "fleet", "apply", "-f", file, "--plan", saved)
    assert moved.rc == 2 and moved.error_id == "plan-outdated" and any("ci-2" in line for line in moved.json["error"]["details"]), moved
    free.host("lume", "stop", "ci-2")
    free.preference(False, "boolean")
    moved = run(free, "--json", "fleet", "apply", "-f", file, "--plan", saved)
    assert moved.rc == 2 and moved.error_id == "plan-outdated", moved
    free.preference(None)
    file.write_text(file.read_text() + "# another text\n")
    moved = run(free, "--json", "fleet", "apply", "-f", file, "--plan", saved)
    assert moved.rc == 2 and moved.error_id == "plan-outdated", moved
    assert without_boots(free.snapshot()) == without_boots(before)
    assert run(free, "fleet", "plan", "-f", file, "--out", saved).rc == 0
    assert run(free, "fleet", "apply", "-f", file, "--plan", saved).rc == 0
    after = run(free, "--json", "fleet", "plan", "-f", file, "--exit-code")
    assert after.rc == 0 and not after.json["changes"] and after.json["resources"] == [], after


def test_one_failure_does_not_stop_the_others_and_the_worst_status_counts(free, tmp_path):
    free.add_vm("ci-1", password="other", keys=False, running=True, **QUICK)
    for name in ("ci-2", "ci-3"):
        free.add_vm(name, running=True, **QUICK)
    free.add_vm("ci-4", run_fails="Failed to start: no such disk", **QUICK)
    free.start()
    free.preference(True, "boolean")
    done = run(free, "fleet", "apply", "-f", every(tmp_path, "guest_limit: 8\n"), "--jobs", "2")
    assert done.rc == 1, done
    table = {line.split()[0]: line for line in done.out.splitlines() if line.startswith("ci-")}
    assert "failed" in table["ci-1"] and "guest-auth-failed" in table["ci-1"], done
    assert "failed" in table["ci-4"] and "vm-start-failed" in table["ci-4"] and "stopped" in table["ci-4"], done
    assert "changed" in table["ci-2"] and "changed" in table["ci-3"], done
    assert "4 VMs: 2 failed, 2 changed" in done.out


def test_a_canary_that_fails_leaves_all_others_untouched(free, tmp_path):
    free.add_vm("ci-1", keys=False, password="other", running=True, **QUICK)
    free.add_vm("ci-2", running=True, **QUICK)
    free.add_vm("ci-3", **QUICK)
    free.start()
    before = free.snapshot()
    file = every(tmp_path)
    done = run(free, "--json", "fleet", "apply", "-f", file, "--canary", "1", "--jobs", "3")
    table = rows(done)
    assert done.rc != 0 and table["ci-1"]["result"] == "failed", done
    for name in ("ci-2", "ci-3"):
        assert table[name]["result"] == "skipped" and "canary ci-1 failed" in table[name]["note"], done
    assert free.snapshot() == before


@pytest.mark.parametrize("words, tried", [(("--fail-fast",), 1), (("--max-fail", "1"), 2), ((), 4)])
def test_a_failure_budget(free, tmp_path, words, tried):
    for number in range(4):
        free.add_vm(f"ci-{number}", run_fails="Failed to start: no such disk", **QUICK)
    free.start()
    before = free.snapshot()
    done = run(free, "--json", "fleet", "apply", "-f", every(tmp_path, "guest_limit: 8\n"), "--jobs", "1", *words)
    results = [row["result"] for row in done.json["vms"]]
    assert done.rc == 1 and results.count("failed") == tried and results.count("skipped") == 4 - tried, done
    assert free.snapshot() == before


def test_a_vm_in_use_is_not_stopped_unless_told(up, tmp_path):
    session = subprocess.Popen(up.ssh_command("ci-1", "sleep 300"), stdin=subprocess.DEVNULL)
    try:
        wait_for(lambda: "sleep 300" in up.ssh("ci-1", "ps -axo pid=,ppid=,command=").stdout)
        before = up.snapshot()
        file = every(tmp_path)
        done = run(up, "--json", "fleet", "apply", "-f", file)
        row = rows(done)["ci-1"]
        assert done.rc == 4 and row["error"]["id"] == "vm-in-use", done
        assert row["error"]["details"][0].startswith("SSH session of lume (notty), pid "), done
        assert up.snapshot() == before and session.poll() is None
        told = run(up, "--json", "fleet", "apply", "-f", file, "--stop-busy")
        assert told.rc == 0 and rows(told)["ci-1"]["result"] == "changed", told
        assert session.wait(timeout=20) != 0
    finally:
        session.kill()
        session.wait()


def test_a_running_workload_is_not_stopped_unless_told(lab, tmp_path):
    lab.add_vm("ci-1", running=True, **QUICK)
    lab.start()
    file = every(tmp_path, f"defaults: {{ workloads: [{workload(tmp_path / 'w')}] }}\n")
    assert run(lab, "fleet", "apply", "-f", file).rc == 0
    assert rows(run(lab, "--json", "fleet", "apply", "-f", file))["ci-1"]["result"] == "unchanged"
    lab.preference(None)  # so that a restart is needed
    done = run(lab, "--json", "fleet", "apply", "-f", file)
    assert done.rc == 4 and rows(done)["ci-1"]["error"]["details"][0].startswith("workload io.lumelift.server, pid "), done
    assert run(lab, "fleet", "apply", "-f", file, "--stop-busy").rc == 0
    status = run(lab, "--json", "fleet", "status", "-f", file)
    one = rows_by_name(status)["ci-1"]
    assert one["unlocked"] == "yes" and one["as_wanted"], status
    checked = run(lab, "--json", "fleet", "verify", "-f", file)
    assert checked.rc == 0 and rows(checked)["ci-1"]["result"] == "verified", checked


def rows_by_name(result):
    return {row["name"]: row for row in result.json["vms"]}


def test_a_hook_that_fails_leaves_the_vm_alone(up, tmp_path):
    before = up.snapshot()
    file = every(tmp_path, "defaults: { before_stop: [sh, -c, \"echo still busy >&2; exit 3\"] }\n")
    done = run(up, "--json", "fleet", "apply", "-f", file)
    error = rows(done)["ci-1"]["error"]
    assert done.rc == 1 and error["id"] == "hook-failed" and "still busy" in error["details"][0], done
    assert up.snapshot() == before and len(up.events("boot")) == 1


def test_verify_looks_at_vms_that_are_off_only_when_told(lab, tmp_path):
    for name in ("ci-1", "ci-2", "ci-3"):
        lab.add_vm(name, **QUICK)
    lab.start()
    file = every(tmp_path)
    assert run(lab, "fleet", "apply", "-f", file, timeout=300).rc == 0
    done = run(lab, "--json", "fleet", "verify", "-f", file)
    assert done.rc == 0 and {row["result"] for row in done.json["vms"]} == {"skipped"} and len(lab.events("boot")) == 3, done
    done = run(lab, "--json", "fleet", "verify", "-f", file, "--recheck", timeout=300)
    assert done.rc == 0 and {row["result"] for row in done.json["vms"]} == {"verified"}, done
    assert most_running(lab) <= 2 and len(lab.events("boot")) == 6
    assert {vm["status"] for vm in plain_list(lab)} == {"stopped"}


def test_ctrl_c_takes_back_what_is_under_way_and_begins_nothing_more(ten, tmp_path):
    before, file = ten.snapshot(), every(tmp_path)
    process = start(ten, "fleet", "apply", "-f", file, start_new_session=True)
    wait_for(lambda: len(ten.events("boot")) >= 3, process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130 and "interrupted" in err, out + err
    boots = len(ten.events("boot"))
    assert "not tried: interrupted" in out and boots < 10 and most_running(ten) <= 2, out
    assert {vm["status"] for vm in plain_list(ten)} == {"stopped"}
    # The same command goes on where it was.
    done = run(ten, "--json", "fleet", "apply", "-f", file, timeout=600)
    assert done.rc == 0 and [row["result"] for row in done.json["vms"]].count("unchanged") >= 1, done
    assert run(ten, "fleet", "rollback", "-f", file, "--jobs", "8", timeout=600).rc == 0
    assert without_boots(ten.snapshot()) == without_boots(before)


def kill_all(lab, process):
    """The fleet run and every child of its, as a power cut would."""
    from world import descendants
    own = [process.pid]
    for pid, _ in descendants(process.pid):
        try:
            if os.path.realpath(f"/proc/{pid}/exe") == str(LUMELIFT.resolve()):
                own.append(pid)
        except OSError:
            pass
    for pid in own:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.communicate()


@pytest.mark.parametrize("whom", ["the run alone", "its children too"])
def test_a_killed_run_is_finished_by_the_next_one(lab, tmp_path, whom):
    lab.add_vm("ci-0", running=True, **QUICK)
    lab.add_vm("dev", running=True, **QUICK)
    for number in (1, 2, 3):
        lab.add_vm(f"ci-{number}", **{**QUICK, "boot_delay": 1})
    lab.start()
    before = lab.snapshot()
    file = fleet_file(tmp_path, "vms:\n  - match: 'ci-*'\n")
    process = start(lab, "fleet", "apply", "-f", file)
    # ci-0 has been put to sleep to make room, and the first of the others boots.
    wait_for(lambda: any(event["event"] == "boot" and event["vm"] in ("ci-1", "ci-2", "ci-3") for event in lab.events()), process)
    if whom == "the run alone":
        process.kill()
        process.communicate()
    else:
        kill_all(lab, process)
    assert not lab.vm("ci-0").run_state()
    done = run(lab, "--json", "fleet", "apply", "-f", file, timeout=300)
    assert done.rc == 0, done
    assert {vm["name"]: vm["status"] for vm in plain_list(lab)} == {"ci-0": "running", "dev": "running", "ci-1": "stopped", "ci-2": "stopped", "ci-3": "stopped"}
    assert most_running(lab) <= 2 and not lab.events("limit-reached")
    assert run(lab, "fleet", "rollback", "-f", file, timeout=300).rc == 0
    assert without_boots(lab.snapshot()) == without_boots(before)


def test_wrong_files_touch_nothing(up, tmp_path):
    before = up.snapshot()
    cases = [("vms:\n  - name: ci-1\n    profil: tested\n", "fleet-invalid", "fleet.yaml:4:5: unknown key 'profil'; did you mean 'profile'?"),
             ("vms:\n  - name: ci-9\n", "vm-unknown", "fleet.yaml:3:5: lume knows no VM named 'ci-9'"),
             ("vms:\n  - name: ci-1\n    profile: nope\n", "profile-unknown", "there is no profile named 'nope'"),
             ("vms:\n  - name: ci-1\n    workloads: [gone.yaml]\n", "file-unreadable", "gone.yaml")]
    for text, error_id, words in cases:
        done = run(up, "--json", "fleet", "apply", "-f", fleet_file(tmp_path, text))
        assert done.rc == 2 and done.error_id == error_id and words in done.json["error"]["message"], done
    assert up.snapshot() == before


def test_a_password_goes_to_the_children_unseen(lab, tmp_path):
    for name in ("ci-1", "ci-2"):
        lab.add_vm(name, keys=False, running=True, password="s3cret-7q", **QUICK)
    lab.start()
    file = every(tmp_path)
    process = subprocess.Popen(command(lab, "-v", "--json", "fleet", "apply", "-f", file), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, env={**lab.env(), "LUMELIFT_PORT": str(lab.port), "LUMELIFT_PASSWORD": "s3cret-7q"})
    from world import descendants
    seen = 0
    while process.poll() is None:
        for pid in [process.pid, *(pid for pid, _ in descendants(process.pid))]:
            try:
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() + pathlib.Path(f"/proc/{pid}/environ").read_bytes()
            except OSError:
                continue
            seen += b"--password-fd" in words
            # Of the first one's environment only a glance before it is wiped could see it: that is where the user put it.
            assert b"s3cret-7q" not in words or pid == process.pid, pid
        time.sleep(0.02)
    out, err = process.communicate()
    assert process.returncode == 0 and seen > 0, out + err
    assert "s3cret-7q" not in out + err


def test_the_inventory_is_what_ansible_reads(lab, tmp_path):
    lab.add_vm("ci-1", running=True, **QUICK)
    lab.add_vm("ci-2", **QUICK)
    lab.start()
    file = every(tmp_path)
    assert run(lab, "fleet", "apply", "-f", file, timeout=300).rc == 0
    listed = run(lab, "fleet", "inventory", "--list", "-f", file)
    assert listed.rc == 0, listed
    vars_of = listed.json["_meta"]["hostvars"]
    assert listed.json["lumelift_hosts"]["hosts"] == ["localhost"] and vars_of["localhost"]["ansible_connection"] == "local"
    assert listed.json["lumelift_unlocked_yes"]["hosts"] == ["ci-1"] and listed.json["lumelift_unlocked_when_it_runs"]["hosts"] == ["ci-2"]
    assert vars_of["ci-1"]["ansible_host"] == lab.vm("ci-1").run_state()["ip"]
    assert vars_of["ci-1"]["ansible_port"] == lab.port and "HostKeyAlias=lumelift-localhost-ci_1" in vars_of["ci-1"]["ansible_ssh_common_args"]
    assert set(listed.json["all"]["children"]) == set(listed.json) - {"all", "_meta"}
    one = run(lab, "fleet", "inventory", "--host", "ci-1", env={"LUMELIFT_FLEET": str(file)})
    assert one.json == vars_of["ci-1"]
    assert run(lab, "fleet", "inventory", "-f", file).rc == 2


def test_the_inventory_asks_other_macs_by_ssh(lab, tmp_path):
    lab.add_vm("ci-1", running=True, **QUICK)
    lab.start()
    ssh = pathlib.Path(lab.world.path("host", "bin", "ssh"))
    ssh.write_text(f"#!/bin/sh\necho \"$@\" >> {tmp_path}/asked\ncase \"$*\" in *gone*) echo 'ssh: no route' >&2; exit 255;; esac\nwhile [ \"$1\" != -- ]; do shift; done\n"
                   f"shift 3\nexec {LUMELIFT} \"$@\"\n")
    ssh.chmod(0o755)
    file = fleet_file(tmp_path, "hosts:\n  - { name: mac-1, address: mac-1.example, user: admin, port: 2200 }\n  - { name: mac-2, address: gone.example }\n"
                      "vms:\n  - { name: ci-1 }\n")
    listed = run(lab, "fleet", "inventory", "--list", "-f", file)
    assert listed.rc == 0, listed
    vars_of = listed.json["_meta"]["hostvars"]
    assert "-p 2200 -- admin@mac-1.example lumelift --json status" in (tmp_path / "asked").read_text()
    assert "-o ProxyJump=admin@mac-1.example:2200" in vars_of["ci-1.mac-1"]["ansible_ssh_common_args"]
    assert vars_of["ci-1.mac-1"]["lumelift_unlocked"] == "no" and vars_of["ci-1.mac-1"]["ansible_host"]
    assert vars_of["ci-1.mac-2"]["lumelift_unlocked"] == "unknown" and vars_of["mac-1"]["lumelift_error"] is None
    assert vars_of["mac-2"]["lumelift_error"] and listed.json["lumelift_unreachable"]["hosts"] == ["mac-2"]


def test_progress_is_redrawn_on_a_terminal_and_plain_lines_elsewhere(lab, tmp_path):
    for name in ("ci-1", "ci-2"):
        lab.add_vm(name, **{**QUICK, "boot_delay": 1})
    lab.start()
    file = every(tmp_path)
    plain = run(lab, "fleet", "apply", "-f", file, timeout=300)
    assert plain.rc == 0 and "\x1b" not in plain.out + plain.err, plain
    assert any(line.startswith("ci-1    start ") for line in plain.err.splitlines()), plain
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command(lab, "fleet", "rollback", "-f", file), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs,
                               env={**lab.env(), "LUMELIFT_PORT": str(lab.port)}, text=True)
    os.close(theirs)
    shown = b""
    while True:
        try:
            block = os.read(ours, 65536)
        except OSError:
            break
        if not block:
            break
        shown += block
    out, _ = process.communicate(timeout=60)
    os.close(ours)
    assert process.returncode == 0 and b"rollback: 0 of 2 done" in shown and b"\x1b[" in shown, shown
    assert "2 VMs: 2 changed" in out and "rollback: " not in out
