"""What can go wrong at the main job: each has its own message and status, and leaves the world as it was."""

import os
import shutil
import signal
import subprocess
import time

import pytest

from product import KEY, guest_home, run, set_preference, workload


def refused(lab, rc, error_id, *words, **options):
    """Runs `unlock`, which must fail in just this way and change nothing."""
    before = lab.snapshot()
    done = run(lab, "unlock", *words, **options)
    assert (done.rc, done.error_id) == (rc, error_id), done
    assert "next: " in done.err or "has been undone" in done.err, done
    assert lab.snapshot() == before
    return done


def test_r01_log_lines_around_the_json(lab):
    lab.add_vm("ci-1", running=True)
    lab.start()
    assert lab.world.config["noise"] == "on"
    assert run(lab, "unlock", "ci-1").rc == 0


def test_r02_late_address(lab):
    lab.add_vm("ci-1", ip_delay=1.5)
    lab.start()
    assert run(lab, "unlock", "ci-1").rc == 0


@pytest.mark.parametrize("words, error_id", [(("--key", "{bad}"), "guest-key-unusable"), (("--key", "/nokey"), "guest-key-unusable"),
                                             (("--user", "nobody"), "guest-auth-failed")])
def test_a_login_that_cannot_work_pulls_no_plug(up, tmp_path, words, error_id):
    """The guest may be well: nothing is stopped, by whatever command."""
    bad = tmp_path / "key"
    bad.write_text("garbage\n")
    bad.chmod(0o600)
    words = [word.format(bad=bad) for word in words]
    boots = len(up.events("boot"))
    for command in (["unlock", "ci-1"], ["unlock", "ci-1", "--dry-run"], ["unlock", "ci-1", "--restart", "always"], ["power", "ci-1", "off"]):
        before = up.snapshot()
        done = run(up, *command, *words)
        assert done.rc in (1, 2) and done.error_id == error_id, done
        assert "plug" not in done.err and up.snapshot() == before and len(up.events("boot")) == boots, done
    assert run(up, "unlock", "ci-1").rc == 0
    boots, before = len(up.events("boot")), up.snapshot()
    done = run(up, "rollback", "ci-1", *words)
    assert done.rc != 0 and "plug" not in done.err and len(up.events("boot")) == boots, done
    assert run(up, "rollback", "ci-1").rc == 0


def test_a_running_guest_that_does_not_answer_is_not_restarted_unasked(up):
    before, port = up.snapshot(), {"LUMELIFT_PORT": "9"}
    for words in ([], ["--dry-run"], ["--restart", "idle"]):
        done = run(up, "unlock", "ci-1", *words, env=port)
        assert done.rc == 1 and done.error_id == "guest-no-answer" and "--restart always" in done.err, done
    assert up.snapshot() == before and len(up.events("boot")) == 1


def test_r03_a_vm_that_is_being_made(up):
    up.change_vm("ci-1", status="provisioning (stale)")
    done = refused(up, 4, "vm-not-ready", "ci-1")
    assert "provisioning (stale)" in done.err


def test_unknown_vm_names_the_one_that_was_meant(up):
    done = refused(up, 2, "vm-unknown", "ci-2")
    assert "did you mean 'ci-1'" in done.err


def test_r10_a_name_with_a_colon(lab):
    """lume stores a:b as a_b, and `run` of an unknown name would download an image."""
    lab.add_vm("a:b", running=True)
    lab.start()
    assert run(lab, "unlock", "a:b").rc == 0
    refused(lab, 2, "vm-unknown", "c:latest")
    assert not lab.events("forbidden-pull")


@pytest.mark.parametrize("name", ["", "..", "-x", "a/b", "a" * 256, "a\nb"])
def test_r138_names_that_cannot_be_vms(up, name):
    before = up.snapshot()
    done = run(up, "unlock", "--", name)
    assert done.rc == 2, done
    assert up.snapshot() == before


