"""The injected library as executed bytes: both slices, on a real Objective-C runtime with a simulated Metal."""
import json
import os
import re
import shutil

import pytest

from conftest import ASKER, LIBRARY

CEILING = "LUME_METAL_APPLE_FAMILY_MAX"
MEMORY = "LUME_METAL_MAX_THREADGROUP_MEMORY"
SET = "LUME_METAL_RECOMMENDED_WORKING_SET_SIZE"
ALWAYS = "2002 3001 3002 3003"


def answer(highest=1005, memory=32768, working_set=11453246122, name="AppleParavirtDevice"):
    families = " ".join(str(family) for family in range(1001, highest + 1))
    return f"{name}: {families} {ALWAYS} memory {memory} set {working_set}"


STOCK = answer()


# --- the configuration table -----------------------------------------------------------------------------------------

RAISING = [
    ({CEILING: "1009"}, answer(1009, 65536)),
    ({CEILING: "1009", MEMORY: "65536"}, answer(1009, 65536)),
    ({CEILING: "1007", MEMORY: "0"}, answer(1007)),
    ({CEILING: "1007", MEMORY: "32768"}, answer(1007)),
    ({CEILING: "1006", MEMORY: "1"}, answer(1006)),
    ({CEILING: "1001", MEMORY: "0"}, answer(1005)),
    ({CEILING: "1005"}, answer(1005, 65536)),
    ({CEILING: "1008", MEMORY: "49152", SET: "0"}, answer(1008, 49152)),
    ({CEILING: "1009", SET: "20000000000"}, answer(1009, 65536, 20000000000)),
    ({CEILING: "1009", SET: "1"}, answer(1009, 65536)),
    ({CEILING: "1009", "LUMELIFT_ONLY": "asker"}, answer(1009, 65536)),
    ({CEILING: "1009", "LUMELIFT_ONLY": "other,asker,more"}, answer(1009, 65536)),
    ({CEILING: "1009", "LUMELIFT_INHERIT": "1", "LUMELIFT_VERBOSE": "0"}, answer(1009, 65536)),
]


@pytest.mark.parametrize("variables, expected", RAISING)
def test_answers_are_raised(guest, variables, expected):
    assert guest.ask(**variables) == [expected]
    receipt = guest.read_receipt()
    assert (receipt["outcome"], receipt["reason"]) == ("active", None)
    assert receipt["slice"] == guest.slice
    assert receipt["device_class"] == "AppleParavirtDevice"
    assert receipt["ceiling"] == int(variables[CEILING])


MALFORMED = ["", " ", " 1009", "1009 ", "\t1009", "1009\n", "+1009", "-1009", "-1", "0x3f1", "01009", "00", "1009.0",
             "1,009", "1e3", "true", "Apple9", "1009abc", "18446744073709551616", "9" * 40, "1009;", "-0"]
STAYING = (
    [({CEILING: value}, "ceiling-malformed") for value in MALFORMED]
    + [({CEILING: "1009", MEMORY: value}, "threadgroup-malformed") for value in MALFORMED]
    + [({CEILING: "1009", SET: value}, "working-set-malformed") for value in MALFORMED]
    + [({CEILING: "1009", "LUMELIFT_INHERIT": value}, "inherit-malformed") for value in ("", "2", "00", "no", "1 ")]
    + [({CEILING: "1009", "LUMELIFT_VERBOSE": value}, "verbose-malformed") for value in ("", "2", "yes")]
    + [({CEILING: "1009", "LUMELIFT_ONLY": value}, "only-malformed") for value in ("", ",", "asker,", "/bin/asker")]
    + [({CEILING: "1009", "LUMELIFT_ONLY": value}, "program-not-listed") for value in ("other", "aske", "Asker", " asker")]
    + [({CEILING: "1009", "LUMELIFT_TRACE": value}, "trace-malformed") for value in ("", "/" + "x" * 1100)]
    + [({CEILING: value}, "ceiling-out-of-range") for value in ("1", "1000", "1010", "1021", "2001", "5001")]
    + [({CEILING: "0"}, "ceiling-zero"), ({}, "ceiling-absent"), ({MEMORY: "65536"}, "ceiling-absent"),
       ({CEILING: "1009", MEMORY: "1048577"}, "threadgroup-out-of-range"),
       ({CEILING: "1009", MEMORY: "18446744073709551615"}, "threadgroup-out-of-range"),
       ({CEILING: "1009", SET: "1125899906842625"}, "working-set-out-of-range")])


