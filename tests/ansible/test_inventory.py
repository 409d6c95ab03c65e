"""The inventory plugin: Macs and VMs with their unlock state, and the way into a guest through its Mac."""

import json

import yaml

from product import BUILD, LUMELIFT, Lab

def test_macs_vms_states_and_the_way_in(control, tmp_path):
    with Lab(tmp_path / "mac", build=BUILD) as lab:
        lab.add_vm("ci-1", running=True, arch="x86_64")
        lab.add_vm("off")
        lab.start()
        login = lab.serve_ssh()
        config = {"plugin": "lumelift.fleet.lume", "executable": str(LUMELIFT), "guest_port": lab.port,
                  "ssh_args": ["-F", "/dev/null", "-i", login["key"], "-o", f"UserKnownHostsFile={login['known_hosts']}"],
                  "macs": {"mac-1": {"address": login["address"], "port": login["port"], "user": login["user"]},
                           "mac-2": {"address": login["address"], "port": 1, "user": login["user"]}},
                  "keyed_groups": [{"key": "lumelift_unlocked", "prefix": "unlocked"}]}
        (control.folder / "fleet.lume.yml").write_text(yaml.safe_dump(config))
        listed = control.run("ansible-inventory", "-i", "fleet.lume.yml", "--list")
        assert listed.returncode == 0, listed.stderr
        seen = json.loads(listed.stdout, object_hook=lambda value: value.get("__ansible_unsafe", value))
        known = seen["_meta"]["hostvars"]
        assert seen["macs"]["hosts"] == ["mac-1", "mac-2"] and seen["vms"]["hosts"] == ["ci-1.mac-1", "off.mac-1"]
        assert set(seen["unlocked_no"]["hosts"]) == {"ci-1.mac-1", "off.mac-1"}
        assert known["mac-1"]["lume_names"] == ["ci-1", "off"] and "255" in known["mac-2"]["lumelift_error"] and "mac-2:" in listed.stderr
        vm = known["ci-1.mac-1"]
        assert (vm["lume_name"], vm["lume_mac"], vm["lume_state"], vm["lumelift_unlocked"], vm["ansible_user"]) == ("ci-1", "mac-1", "running", "no", "lume")
        assert vm["ansible_host"] == lab.vm("ci-1").run_state()["ip"] and "ansible_host" not in known["off.mac-1"]

        # Into the guest, through the Mac.
        said = control.run("ansible", "-i", "fleet.lume.yml", "ci-1.mac-1", "-m", "raw", "-a", "sw_vers -productVersion", env={
            "ANSIBLE_PRIVATE_KEY_FILE": f"{lab.home}/.ssh/id_ed25519", "ANSIBLE_HOST_KEY_CHECKING": "False"})
        assert said.returncode == 0 and lab.vm("ci-1")["version"] in said.stdout, said.stdout + said.stderr


def test_what_a_guest_says_is_no_template(control, tmp_path):
    """An answer with braces in it stays text on the control node."""
    mark = tmp_path / "evaluated"
    answer = {"schema": 1, "preference": {"claims": []}, "notes": [], "vms": [
        {"name": "ci-1", "state": "running", "unlocked": "yes", "note": "{{ lookup('pipe', 'touch %s') }}" % mark, "address": "10.0.0.1"},
        {"name": "-oProxyCommand=x", "state": "running", "unlocked": "no", "note": "", "address": "10.0.0.2"},
        {"name": "odd", "state": "running", "unlocked": "no", "note": "", "address": "-oProxyCommand=x"}]}
    with Lab(tmp_path / "mac") as lab:
        login = lab.serve_ssh()
        program = tmp_path / "lumelift"
        program.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(answer)}\nEND\n")
        program.chmod(0o755)
        config = {"plugin": "lumelift.fleet.lume", "executable": str(program), "ssh_args": ["-F", "/dev/null", "-i", login["key"], "-o",
                  f"UserKnownHostsFile={login['known_hosts']}"], "macs": {"mac": {"address": login["address"], "port": login["port"], "user": login["user"]}}}
        (control.folder / "lume.yml").write_text(yaml.safe_dump(config))
        play = control.folder / "show.yml"
        play.write_text(yaml.safe_dump([{"hosts": "vms", "gather_facts": False, "connection": "local", "tasks": [
            {"name": "Show", "ansible.builtin.debug": {"msg": "{{ lumelift_note }} of {{ lume_name }} at {{ ansible_host }}"}}]}]))
        shown = control.run("ansible-playbook", "-i", "lume.yml", str(play))
        assert shown.returncode == 0 and "lookup('pipe'" in shown.stdout and "of odd at odd.mac" in shown.stdout, shown.stdout + shown.stderr
        assert not mark.exists() and "ProxyCommand=x" not in shown.stdout