def test_r110_a_preference_of_type_dictionary(up):
    set_preference(up, ("dict", {"a": 1}))
    done = refused(up, 2, "preference-foreign", "ci-1")
    assert "dictionary" in done.err or "dict" in done.err


def test_wrong_password(lab, tmp_path):
    lab.add_vm("ci-1", running=True, keys=False)
    lab.start()
    secret = tmp_path / "password"
    secret.write_text("not-the-password\n")
    secret.chmod(0o600)
    done = refused(lab, 1, "guest-auth-failed", "ci-1", "--password-file", str(secret))
    assert "not-the-password" not in done.err + done.out


def test_right_password_from_file_descriptor_and_environment(lab, tmp_path):
    lab.add_vm("ci-1", running=True, keys=False)
    lab.start()
    secret = tmp_path / "password"
    secret.write_text("lume\n")
    secret.chmod(0o600)
    assert run(lab, "unlock", "ci-1", "--password-file", str(secret)).rc == 0
    with open(secret, encoding="ascii") as file:
        assert run(lab, "unlock", "ci-1", "--password-fd", str(file.fileno()), pass_fds=[file.fileno()]).rc == 0
    assert run(lab, "unlock", "ci-1", env={"LUMELIFT_PASSWORD": "lume"}).rc == 0
    secret.chmod(0o644)
    assert run(lab, "unlock", "ci-1", "--password-file", str(secret)).error_id == "password-file-open"


def test_r34_a_changed_host_key(up):
    assert run(up, "unlock", "ci-1").rc == 0
    assert run(up, "rollback", "ci-1").rc == 0
    vm = up.vm("ci-1")
    assert up.host("lume", "stop", "ci-1").returncode == 0
    for suffix in ("", ".pub"):
        os.unlink(vm.path("ssh", "host_ed25519" + suffix))
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", vm.path("ssh", "host_ed25519")], check=True)
    up.boot("ci-1")
    done = refused(up, 1, "guest-host-key-changed", "ci-1")
    assert "lumelift trust ci-1" in done.err and "expected" in done.err and "got" in done.err
    assert run(up, "trust", "ci-1").rc == 0
    assert run(up, "unlock", "ci-1").rc == 0


@pytest.mark.parametrize("boot, words", [("silent", ""), ("refuse", "refused"), ("http", "")])
def test_r40_a_guest_that_never_answers(lab, boot, words):
    lab.add_vm("ci-1", boot=boot)
    lab.start()
    done = refused(lab, 1, "guest-no-answer", "ci-1", "--timeout", "3")
    assert words in done.err


def test_r15_r137_no_address_ever(lab):
    lab.add_vm("ci-1", ip_delay=3600)
    lab.start()
    done = refused(lab, 1, "guest-no-address", "ci-1", "--timeout", "3")
    assert "firewall" in done.err and "bootpd" in done.err, done


def run_silent(lab, name):
    """Boots a VM whose guest never answers, as far as lume's list."""
    lab.boot(name, wait=False)
    deadline = time.monotonic() + 10
    while not lab.vm(name).run_state():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_r35_two_running_vms_with_one_address(lab, tmp_path):
    lab.add_vm("ci-1", running=True, arch="x86_64")
    lab.add_vm("ci-2", boot="never", ip=lab.vm("ci-1")["ip"], ip_delay=0)
    lab.start()
    run_silent(lab, "ci-2")
    for vm, other in (("ci-1", "ci-2"), ("ci-2", "ci-1")):
        done = refused(lab, 4, "vm-address-shared", vm, env={"LUMELIFT_PASSWORD": "lume"})
        assert f"'{other}'" in done.err, done
    before = lab.snapshot()
    file = tmp_path / "fleet.yaml"
    file.write_text("schema: 1\nvms:\n  - match: '*'\n")
    for action in ("plan", "apply", "verify"):
        done = run(lab, "fleet", action, "-f", file)
        assert (done.rc, done.error_id) == (4, "vm-address-shared"), done
    assert lab.snapshot() == before and not lab.calls("guest")
    # Off, it has no address that could be mistaken.
    lab.host("lume", "stop", "ci-2")
    assert run(lab, "unlock", "ci-1", "--host-preference", "keep").rc == 0