@pytest.mark.parametrize("variables, reason", STAYING)
def test_process_stays_stock_and_says_why(guest, variables, reason):
    assert guest.ask(**variables) == [STOCK]
    receipt = guest.read_receipt()
    assert (receipt["outcome"], receipt["reason"]) == ("stock", reason)
    assert receipt["before"] is None and receipt["device_class"] is None


def test_without_configuration_or_library_nothing_happens(guest):
    assert guest.ask(receipt=False) == [STOCK]
    assert guest.ask(insert=False, **{CEILING: "1009"}) == [STOCK]
    assert os.listdir(guest.folder) == []


def test_metal_is_not_loaded_unless_it_is_wanted(guest):
    assert guest.ask("metal", **{CEILING: "1009"}) == ["present"]
    for variables in ({}, {CEILING: "0"}, {CEILING: "x"}, {CEILING: "1009", "LUMELIFT_ONLY": "other"}):
        assert guest.ask("metal", **variables) == ["absent"]


# --- each way to fail, all or nothing ---------------------------------------------------------------------------------

FAILURES = [
    ("no-class", "base-class-missing", "_MTLDevice"),
    ("no-init-method", "init-method-missing", "initGPUFamilySupport"),
    ("bad-encoding-init", "init-method-encoding", "initGPUFamilySupport"),
    ("no-paravirt-class", "device-not-paravirtual", None),
    ("real-gpu", "device-not-paravirtual", None),
    ("no-memory-method", "method-missing", "maxThreadgroupMemoryLength"),
    ("bad-encoding", "method-encoding", "supportsFamily:"),
    ("bad-encoding-memory", "method-encoding", "maxThreadgroupMemoryLength"),
    ("own-methods,bad-encoding", "method-encoding", "supportsFamily:"),
    ("own-methods,bad-encoding-memory", "method-encoding", "maxThreadgroupMemoryLength"),
]


@pytest.mark.parametrize("metal, reason, detail", FAILURES)
def test_unexpected_classes_leave_everything_stock(guest, metal, reason, detail):
    stock = guest.ask(metal=metal, receipt=False, insert=False)
    assert guest.ask(metal=metal, **{CEILING: "1009", SET: "20000000000"}) == stock
    receipt = guest.read_receipt()
    assert (receipt["outcome"], receipt["reason"], receipt["detail"]) == ("stock", reason, detail)


def test_a_missing_method_that_is_not_wanted_does_no_harm(guest):
    assert guest.ask(metal="no-memory-method", **{CEILING: "1007", MEMORY: "0"}) == [answer(1007, 0)]


def test_missing_family_method_is_named(guest):
    guest.run(ASKER, "ask", metal="no-family-method", **{CEILING: "1009"})
    receipt = guest.read_receipt()
    assert (receipt["reason"], receipt["detail"]) == ("method-missing", "supportsFamily:")


def test_armed_until_a_device_is_made(guest):
    assert guest.ask("metal", **{CEILING: "1009"}) == ["present"]
    receipt = guest.read_receipt()
    assert (receipt["outcome"], receipt["before"], receipt["device_class"]) == ("armed", None, None)


# --- whose answers change ---------------------------------------------------------------------------------------------

@pytest.mark.parametrize("shape", ["", "own-methods", "middle-class", "middle-class,own-methods"])
def test_sibling_class_keeps_its_stock_answers(guest, shape):
    metal = ",".join(word for word in (shape, "sibling") if word)
    answers = guest.ask("list", metal=metal, **{CEILING: "1009"})
    assert answers == [answer(1009, 65536), answer(name="LabSiblingDevice")]


@pytest.mark.parametrize("shape, owners", [
    ("sibling", ["AppleParavirtDevice", "_MTLDevice", "LabSiblingDevice", "_MTLDevice"]),
    ("sibling,middle-class", ["AppleParavirtDevice", "IOGPUMetalDevice", "_MTLDevice", "LabSiblingDevice", "_MTLDevice"]),
    ("sibling,own-methods", ["AppleParavirtDevice", "_MTLDevice", "LabSiblingDevice", "_MTLDevice"]),
])
def test_only_the_concrete_class_gets_a_new_method(guest, shape, owners):
    expected = [f"{name} {LIBRARY.name if name == 'AppleParavirtDevice' else 'Metal'}" for name in owners]
    assert guest.ask("owners", metal=shape, **{CEILING: "1009"}) == expected


