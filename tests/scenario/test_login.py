"""How lumelift gets into a guest: keys of its own, changed host keys, blocked networks. R78, R81, R100 to R104."""

import os
import subprocess
import time

import pytest

from product import BUILD, guest_home, run

PASSWORD = {"LUMELIFT_PASSWORD": "lume"}
UNREACHABLE = {"LD_PRELOAD": str(BUILD / "tests/lab/unreachable.so")}


@pytest.fixture
def guest(lab):
    """One running guest with the account of a person who has a password and no key."""
    lab.add_vm("ci-1", running=True, arch="x86_64")
    lab.start()
    lab.key = os.path.join(lab.home, ".ssh", "id_ed25519")
    return lab


def without_own_key(lab):
    """From now on the host's user has no key of his own in ~/.ssh."""
    os.rename(lab.key, lab.key + ".away")


def back_with_own_key(lab):
    os.rename(lab.key + ".away", lab.key)


def keys_in(lab):
    return (guest_home(lab, "ci-1") / ".ssh/authorized_keys").read_text()


def test_a_key_of_our_own_goes_in_after_a_password_and_out_by_rollback(guest):
    before = guest.snapshot()
    without_own_key(guest)
    first = run(guest, "unlock", "ci-1", env=PASSWORD)
    assert first.rc == 0 and "--install-key" in first.err, first
    assert run(guest, "verify", "ci-1").rc != 0
    done = run(guest, "unlock", "ci-1", "--install-key", env=PASSWORD)
    assert done.rc == 0 and "key" in done.err, done
    key = os.path.join(guest.home, ".local/state/lumelift/id_ed25519")
    assert os.stat(key).st_mode & 0o777 == 0o600
    assert keys_in(guest).count(" lumelift\n") == 1
    again = run(guest, "unlock", "ci-1", "--install-key")
    assert again.rc == 0 and keys_in(guest).count(" lumelift\n") == 1, again
    assert "no longer holds" not in run(guest, "status", "ci-1").out
    # A rollback restarts the VM with nothing but that key to log in: it stops cleanly, and a refused login is an answer.
    back = run(guest, "rollback", "ci-1")
    assert back.rc == 0 and not guest.events("hard-stop"), back
    back_with_own_key(guest)
    assert guest.snapshot() == before


def test_what_others_wrote_around_the_key_stays(guest):
    file = guest_home(guest, "ci-1") / ".ssh/authorized_keys"
    assert run(guest, "unlock", "ci-1", "--install-key", "--host-preference", "keep").rc == 0
    former = file.read_bytes()
    file.write_bytes(b"# mine, first\n" + former + b"# mine, last, without its newline")
    assert run(guest, "rollback", "ci-1").rc == 0
    assert file.read_bytes() == b"# mine, first\n" + former.partition(b" lumelift\n")[2] + b"# mine, last, without its newline"


def test_a_key_taken_out_by_hand_is_drift_and_no_trouble(guest):
    before = guest.snapshot()
    file = guest_home(guest, "ci-1") / ".ssh/authorized_keys"
    assert run(guest, "unlock", "ci-1", "--install-key", "--host-preference", "keep").rc == 0
    file.write_text(keys_in(guest).partition(" lumelift\n")[2])
    assert "no longer holds lumelift's key" in run(guest, "status", "ci-1", "--json").out
    assert run(guest, "rollback", "ci-1").rc == 0
    assert guest.snapshot() == before


def test_a_failed_unlock_takes_the_key_back(guest):
    before = guest.snapshot()
    guest.fault("shasum", exit=1)
    done = run(guest, "unlock", "ci-1", "--install-key", "--host-preference", "keep")
    assert (done.rc, done.error_id) == (1, "transfer-unverified") and "added to" in done.err, done
    guest.clear_faults()
    assert guest.snapshot() == before


def test_a_plan_with_a_key_makes_none(guest):
    done = run(guest, "unlock", "ci-1", "--install-key", "--dry-run")
    assert done.rc == 0 and "authorized_keys" in done.out, done
    assert not os.path.exists(os.path.join(guest.home, ".local/state/lumelift/id_ed25519"))


def test_r39_r100_blocked_by_local_network_privacy(guest):
    before, since = guest.snapshot(), time.monotonic()
    done = run(guest, "unlock", "ci-1", env=UNREACHABLE)
    assert (done.rc, done.error_id) == (6, "guest-blocked"), done
    assert "--via-nc" in done.err and "Local Network" in done.err
    assert time.monotonic() - since < 30
    assert guest.snapshot() == before


def test_r100_not_blocked_when_nc_is_lost_as_well(guest):
    guest.fault("nc", exit=1)
    done = run(guest, "probe", "ci-1", env=UNREACHABLE)
    assert "guest-blocked" not in done.err and "not Local Network privacy" in done.err, done


def test_r101_doctor_names_who_answers_for_it(guest):
    done = run(guest, "doctor", "ci-1", "--json", env=UNREACHABLE)
    finding = next(f for f in done.json["findings"] if f["id"] == "guest-blocked")
    assert done.rc == 1 and finding["level"] == "problem"
    assert "lumelift was started" in finding["evidence"] and "chain: " in finding["evidence"]


