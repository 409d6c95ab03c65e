"""A library that the user brings instead of ours: recognised or accepted by its hash, joined, proven by its mapping."""

import hashlib
import json
import struct

import pytest

from product import BUILD, LABEL, Lab, guest_home, run, workload

OWN = BUILD / "shim/liblumelift-metal.dylib"


def slices(data):
    """(cpu type, bytes) of a universal file."""
    count = struct.unpack(">I", data[4:8])[0]
    entries = [struct.unpack(">5I", data[8 + 20 * i:28 + 20 * i]) for i in range(count)]
    return [(cpu, data[offset:offset + size]) for cpu, _, offset, size, _ in entries]


@pytest.fixture
def thin(tmp_path):
    """Our own library's slices as thin files: a real library that is no published release."""
    out = {}
    for cpu, data in slices(OWN.read_bytes()):
        name = {0x0100000c: "arm64", 0x01000007: "x86_64"}[cpu]
        out[name] = tmp_path / f"{name}.dylib"
        out[name].write_bytes(data)
    return out


@pytest.fixture
def lab(tmp_path):
    with Lab(tmp_path / "lab", build=BUILD) as made:
        made.add_vm("ci-1", running=True, arch="x86_64")
        made.start()
        made.pristine = made.snapshot()
        yield made


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def brought(thin):
    return [word for path in thin.values() for word in ("--library", path, "--accept-sha256", digest(path))]


def test_thin_files_are_joined_go_in_are_verified_and_come_out(lab, thin, tmp_path):
    done = run(lab, "--json", "unlock", "ci-1", *brought(thin), "--workload", workload(tmp_path / "w"))
    assert done.rc == 0, done
    library = done.json["library"]
    assert library["origin"] == "accepted"
    assert {one["cpu"]: one["sha256"] for one in library["slices"]} == {cpu: digest(path) for cpu, path in thin.items()}
    assert done.json["agent"]["library"] == "mapped"
    there = guest_home(lab, "ci-1") / ".local/share/lumelift/liblumelift-metal.dylib"
    assert digest(there) == library["sha256"] and sorted(d for _, d in slices(there.read_bytes())) == sorted(p.read_bytes() for p in thin.values())
    # Without receipts the mapping is what verify goes by.
    checks = run(lab, "--json", "verify", "ci-1")
    assert checks.rc == 0 and "agent-receipt" not in {c["id"] for c in checks.json["checks"]}, checks
    assert run(lab, "agents", "ci-1", "restart", LABEL).rc == 0
    lab.fault("lsof", exit=0, stdout="p1\nftxt\nn/bin/other\n")
    red = run(lab, "--json", "verify", "ci-1")
    assert red.rc == 5 and {c["id"] for c in red.json["checks"] if not c["passed"]} == {"agent-library"}, red
    lab.clear_faults()
    assert run(lab, "rollback", "ci-1").rc == 0
    assert lab.snapshot() == lab.pristine


def test_an_unknown_library_is_refused_before_anything_is_touched(lab, thin):
    done = run(lab, "unlock", "ci-1", "--library", thin["arm64"])
    assert done.rc == 2 and done.error_id == "library-unknown" and digest(thin["arm64"]) in done.err, done
    wrong = run(lab, "run", "ci-1", "--library", thin["arm64"], "--accept-sha256", "0" * 64, "--", "./x")
    assert wrong.rc == 2 and wrong.error_id == "library-unknown", wrong
    assert lab.snapshot() == lab.pristine


def test_run_with_a_brought_library(lab, thin):
    program = guest_home(lab, "ci-1") / "lab-children"
    program.write_bytes((BUILD / "tests/lab/workloads/lab-children").read_bytes())
    program.chmod(0o755)
    before = lab.snapshot()
    done = run(lab, "run", "ci-1", *brought(thin), "--", "./lab-children", "--keep-nothing")
    assert done.rc == 0 and json.loads(done.out.splitlines()[0])["apple7"], done
    assert lab.snapshot() == before