@pytest.mark.parametrize("metal", ["", "own-methods"])
def test_an_object_of_a_class_below_gets_stock_answers(guest, metal):
    variables = {CEILING: "1009", SET: "20000000000"}
    assert guest.ask("subclass", metal=metal, **variables) == [answer(1009, 65536, 20000000000),
                                                              answer(name="SubclassOfTheTest")]
    assert guest.ask("subclass", metal=metal, LUMELIFT_TRACE=guest.trace, **variables)[1] == answer(name="SubclassOfTheTest")


@pytest.mark.parametrize("metal", ["two-devices", "two-devices,own-methods", "two-devices,fresh-devices"])
def test_a_second_device_of_the_class_is_raised_too(guest, metal):
    assert guest.ask("list", metal=metal, **{CEILING: "1009"}) == [answer(1009, 65536)] * 2


def test_a_real_gpu_keeps_its_own_answers(guest):
    stock = guest.ask(metal="real-gpu", insert=False, receipt=False)
    assert "1007" in stock[0] and "5001" in stock[0]
    assert guest.ask(metal="real-gpu", **{CEILING: "1009", SET: "20000000000"}) == stock
    assert guest.read_receipt()["device_class"] == "AGXG13XDevice"


def test_a_real_gpu_is_noted_once(guest):
    result = guest.run(ASKER, "threads", "4", metal="real-gpu,fresh-devices", LUMELIFT_VERBOSE="1", **{CEILING: "1009"})
    [armed, *noted] = result.stderr.splitlines()
    assert armed.endswith(" armed")
    assert 1 <= len(noted) <= 4 and set(noted) == {noted[0]}
    result = guest.run(ASKER, "list", metal="real-gpu,fresh-devices", LUMELIFT_VERBOSE="1", **{CEILING: "1009"})
    assert len(result.stderr.splitlines()) == 2


def test_original_yes_stays_yes(guest):
    answers = guest.ask(metal="metal3,hole", **{CEILING: "1006", MEMORY: "0"})[0]
    assert " 1006 1007 " in answers and " 5001" in answers


def test_more_memory_than_asked_for_stays(guest):
    assert guest.ask(metal="memory-131072", **{CEILING: "1009"}) == [answer(1009, 131072)]


@pytest.mark.parametrize("metal", ["fresh-devices", "", "fresh-devices,own-methods"])
def test_threads_that_make_devices_at_once_never_see_a_stock_or_torn_answer(guest, metal):
    for _ in range(60 if guest.slice == "x86_64" else 3):
        assert guest.ask("threads", "32", metal=metal, **{CEILING: "1009"}) == ["raised 32 stock 0 torn 0"]
        assert guest.read_receipt()["outcome"] == "active"


# --- silence ----------------------------------------------------------------------------------------------------------

def test_nothing_is_printed_unless_asked(guest):
    for variables in ({CEILING: "1009"}, {CEILING: "x"}, {CEILING: "1009", "LUMELIFT_TRACE": guest.trace}):
        result = guest.run(ASKER, "environment", **variables)
        assert (result.stdout, result.stderr) == ("", "")


def test_verbose_tells_each_change_on_stderr_only(guest):
    result = guest.run(ASKER, "ask", LUMELIFT_VERBOSE="1", **{CEILING: "1009"})
    assert result.stdout.splitlines() == [answer(1009, 65536)]
    lines = result.stderr.splitlines()
    assert re.fullmatch(r"lumelift: pid \d+ armed", lines[0])
    assert lines[1].endswith("active, device class AppleParavirtDevice, Apple family 1005 -> 1009")
    assert len(lines) == 2
    result = guest.run(ASKER, "ask", LUMELIFT_VERBOSE="1", **{CEILING: "0x3f1"})
    assert result.stderr.endswith("stock: ceiling-malformed\n")


# --- receipts ---------------------------------------------------------------------------------------------------------