def test_r35_a_pin_of_its_own_tells_them_apart(lab):
    lab.add_vm("ci-1", running=True, arch="x86_64")
    lab.add_vm("ci-2", boot="never", ip=lab.vm("ci-1")["ip"])
    lab.start()
    assert run(lab, "probe", "ci-1").rc == 0
    run_silent(lab, "ci-2")
    assert run(lab, "probe", "ci-1").rc == 0


def test_r35_a_full_lease_table(lab):
    for name in ("ci-1", "ci-2"):
        lab.add_vm(name, boot="never", ip_delay=3600)
    lab.start()
    run_silent(lab, "ci-2")
    done = run(lab, "unlock", "ci-1", "--timeout", "3")
    assert done.error_id == "guest-no-address" and "ci-2 runs without an address as well" in done.err and "lease table is probably full" in done.err, done
    assert "never edits" in done.err


def test_r87_a_full_disk_in_the_guest(lab, tmp_path):
    lab.add_vm("ci-1", running=True, disk_kb=2000)
    lab.start()
    done = refused(lab, 1, "guest-disk-full", "ci-1", "--workload", workload(tmp_path / "w", model_size=8_000_000))
    assert "free" in done.err


def test_lume_missing(up, tmp_path):
    before = up.snapshot()
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("defaults", "sw_vers", "sysctl", "ioreg"):
        os.symlink(os.readlink(up.world.path("host", "bin", tool)), tools / tool)
    done = run(up, "unlock", "ci-1", env={"PATH": f"{tools}:/usr/bin:/bin"})
    assert done.rc != 0 and done.error_id == "lume-missing", done
    assert up.snapshot() == before


def test_r12_lume_that_hangs(up):
    before = up.snapshot()
    up.fault("lume", match="get", hang=True)
    done = run(up, "unlock", "ci-1", timeout=60)
    assert done.rc == 1 and done.error_id == "lume-no-answer", done
    assert "lume get" in done.err
    up.clear_faults()
    assert up.snapshot() == before


def test_r08_r37_a_start_that_fails_later(lab):
    lab.add_vm("ci-1", run_fails="The number of virtual machines exceeds the limit", log_old="old line: exceeds the limit")
    lab.start()
    refused(lab, 1, "vm-limit", "ci-1", "--timeout", "20")


def test_r23_r28_answers_that_are_not_as_promised(lab):
    """A probe that cannot fail proves nothing: here the library cannot do its work, and everything is undone."""
    lab.add_vm("ci-1", running=True, metal="no-init-method")
    lab.start()
    done = refused(lab, 5, "probe-not-unlocked", "ci-1")
    assert "init" in done.err and KEY not in lab.snapshot()


def test_r28_an_over_broad_device_is_refused(lab):
    lab.add_vm("ci-1", running=True, metal="broad")
    lab.start()
    done = run(lab, "unlock", "ci-1")
    assert done.rc == 5, done


def test_a_workload_that_dies_is_undone(up, tmp_path):
    file = workload(tmp_path / "w", program="lab-crash")
    done = refused(up, 5, "agent-exits", "ci-1", "--workload", file)
    assert "has been undone" in done.err


def test_r61_a_script_is_refused_before_anything_is_touched(up, tmp_path):
    file = workload(tmp_path / "w")
    program = tmp_path / "w" / "lab-llama-server"
    program.write_text("#!/usr/bin/env python3\nprint(1)\n")
    program.chmod(0o755)
    refused(up, 2, "workload-not-injectable", "ci-1", "--workload", file)
    assert len(up.events("boot")) == 1


