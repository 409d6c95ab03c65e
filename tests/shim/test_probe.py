"""The probe as executed bytes: what it reports, and each of its exit statuses."""
import json

import pytest

from conftest import PROBE

CEILING = "LUME_METAL_APPLE_FAMILY_MAX"
UNLOCK = {CEILING: "1009"}
OK, NO_DEVICE, USAGE, NOT_AS_EXPECTED, OVER_BROAD, FUNCTIONAL, UNLOCKED, PHYSICAL = 0, 1, 2, 3, 4, 5, 10, 11


def test_stock_report(guest):
    status, report = guest.probe(insert=False, receipt=False)
    assert (status, report["verdict"], report["exit_status"]) == (OK, "stock", OK)
    assert report["slice"] == guest.slice and report["executable"] == str(PROBE)
    assert report["default_device"] is True and report["listed_devices"] == 1
    device = report["device"]
    assert device["name"] == "Apple Paravirtual device" and device["paravirtual"] is True
    assert device["class"] == ["AppleParavirtDevice", "_MTLDevice", "NSObject"]
    assert device["architecture"] == "air64_v27"
    assert [int(name) for name in device["families"]] == [*range(1001, 1011), 2001, 2002, 3001, 3002, 3003, 5001, 5002]
    assert [int(name) for name, yes in device["families"].items() if yes] == [*range(1001, 1006), 2002, 3001, 3002, 3003]
    assert device["highest_apple_family"] == 1005 and device["families_beyond"] == []
    assert device["max_threadgroup_memory"] == 32768 and device["max_buffer_length"] == 8 << 30
    assert device["recommended_working_set"] == 11453246122 and device["unified_memory"] is True
    assert device["argument_tier"] == 2 and device["raytracing"] is False
    assert (device["residency_set"], device["residency_error"]) == ("nil", None)
    assert report["variables"] == {} and report["receipt"] is None and report["functional"] is None


def test_unlocked_report_carries_variables_and_receipt(guest):
    status, report = guest.probe("--receipt", guest.receipt, **UNLOCK)
    assert (status, report["verdict"]) == (UNLOCKED, "unlocked")
    families = report["device"]["families"]
    assert families["1009"] and not families["1010"] and not families["5001"] and not families["5002"]
    assert report["device"]["max_threadgroup_memory"] == 65536
    assert report["variables"][CEILING] == "1009" and "DYLD_INSERT_LIBRARIES" in report["variables"]
    assert report["receipt"] == guest.read_receipt()
    assert report["receipt"]["outcome"] == "active" and report["receipt"]["pid"] == report["pid"]
    assert report["receipt"]["started"] == report["started"]
    assert report["receipt"]["after"]["max_threadgroup_memory"] == 65536


def test_receipts_that_are_not_there_or_not_whole(guest):
    for content in (None, "", "{", "not json"):
        path = guest.folder / "other.json"
        if content is not None:
            path.write_text(content)
        assert guest.probe("--receipt", path, insert=False)[1]["receipt"] is None


@pytest.mark.parametrize("arguments, variables, expected", [
    (["--expect", "stock"], {}, OK),
    (["--expect", "unlocked"], {}, NOT_AS_EXPECTED),
    (["--expect", "unlocked"], UNLOCK, OK),
    (["--expect", "stock"], UNLOCK, NOT_AS_EXPECTED),
    (["--expect", "unlocked", "--ceiling", "1009", "--threadgroup-memory", "65536"], UNLOCK, OK),
    (["--expect", "unlocked", "--ceiling", "1009", "--threadgroup-memory", "65537"], UNLOCK, NOT_AS_EXPECTED),
    (["--expect", "unlocked", "--ceiling", "1009"], {CEILING: "1007"}, NOT_AS_EXPECTED),
    (["--expect", "unlocked", "--ceiling", "1007"], UNLOCK, OVER_BROAD),
    (["--expect", "stock", "--ceiling", "1007"], UNLOCK, OVER_BROAD),
    (["--ceiling", "1007"], {CEILING: "1007"}, UNLOCKED),
    (["--expect", "unlocked", "--ceiling", "1007"], {CEILING: "1007", "LUMELIFT_INHERIT": "0"}, OK),
])
def test_assertions(guest, arguments, variables, expected):
    status, report = guest.probe(*arguments, **variables)
    assert status == report["exit_status"] == expected
    assert bool(report["problems"]) == (expected in (NOT_AS_EXPECTED, OVER_BROAD))


def test_a_variable_without_the_library_is_not_unlocked(guest):
    assert guest.probe("--expect", "unlocked", insert=False, **UNLOCK)[0] == NOT_AS_EXPECTED


@pytest.mark.parametrize("metal", ["metal3", "broad", "hole"])
def test_r28_r117_claims_that_break_programs(guest, metal):
    for arguments in ([], ["--expect", "stock"], ["--expect", "unlocked"]):
        status, report = guest.probe(*arguments, metal=metal, insert=False)
        assert (status, report["verdict"]) == (OVER_BROAD, "over-broad")
        assert report["problems"]


def test_r28_every_excess_is_named(guest):
    report = guest.probe(metal="broad", insert=False)[1]
    assert report["device"]["families_beyond"] == [*range(1011, 1022)]
    assert len(report["problems"]) == 4