def test_receipt_says_what_changed(guest):
    result = guest.run(ASKER, "ask", **{CEILING: "1009", SET: "20000000000"})
    assert result.returncode == 0
    receipt = guest.read_receipt()
    assert receipt["schema"] == 1 and receipt["library"] and receipt["pid"] > 0
    assert receipt["executable"] == str(ASKER)
    assert re.fullmatch(r"\d{10}\.\d{6}", receipt["started"])
    common = [2002, 3001, 3002, 3003]
    assert receipt["before"] == {"highest_apple_family": 1005, "families": [1001, 1002, 1003, 1004, 1005, *common],
                                 "max_threadgroup_memory": 32768, "recommended_working_set": 11453246122}
    assert receipt["after"] == {"highest_apple_family": 1009, "families": [*range(1001, 1010), *common],
                                "max_threadgroup_memory": 65536, "recommended_working_set": 20000000000}
    assert os.stat(guest.receipt).st_mode & 0o777 == 0o600
    assert os.listdir(guest.folder) == ["receipt.json"], "no temporary file stays"


def test_receipt_paths(guest):
    guest.ask(LUMELIFT_RECEIPT="relative.json", **{CEILING: "1009"})
    assert json.loads((guest.folder / "relative.json").read_text())["outcome"] == "active"
    guest.ask(LUMELIFT_RECEIPT=f"{guest.folder}/p-%p-%p.json", **{CEILING: "1009"})
    [path] = guest.folder.glob("p-*.json")
    pid = json.loads(path.read_text())["pid"]
    assert path.name == f"p-{pid}-{pid}.json"
    odd = guest.folder / 'a "b" \\ %q é.json'
    guest.ask(LUMELIFT_RECEIPT=odd, **{CEILING: "1009"})
    assert json.loads(odd.read_text())["outcome"] == "active"


def test_a_receipt_that_cannot_be_written_changes_nothing_else(guest):
    for path in (guest.folder / "missing" / "r.json", "/proc/r.json"):
        assert guest.ask(LUMELIFT_RECEIPT=path, **{CEILING: "1009"}) == [answer(1009, 65536)]
    for path in ("", "/" + "x" * 1100):
        assert guest.ask(LUMELIFT_RECEIPT=path, **{CEILING: "1009"}) == [STOCK]


def test_receipt_replaces_a_link_and_not_its_target(guest):
    target = guest.folder / "precious"
    target.write_text("keep")
    guest.receipt.symlink_to(target)
    guest.ask(**{CEILING: "1009"})
    assert target.read_text() == "keep" and not guest.receipt.is_symlink()


def test_a_program_that_is_not_meant_leaves_a_receipt_alone(guest):
    guest.ask(**{CEILING: "1009", "LUMELIFT_ONLY": "other"})
    assert guest.read_receipt()["reason"] == "program-not-listed"
    guest.receipt.write_text("the workload's own")
    guest.ask(**{CEILING: "1009", "LUMELIFT_ONLY": "other"})
    assert guest.receipt.read_text() == "the workload's own"
    assert os.listdir(guest.folder) == ["receipt.json"]


# --- children ---------------------------------------------------------------------------------------------------------

def run_child(guest, **options):
    child = guest.command(ASKER, "ask")
    child[0] = shutil.which(child[0])
    return guest.ask("run", *child, **options)


def test_children_inherit_by_default_but_not_the_receipt(guest):
    assert run_child(guest, **{CEILING: "1009"}) == [answer(1009, 65536)] * 2
    receipt = guest.read_receipt()
    assert (receipt["outcome"], receipt["pid"]) == ("active", guest.pid)


def test_each_process_writes_its_own_receipt_with_p(guest):
    run_child(guest, LUMELIFT_RECEIPT=f"{guest.folder}/%p.json", **{CEILING: "1009"})
    receipts = [json.loads(path.read_text()) for path in guest.folder.glob("*.json")]
    assert len(receipts) == 2
    assert all(receipt["outcome"] == "active" for receipt in receipts)


def test_children_start_stock_without_inheritance(guest):
    variables = {CEILING: "1009", MEMORY: "65536", "LUMELIFT_INHERIT": "0", "LUMELIFT_TRACE": guest.trace}
    assert run_child(guest, **variables) == [answer(1009, 65536), STOCK]
    assert guest.read_receipt()["inherit"] is False
    names = ["DYLD_INSERT_LIBRARIES", CEILING, MEMORY, SET, "LUMELIFT_ONLY", "LUMELIFT_INHERIT", "LUMELIFT_RECEIPT",
             "LUMELIFT_TRACE", "LUMELIFT_VERBOSE"]
    expected = [f"{name}=(absent)" for name in names] + ["PATH=/usr/bin:/bin"]
    assert guest.ask("environment", *names, "PATH", **variables) == expected