@pytest.mark.parametrize("running", [True, False])
def test_what_only_the_guest_rules_out_is_refused_before_a_running_vm_is_touched(lab, tmp_path, running):
    lab.add_vm("ci-1", running=running)
    lab.start()
    file = workload(tmp_path / "w")
    file.write_text(file.read_text().replace("{ host: ./lab-llama-server }", "/bin/cat"))
    done = refused(lab, 2, "workload-not-injectable", "ci-1", "--workload", file)
    assert "/bin/cat" in done.err
    assert [event["vm"] for event in lab.events("boot")] == ["ci-1"]  # the lab's own start, or that to look into it


def test_r124_a_model_that_is_none(up, tmp_path):
    file = workload(tmp_path / "w")
    (tmp_path / "w" / "model.gguf").write_text("<html>sign in</html>")
    refused(up, 2, "workload-invalid", "ci-1", "--workload", file)


def test_r18_no_word_about_sip_but_status(up, tmp_path):
    """R41: nothing that is sent to a guest changes System Integrity Protection."""
    assert run(up, "unlock", "ci-1", "--workload", workload(tmp_path / "w")).rc == 0
    assert not up.events("forbidden-csrutil")
    assert not up.events("session-wide-setenv")


def test_r72_an_agent_of_that_label_comes_back(up, tmp_path):
    """A loaded agent of the same label is replaced, and is loaded again as it was after the rollback."""
    agents = guest_home(up, "ci-1") / "Library/LaunchAgents"
    agents.mkdir(parents=True)
    (agents / "io.lumelift.server.plist").write_text(
        '<?xml version="1.0" encoding="UTF-8"?>\n<plist version="1.0"><dict><key>Label</key><string>io.lumelift.server</string>'
        "<key>ProgramArguments</key><array><string>/bin/sleep</string><string>3600</string></array>"
        "<key>RunAtLoad</key><true/></dict></plist>\n")
    up.ssh("ci-1", "chmod 644 ~/Library/LaunchAgents/io.lumelift.server.plist; launchctl bootstrap gui/501 ~/Library/LaunchAgents/io.lumelift.server.plist")
    before = up.snapshot()
    assert "agent gui/501/io.lumelift.server" in before
    done = run(up, "unlock", "ci-1", "--workload", workload(tmp_path / "w"))
    assert done.rc == 0, done
    assert run(up, "rollback", "ci-1").rc == 0
    assert up.snapshot() == before


def test_r52_a_disabled_label_is_disabled_again(up, tmp_path):
    up.ssh("ci-1", "launchctl disable gui/501/io.lumelift.server")
    before = up.snapshot()
    assert run(up, "unlock", "ci-1", "--workload", workload(tmp_path / "w")).rc == 0
    assert run(up, "rollback", "ci-1").rc == 0
    assert up.snapshot() == before


@pytest.mark.parametrize("error", [125, 5])
def test_r44_r45_no_gui_session(lab, tmp_path, error):
    lab.add_vm("ci-1", running=True, gui=False, gui_error=error, uid=502)
    lab.start()
    done = run(lab, "--json", "unlock", "ci-1", "--workload", workload(tmp_path / "w"))
    assert done.rc == 0 and done.json["agent"]["domain"] == "user/502", done


def test_r34_no_word_of_the_users_known_hosts(up):
    assert run(up, "unlock", "ci-1").rc == 0
    assert not os.path.exists(os.path.join(up.home, ".ssh", "known_hosts"))


def test_r06_r22_a_hard_stop_is_named_and_the_end_of_lume_run_means_nothing(lab):
    """A guest that will not shut down is stopped by lume, and the report says so; `lume run` exits 1 then."""
    lab.add_vm("ci-1", running=True, sudo="none")
    lab.start()
    before = lab.snapshot()
    for command in ("unlock", "rollback"):
        done = run(lab, "--json", command, "ci-1")
        assert done.rc == 0, done
        assert any("lume stop" in warning for warning in done.json["warnings"]), done
    assert lab.snapshot() == before


