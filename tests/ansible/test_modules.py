"""The modules on one Mac, over SSH alone and as Python: what they refuse, what they tell, where secrets go."""

import pytest

from control import release_archive, sha256_of
from product import BUILD, Lab, workload

SECRET = "s3cr3t-of-the-guest"


@pytest.fixture
def mac(control, tmp_path):
    """A Mac with one running VM, and lumelift where the Mac's user keeps his programs."""
    with Lab(tmp_path / "mac", build=BUILD) as lab:
        lab.add_vm("ci-1", running=True, arch="x86_64", keys=False, password=SECRET)
        lab.start()
        control.add_mac("mac", lab)
        bin_folder = tmp_path / "mac/host/home/.local/bin"
        bin_folder.mkdir(parents=True)
        for name in ("lumelift", "shim", "templates"):
            (bin_folder / name).symlink_to(BUILD / name)
        yield lab


LOGIN = {"guest_password": SECRET}
PYTHON = {"lumelift_python": True, "ansible_python_interpreter": "/usr/bin/python3"}


def test_failures_carry_the_commands_own_words(control, mac):
    before = mac.snapshot()
    mac.change_vm("ci-1", metal="no-init-method")
    play = control.tasks(
        {"lumelift.fleet.verify": {"vm": "ci-2"}},
        {"lumelift.fleet.verify": {"vm": "ci-2"}, "vars": PYTHON},
        {"lumelift.fleet.info": {"executable": "lumelift-of-nobody"}},
        {"lumelift.fleet.info": {"executable": "lumelift-of-nobody"}, "vars": PYTHON},
        {"lumelift.fleet.verify": {"vm": "ci-1"}},
        {"lumelift.fleet.unlock": {"vm": "ci-1", "profil": "tested"}},
        {"lumelift.fleet.unlock": {"vm": "ci-1", **LOGIN}})
    for number in (0, 1):
        about = play.of_task(number)
        assert about["error"]["id"] == "vm-unknown" and about["error"]["status"] == about["rc"] == 2 and about["error"]["fix"] == "see: lume ls", about
        assert "vm-unknown, exit status 2" in about["msg"] and "next: see: lume ls" in about["msg"] and about["changed"] is False
        lost = play.of_task(2 + number)
        assert lost["rc"] == 127 and "lumelift.fleet.host" in lost["msg"], lost
    # The check that fails is named, with its evidence.
    unproven = play.of_task(4)
    assert unproven["rc"] == 5 and "there is no finished unlock of this VM" in unproven["msg"] and unproven["report"]["verified"] is False
    assert "profil" in play.of_task(5)["msg"] and play.of_task(5)["kind"] == "failed"
    # What does not show its promise is undone.
    undone = play.of_task(6)
    assert undone["error"]["id"] == "probe-not-unlocked" and undone["rc"] == 5 and undone["changed"] is False, undone
    assert "Everything that was done has been undone." in undone["error"]["details"] and mac.snapshot() == before


def test_a_rollout_that_an_unreachable_mac_would_not_stop_is_warned_of(control, mac):
    plays = [{"hosts": "macs", "gather_facts": False, "serial": 1, "tasks": [{"name": "Look", "lumelift.fleet.info": {}}]}]
    assert "max_fail_percentage" in control.play(plays).err
    assert "max_fail_percentage" not in control.play([{**plays[0], "max_fail_percentage": 0}]).err


def test_root_is_refused_before_anything_is_done(control, mac):
    mac.forget_calls()
    play = control.tasks({"lumelift.fleet.unlock": {"vm": "ci-1"}, "become": True},
                         {"lumelift.fleet.unlock": {"vm": "ci-1"}, "vars": {"ansible_user": "root"}},
                         {"lumelift.fleet.install": {"archive": "x", "checksum": "y"}, "become": True})
    for number in range(3):
        assert play.of_task(number)["kind"] == "failed" and "never as root" in play.of_task(number)["msg"], play
    assert not mac.calls()


@pytest.mark.parametrize("more", [{}, PYTHON], ids=["ssh", "python"])
def test_secrets_reach_lumelift_and_nothing_else(control, mac, tmp_path, more):
    """R131: not in any output at the highest verbosity, in no argument, in no file of either side."""
    mac.fault("lume", delay=0.01, shell_before="cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' >> arguments")
    play = control.tasks({"lumelift.fleet.unlock": {"vm": "ci-1", "guest_password": "{{ lookup('env', 'GUEST_SECRET') }}"}}, words=["-vvvv", "--diff"],
                         env={"GUEST_SECRET": SECRET}, **more)
    assert play.of_task(0)["kind"] == "ok" and play.of_task(0)["changed"], play
    assert SECRET not in play.out + play.err
    seen = (tmp_path / "mac/arguments").read_text()
    assert "--password-fd=0" in seen and SECRET not in seen
    files = [path for path in tmp_path.rglob("*") if path.is_file() and not path.is_symlink() and path.name not in ("vm.json", "vm.json.cache")]
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []


def test_look_probe_and_bench_change_nothing_in_check_mode(control, mac):
    before = mac.snapshot()
    play = control.tasks({"lumelift.fleet.info": {}, "check_mode": True}, *({f"lumelift.fleet.{module}": {"vm": "ci-1", **LOGIN}, "check_mode": True}
                                                                          for module in ("probe", "bench")))
    assert [(vm["name"], vm["unlocked"]) for vm in play.of_task(0)["vms"]] == [("ci-1", "no")], play
    assert [play.of_task(number)["kind"] for number in (1, 2)] == ["skipped", "skipped"] and play.changed() == {"mac": 0}
    assert mac.snapshot() == before
    probe = control.tasks({"lumelift.fleet.probe": {"vm": "ci-1", **LOGIN}}).of_task(0)
    assert probe["report"]["as_promised"] and not probe["changed"], probe
    assert mac.snapshot() == before


def test_an_artifact_is_sent_once(control, mac, tmp_path):
    (tmp_path / "mac/host/home/model.gguf").write_bytes(b"GGUF" * 10_000)
    task = {"lumelift.fleet.artifact": {"vm": "ci-1", "src": ["~/model.gguf"], "dest": "models/", **LOGIN}}
    play = control.tasks({**task, "check_mode": True}, task, task, {**task, "check_mode": True})
    assert [play.of_task(number)["changed"] for number in range(4)] == [True, True, False, False], play
    assert (tmp_path / "mac/vms/ci-1/home/models/model.gguf").read_bytes() == b"GGUF" * 10_000


def test_a_workload_comes_and_goes(control, mac, tmp_path):
    file = workload(tmp_path / "mac/host/home/work", model_size=20_000)
    here = {"lumelift.fleet.workload": {"vm": "ci-1", "src": f"~/{file.relative_to(tmp_path / 'mac/host/home')}", **LOGIN}}
    label = "io.lumelift.server"
    gone = {"lumelift.fleet.workload": {"vm": "ci-1", "label": label, "state": "absent", **LOGIN}}
    play = control.tasks(here, here, {**gone, "check_mode": True}, gone, gone, words=["--diff"])
    assert [play.of_task(number)["changed"] for number in range(5)] == [True, False, True, True, False], play
    assert play.of_task(3)["diff"][0]["after"] == "absent\n" and label in play.of_task(3)["diff"][0]["after_header"]
    wrong = control.tasks({"lumelift.fleet.workload": {"vm": "ci-1", "state": "absent", **LOGIN}}).of_task(0)
    assert wrong["kind"] == "failed" and "label" in wrong["msg"], wrong


def test_the_archive_is_installed_as_its_checksum_says(control, mac, tmp_path):
    archive, prefix = release_archive(tmp_path), tmp_path / "mac/host/home/apps"
    arguments = {"archive": str(archive), "checksum": "sha256:" + sha256_of(archive), "prefix": "~/apps"}
    play = control.tasks({"lumelift.fleet.install": {**arguments, "checksum": "0" * 64}}, {"lumelift.fleet.install": arguments, "check_mode": True},
                         {"lumelift.fleet.install": arguments, "check_mode": True}, {"lumelift.fleet.install": arguments}, {"lumelift.fleet.install": arguments})
    assert sha256_of(archive) in play.of_task(0)["msg"] and play.of_task(0)["kind"] == "failed"
    assert [play.of_task(number)["changed"] for number in (1, 2, 3, 4)] == [True, True, True, False], play
    assert (prefix / "bin/lumelift").read_bytes() == (BUILD / "lumelift").read_bytes()
    assert (prefix / "libexec/lumelift/liblumelift-metal.dylib").exists() and [path.name for path in (prefix / "share/lumelift").glob(".install*")] == []
    (prefix / "libexec/lumelift/lumelift-probe").write_bytes(b"other")
    again = control.tasks({"lumelift.fleet.install": arguments}, words=["--diff"]).of_task(0)
    assert again["changed"] and "changed since" in again["diff"][0]["before"], again
    assert (prefix / "libexec/lumelift/lumelift-probe").read_bytes() == (BUILD / "shim/lumelift-probe").read_bytes()