@pytest.mark.parametrize("metal, status, default, listed, name", [
    ("", OK, True, 1, "Apple Paravirtual device"),
    ("no-default", OK, False, 1, "Apple Paravirtual device"),
    ("no-list", OK, True, 1, "Apple Paravirtual device"),
    ("empty-list", OK, True, 0, "Apple Paravirtual device"),
    ("needs-coregraphics", OK, True, 1, "Apple Paravirtual device"),
    ("no-device", NO_DEVICE, False, 0, None),
    ("real-gpu", PHYSICAL, True, 1, "Apple M1 Ultra"),
])
def test_r113_r114_r115_both_ways_to_find_a_device(guest, metal, status, default, listed, name):
    for expect in ([], ["--expect", "unlocked"]) if status == NO_DEVICE else ([],):
        code, report = guest.probe(*expect, metal=metal, insert=False)
        assert (code, report["default_device"], report["listed_devices"]) == (status, default, listed)
        assert (report["device"] or {}).get("name") == name


def test_other_devices_are_reported_with_their_own_answers(guest):
    report = guest.probe(metal="sibling", **UNLOCK)[1]
    assert report["device"]["highest_apple_family"] == 1009
    [other] = report["other_devices"]
    assert other["class"][0] == "LabSiblingDevice" and other["highest_apple_family"] == 1005


@pytest.mark.parametrize("metal, expected", [("residency", ("object", None)), ("", ("nil", None)),
                                             ("residency-error", ("error", "Unable to construct residency set."))])
def test_residency_set_creation(guest, metal, expected):
    device = guest.probe(metal=metal, insert=False)[1]["device"]
    assert (device["residency_set"], device["residency_error"]) == expected


def results(report):
    return {name: check["result"] for name, check in report["functional"].items()}


def test_functional_checks_pass(guest):
    status, report = guest.probe("--functional", "--expect", "unlocked", **UNLOCK)
    assert results(report) == {"simd_sum": "pass", "simd_matrix": "pass", "bfloat": "pass"}
    assert status == OK


@pytest.mark.parametrize("metal, failing", [
    ("kernels-fail", {"simd_sum", "simd_matrix", "bfloat"}), ("kernels-wrong", {"simd_sum", "simd_matrix", "bfloat"}),
    ("no-compiler", {"simd_sum", "simd_matrix", "bfloat"}),
    ("fail-simd", {"simd_sum"}), ("fail-matrix", {"simd_matrix"}), ("fail-bfloat", {"bfloat"}),
])
def test_functional_failures_are_a_status_of_their_own(guest, metal, failing):
    status, report = guest.probe("--functional", "--expect", "unlocked", metal=metal, **UNLOCK)
    assert (status, report["exit_status"]) == (FUNCTIONAL, FUNCTIONAL)
    assert {name for name, result in results(report).items() if result != "pass"} == failing
    assert all(report["functional"][name]["message"] for name in failing)


def test_no_device_stays_no_device_with_functional_checks(guest):
    assert guest.probe("--functional", metal="no-device", insert=False)[0] == NO_DEVICE


def test_self_test(guest):
    result = guest.run(PROBE, "--self-test", insert=False)
    assert result.returncode == 0 and json.loads(result.stdout)["self_test"] == "passed"


def test_table_for_people(guest):
    result = guest.run(PROBE, "--text", "--functional", **UNLOCK)
    assert result.returncode == UNLOCKED and result.stderr == ""
    lines = result.stdout.splitlines()
    assert lines[0].startswith(f"unlocked  ({guest.slice}, pid ")
    assert "  Apple family        1009" in lines and "  threadgroup memory  65536 bytes" in lines
    assert all(len(line) <= 100 and line.isprintable() for line in lines)
    result = guest.run(PROBE, "--text", "--expect", "unlocked", insert=False)
    assert result.returncode == NOT_AS_EXPECTED and "problem" in result.stdout
    assert guest.run(PROBE, "--text", metal="no-device", insert=False).returncode == NO_DEVICE


@pytest.mark.parametrize("arguments", [
    ["--expect"], ["--expect", "fast"], ["--ceiling", "1010"], ["--ceiling", "0x3f1"], ["--ceiling", ""], ["--nonsense"],
    ["stock"], ["--threadgroup-memory", "64k"], ["--receipt", ""], ["--text", "--ceiling"],
])
def test_wrong_usage(guest, arguments):
    result = guest.run(PROBE, *arguments, insert=False)
    assert result.returncode == USAGE and result.stdout == "" and result.stderr.startswith("usage: lumelift-probe")


def test_help_and_version(guest):
    assert guest.run(PROBE, "--help", insert=False).stdout.startswith("usage: lumelift-probe")
    assert guest.run(PROBE, "--version", insert=False).stdout == "lumelift-probe 0.1.0\n"


def test_variables_with_odd_bytes_are_still_valid_json(guest):
    report = guest.probe(insert=False, LUMELIFT_ONLY='a"b\\c\n', LUMELIFT_TRACE="é\udcff")[1]
    assert report["variables"]["LUMELIFT_ONLY"] == 'a"b\\c\n'
    assert report["variables"]["LUMELIFT_TRACE"] == "é\ufffd"


def test_endless_variables_do_not_break_the_report(guest):
    report = guest.probe(insert=False, LUMELIFT_ONLY="\x01" * 100_000, LUMELIFT_VERBOSE="v" * 100_000)[1]
    assert report["variables"]["LUMELIFT_ONLY"] == "\x01" * 2047
    assert report["variables"]["LUMELIFT_VERBOSE"] == "v" * 2047
