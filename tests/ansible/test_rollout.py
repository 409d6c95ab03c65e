"""Three Macs with two VMs each: the whole life of an unlock by Ansible; the assertion is on the worlds."""

import contextlib

from control import release_archive, sha256_of
from product import BUILD, KEY, Lab, workload

MACS = ("mac-1", "mac-2", "mac-3")
SERIAL = {"lumelift_serial": [1, "100%"]}
ALL, NONE = dict.fromkeys(MACS, True), dict.fromkeys(MACS, False)


def fleet(stack, control, tmp_path):
    """Two Macs without Python, one that runs the modules by it."""
    labs = {name: stack.enter_context(Lab(tmp_path / name, build=BUILD)) for name in MACS}
    for name, lab in labs.items():
        for vm in ("ci-1", "ci-2"):
            lab.add_vm(vm, running=True, arch="x86_64", boot_delay=0.05, ip_delay=0, shutdown_delay=0.05)
        lab.start()
        file = workload(tmp_path / name / "host/home/work", model_size=20_000)
        vms = [{"name": "ci-1", "workload": f"~/{file.relative_to(lab.home)}"}, "ci-2"]
        control.add_mac(name, lab, lumelift_vms=vms, lumelift_python=name == "mac-2")
    return labs


def worlds(labs):
    return {name: lab.snapshot() for name, lab in labs.items()}


def changed(play):
    """Whether the modules changed anything, per Mac."""
    return {name: any(result["changed"] for result in play.results("unlock", name)) for name in MACS}


def install(control, archive, *words):
    return control.play("lumelift.fleet.host", *words, host_archive=str(archive), host_checksum=sha256_of(archive), **SERIAL)


def install(control, tmp_path):
    archive = release_archive(tmp_path)
    done = control.play("lumelift.fleet.host", host_archive=str(archive), host_checksum=sha256_of(archive), lumelift_serial="100%")
    assert done.rc == 0 and all(done.changed().values()), done


def touched(play):
    """What the diffs of a run name, per Mac."""
    return {name: {entry["before_header"] for result in play.results("unlock", name) for entry in result["diff"]} for name in MACS}


def test_three_macs_there_and_back_and_a_failure_on_the_way(control, tmp_path):
    with contextlib.ExitStack() as stack:
        labs = fleet(stack, control, tmp_path)
        install(control, tmp_path)
        before = worlds(labs)

        # Check mode before: every change is told, none is made.
        check = control.play("lumelift.fleet.unlock", "--check", "--diff", **SERIAL)
        assert check.rc == 0 and changed(check) == ALL, check
        assert worlds(labs) == before

        # The first run does what was told, the second changes nothing, and check mode says so.
        first = control.play("lumelift.fleet.unlock", "--diff", **SERIAL)
        assert first.rc == 0 and changed(first) == ALL, first
        for name in MACS:
            # What the first VM did to the Mac was planned for the second one, too.
            told, done = touched(check)[name], touched(first)[name]
            assert done <= told and "ci-1: agent gui/501/io.lumelift.server" in done, (done, told)
            assert f"host: preference com.apple.gpusw.ParavirtualizedGraphics {KEY}" in done
        boots = {name: len(lab.events("boot")) for name, lab in labs.items()}
        second = control.play("lumelift.fleet.unlock", **SERIAL)
        assert second.rc == 0 and changed(second) == NONE and len(second.results("verify")) == 6, second
        after = control.play("lumelift.fleet.unlock", "--check", "--diff", **SERIAL)
        assert after.rc == 0 and changed(after) == NONE and not any(touched(after).values()), after
        assert {name: len(lab.events("boot")) for name, lab in labs.items()} == boots

        # And back.
        assert changed(control.play("lumelift.fleet.rollback", "--check")) == ALL
        back = control.play("lumelift.fleet.rollback")
        assert back.rc == 0 and changed(back) == ALL, back
        assert worlds(labs) == before
        assert changed(control.play("lumelift.fleet.rollback", "--check")) == NONE

        a_failure_stops_the_rollout(control, labs, before)
        a_mac_out_of_reach_stops_it(control)
        control.write_inventory(control.macs)
        assert control.play("lumelift.fleet.rollback").rc == 0
        assert worlds(labs) == before


def a_failure_stops_the_rollout(control, labs, before):
    """The second Mac's second VM is to get a profile that is not there, after its first VM was unlocked."""
    vms = [control.macs["mac-2"]["lumelift_vms"][0], {"name": "ci-2", "profile": "no-such"}]
    control.write_inventory({**control.macs, "mac-2": {**control.macs["mac-2"], "lumelift_vms": vms}})
    for lab in labs.values():
        lab.forget_calls()
    boots = len(labs["mac-2"].events("boot"))
    stopped = control.play("lumelift.fleet.unlock", lumelift_serial=1)
    assert stopped.rc != 0 and stopped.recap["mac-1"]["failed"] == 0 and "mac-3" not in stopped.recap, stopped
    errors = [result for result in stopped.failures("mac-2") if "error" in result]
    assert [(one["error"]["id"], one["error"]["status"], one["rc"]) for one in errors] == [("profile-unknown", 2, 2)], stopped
    assert "taken back on this Mac: ci-1" in stopped.failures("mac-2")[-1]["msg"] and len(labs["mac-2"].events("boot")) > boots
    now = worlds(labs)
    assert now["mac-1"] != before["mac-1"] and now["mac-2"] == before["mac-2"] and now["mac-3"] == before["mac-3"]
    assert not labs["mac-3"].calls()
    assert control.play("lumelift.fleet.verify", "--limit", "mac-1").rc == 0


def a_mac_out_of_reach_stops_it(control):
    control.write_inventory({name: {**about, "ansible_port": 1} if name == "mac-2" else about for name, about in control.macs.items()})
    away = control.play("lumelift.fleet.unlock", "--check", lumelift_serial=1)
    assert away.rc != 0 and away.recap["mac-2"]["unreachable"] == 1 and "mac-3" not in away.recap, away