def served(lab, *names):
    """A `lume serve` that these VMs run in; returns its process and its port."""
    import socket
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(["lume", "serve", "--port", str(port)], env=lab.env(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True)
    while "server on" not in server.stdout.readline():
        assert server.poll() is None
    for name in names:
        answer = subprocess.run(["curl", "-sS", "--noproxy", "*", "-X", "POST", "-d", "{}", f"http://127.0.0.1:{port}/lume/vms/{name}/run"],
                                capture_output=True, text=True, check=True)
        assert "pending" in answer.stdout, answer
    return server, port


def test_a_vm_inside_lume_serve_is_stopped_through_its_api(lab):
    """`lume stop` would end the process that holds it, and the other VM with it."""
    for name in ("a", "b"):
        lab.add_vm(name, sudo="none", arch="x86_64", boot_delay=0.05, ip_delay=0.05)
    lab.start()
    server, _ = served(lab, "a", "b")
    try:
        assert run(lab, "--json", "doctor", "a").rc == 0
        done = run(lab, "--json", "unlock", "a")
        assert done.rc == 0 and any("was stopped hard" in warning for warning in done.json["warnings"]), done
        assert server.poll() is None and not [call for call in lab.calls("lume") if call["argv"][0] == "stop"]
        assert len([event for event in lab.events("boot") if event["vm"] == "b"]) == 1 and lab.ssh("b", "true").returncode == 0
        # From here on it is held by a process of its own, which the server does not know.
        assert run(lab, "rollback", "a").rc == 0
        assert server.poll() is None and [call for call in lab.calls("lume") if call["argv"][0] == "stop"]
    finally:
        server.kill()
        server.wait()


def test_a_lume_server_that_does_not_answer_is_no_reason_to_end_it(lab):
    """What the server says is neither yes nor "not running": `lume stop` is not used."""
    lab.add_vm("a", sudo="none", arch="x86_64", boot_delay=0.05, ip_delay=0.05)
    lab.start()
    server, port = served(lab, "a")
    os.kill(server.pid, signal.SIGSTOP)
    tools = os.path.join(lab.dir, "slow-curl")
    os.mkdir(tools)
    with open(os.path.join(tools, "curl"), "w", encoding="ascii") as file:
        file.write('#!/bin/sh\nexec /usr/bin/curl --max-time 1 "$@"\n')
    os.chmod(os.path.join(tools, "curl"), 0o755)
    try:
        before = lab.snapshot()
        done = run(lab, "unlock", "a", env={"PATH": tools + ":" + lab.env()["PATH"]})
        assert done.rc == 1 and done.error_id == "vm-stop-failed" and f"port {port}" in done.err, done
        assert lab.snapshot() == before and not [call for call in lab.calls("lume") if call["argv"][0] == "stop"]
    finally:
        os.kill(server.pid, signal.SIGCONT)
        server.kill()
        server.wait()


def test_r09_the_vnc_password_is_never_shown(up):
    done = run(up, "-v", "unlock", "ci-1")
    assert "vnc://" not in done.out + done.err


def test_r21_a_bystander_lives_on(up):
    decoy = subprocess.Popen(["/bin/sleep", "60"], env={"NAME": "lume run ci-1"})
    try:
        assert run(up, "unlock", "ci-1").rc == 0
        assert run(up, "rollback", "ci-1").rc == 0
        assert decoy.poll() is None
    finally:
        decoy.kill()
        decoy.wait()


def test_r56_no_launch_agents_folder_before_and_none_after(up, tmp_path):
    shutil.rmtree(guest_home(up, "ci-1") / "Library")
    before = up.snapshot()
    assert run(up, "unlock", "ci-1", "--workload", workload(tmp_path / "w")).rc == 0
    assert run(up, "rollback", "ci-1").rc == 0
    assert up.snapshot() == before