def test_inheritance_ends_only_with_activation(guest):
    for variables in ({CEILING: "x"}, {CEILING: "1009", "LUMELIFT_ONLY": "other"}):
        lines = guest.ask("environment", CEILING, "LUMELIFT_INHERIT", "DYLD_INSERT_LIBRARIES", LUMELIFT_INHERIT="0", **variables)
        assert lines == [f"{CEILING}={variables[CEILING]}", "LUMELIFT_INHERIT=0", f"DYLD_INSERT_LIBRARIES={LIBRARY}"]


def test_other_inserted_libraries_stay(guest):
    others = [guest.folder / "one.dylib", guest.folder / "two.dylib"]
    for other in others:
        shutil.copy(LIBRARY, other)  # inert copies: a library that has seen no configuration does nothing
    chain = f"{others[0]}:{LIBRARY}:{others[1]}"
    result = guest.run(ASKER, "environment", "DYLD_INSERT_LIBRARIES", library=chain, LUMELIFT_INHERIT="0",
                       LUMELIFT_ONLY="asker", **{CEILING: "1009"})
    # The first copy takes itself out and, with its variables gone, the others have nothing to do.
    assert result.stdout == f"DYLD_INSERT_LIBRARIES={LIBRARY}:{others[1]}\n"


def test_a_forked_child_does_not_write_its_parents_files(guest):
    assert guest.ask("fork", LUMELIFT_TRACE=guest.trace, **{CEILING: "1009"}) == [answer(1009, 65536)] * 101
    trace = guest.read_trace()
    assert trace["pid"] == guest.read_receipt()["pid"] == guest.pid
    assert {query["count"] for query in trace["queries"]} == {1}
    assert trace["complete"] is False


# --- traces -----------------------------------------------------------------------------------------------------------

def query(trace, selector, argument=None):
    [found] = [q for q in trace["queries"] if (q["selector"], q["argument"]) == (selector, argument)]
    return found["stock"], found["given"], found["count"]


@pytest.mark.parametrize("variables, raised", [({CEILING: "1007"}, True), ({CEILING: "0"}, False), ({}, False)])
def test_trace_tells_stock_answer_given_answer_and_count(guest, variables, raised):
    lines = guest.ask("ask", "3", LUMELIFT_TRACE=guest.trace, **variables)
    assert lines == [answer(1007, 65536) if raised else STOCK] * 3
    trace = guest.read_trace()
    assert trace["complete"] is True and trace["lost"] == 0
    assert query(trace, "supportsFamily:", 1005) == (True, True, 3)
    assert query(trace, "supportsFamily:", 1007) == (False, raised, 3)
    assert query(trace, "supportsFamily:", 1009) == (False, False, 3)
    assert query(trace, "supportsFamily:", 5001) == (False, False, 3)
    assert query(trace, "maxThreadgroupMemoryLength") == (32768, 65536 if raised else 32768, 3)
    assert query(trace, "recommendedMaxWorkingSetSize") == (11453246122, 11453246122, 3)
    receipt = guest.read_receipt()
    assert receipt["tracing"] is True and receipt["outcome"] == ("active" if raised else "stock")


def test_trace_of_a_killed_process_has_every_question(guest):
    guest.ask("wait", "1", LUMELIFT_TRACE=guest.trace)
    trace = guest.read_trace()
    assert trace["complete"] is False
    assert query(trace, "supportsFamily:", 1009)[2] == 1
    assert len(trace["queries"]) == 42


def test_malformed_configuration_is_not_traced(guest):
    assert guest.ask(LUMELIFT_TRACE=guest.trace, **{CEILING: "x"}) == [STOCK]
    assert not guest.trace.exists()


def test_traces_of_threads_count_everything(guest):
    guest.ask("threads", "32", metal="fresh-devices", LUMELIFT_TRACE=guest.trace, **{CEILING: "1009"})
    trace = guest.read_trace()
    assert query(trace, "supportsFamily:", 1009) == (False, True, 32)
    assert query(trace, "maxThreadgroupMemoryLength") == (32768, 65536, 32)
