"""How lumelift gets into a guest: changed host keys, blocked networks. R78, R81, R100 to R104."""

import subprocess
import time

import pytest

from product import BUILD, run

PASSWORD = {"LUMELIFT_PASSWORD": "lume"}
UNREACHABLE = {"LD_PRELOAD": str(BUILD / "tests/lab/unreachable.so")}


@pytest.fixture
def guest(lab):
    """One running guest, whose programs run as x86_64 ones, which is quicker."""
    lab.add_vm("ci-1", running=True, arch="x86_64")
    lab.start()
    return lab


def test_r100_blocked_by_local_network_privacy(guest):
    before, since = guest.snapshot(), time.monotonic()
    done = run(guest, "unlock", "ci-1", env=UNREACHABLE)
    assert (done.rc, done.error_id) == (1, "guest-blocked"), done
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