def test_r103_doctor_tells_of_updates_and_of_ranges_for_the_whole_mac(guest):
    done = run(guest, "doctor", "ci-1", "--json", env=UNREACHABLE)
    evidence = next(f for f in done.json["findings"] if f["id"] == "guest-blocked")["evidence"]
    assert "an update of the responsible program asks again" in evidence
    assert "com.apple.network.local-network, after a restart" in evidence and "never does itself" in evidence
    assert not [call for call in guest.calls("defaults") if "local-network" in str(call)]


def test_r104_blocked_by_this_mac_is_told_apart_from_a_vm_that_is_down(lab, tmp_path):
    lab.add_vm("ci-1", running=True, arch="x86_64")
    lab.add_vm("ci-2", boot="refuse")
    lab.start()
    before = lab.snapshot()
    only_one = {**UNREACHABLE, "LAB_UNREACHABLE": lab.vm("ci-1")["ip"]}
    file = tmp_path / "fleet.yaml"
    file.write_text("schema: 1\ndefaults: { timeout: 3, host_preference: keep }\nvms:\n  - match: '*'\n")
    done = run(lab, "--json", "fleet", "apply", "-f", file, env=only_one)
    seen = {row["vm"]: (row["status"], row["error"]["id"]) for row in done.json["vms"]}
    assert seen == {"ci-1": (6, "guest-blocked"), "ci-2": (1, "guest-no-answer")}, done
    assert done.rc == 1 and lab.snapshot() == before, done
    # Alone it decides the status of the whole, and a check for CI ends with it as well.
    file.write_text("schema: 1\nvms:\n  - name: ci-1\n")
    alone = run(lab, "--json", "fleet", "apply", "-f", file, env=only_one)
    assert alone.rc == 6, alone
    probe = run(lab, "--json", "probe", "ci-1", env=only_one)
    assert (probe.rc, probe.json["error"]["status"]) == (6, 6), probe
    assert run(lab, "probe", "ci-1").rc == 0


def test_r79_doctor_lists_the_algorithms(guest):
    done = run(guest, "doctor", "ci-1", "--json")
    evidence = next(f for f in done.json["findings"] if f["id"] == "guest-algorithms")["evidence"]
    assert "key exchange curve25519-sha256" in evidence and "the guest's: " in evidence, evidence


def test_everything_goes_through_nc_where_it_must(guest):
    before = guest.snapshot()
    assert run(guest, "unlock", "ci-1", "--via-nc", env=UNREACHABLE).rc == 0
    assert any("nc" in str(call) for call in guest.calls("nc"))
    done = run(guest, "run", "ci-1", "--via-nc", "--stock", "--", "/bin/echo", "hi", env=UNREACHABLE)
    assert (done.rc, done.out) == (0, "hi\n"), done
    assert run(guest, "rollback", "ci-1", "--via-nc", env=UNREACHABLE).rc == 0
    assert guest.snapshot() == before


def test_nc_that_finds_nobody(lab):
    lab.add_vm("ci-1", boot="refuse")
    lab.start()
    done = run(lab, "unlock", "ci-1", "--via-nc", "--timeout", "8")
    assert done.error_id == "guest-no-answer" and "(guest-refused)" in done.err, done


def test_r78_a_pin_knows_its_kind(lab):
    lab.add_vm("ci-1", running=True, arch="x86_64", key_types=["ed25519", "ecdsa"])
    lab.start()
    assert run(lab, "probe", "ci-1").rc == 0
    # The server still has the pinned key, and no longer the other: the same pin holds.
    lab.host("lume", "stop", "ci-1")
    lab.change_vm("ci-1", key_types=["ed25519"])
    lab.boot("ci-1")
    kept = run(lab, "probe", "ci-1")
    lab.host("lume", "stop", "ci-1")
    lab.change_vm("ci-1", key_types=["ecdsa"])
    lab.boot("ci-1")
    other = run(lab, "probe", "ci-1")
    assert {kept.error_id, other.error_id} == {None, "guest-host-key-kind"}, (kept, other)


def test_clones_with_one_host_key_are_allowed_and_reported(lab):
    for name in ("ci-1", "ci-2"):
        lab.add_vm(name, running=True, arch="x86_64")
    for suffix in ("", ".pub"):
        subprocess.run(["cp", lab.vm("ci-1").path("ssh", "host_ed25519" + suffix), lab.vm("ci-2").path("ssh", "host_ed25519" + suffix)], check=True)
    lab.start()
    assert run(lab, "probe", "ci-1").rc == 0
    done = run(lab, "probe", "ci-2")
    assert done.rc == 0 and "one is a clone of the other" in done.err, done


def test_keyboard_interactive_only(lab):
    lab.add_vm("ci-1", running=True, arch="x86_64", server="kbdint")
    lab.start()
    before = lab.snapshot()
    assert run(lab, "unlock", "ci-1", "--host-preference", "keep", env=PASSWORD).rc == 0
    assert run(lab, "rollback", "ci-1", env=PASSWORD).rc == 0
    assert lab.snapshot() == before
    done = run(lab, "probe", "ci-1", env={"LUMELIFT_PASSWORD": "wrong"})
    assert done.error_id == "guest-auth-failed" and "the server offers: keyboard-interactive" in done.err, done
