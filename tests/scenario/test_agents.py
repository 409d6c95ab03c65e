"""`agents` and `logs`: what lumelift runs in a guest, stopped, started, removed and read. R47, R51, R53, R57, R58, R59, R74, R118."""

import plistlib
import signal
import socket
import time

import pytest

from product import BUILD, LABEL, Lab, guest_home, run, start, workload


@pytest.fixture
def lab(tmp_path):
    with Lab(tmp_path / "lab", build=BUILD) as made:
        made.add_vm("ci-1", running=True, arch="x86_64")
        made.start()
        made.pristine = made.snapshot()
        assert run(made, "unlock", "ci-1", "--workload", workload(tmp_path / "w")).rc == 0
        yield made


def agent(lab):
    done = run(lab, "--json", "agents", "ci-1")
    assert done.rc == 0, done
    agents = done.json["agents"]
    return agents[0] if agents else None


def logs(lab):
    return guest_home(lab, "ci-1") / ".local/share/lumelift/server/run"


def test_stop_and_start_and_the_rollback_of_both(lab):
    first = agent(lab)
    assert (first["label"], first["state"], first["library"]) == (LABEL, "running", "active")
    assert run(lab, "agents", "ci-1", "stop", LABEL).rc == 0
    stopped = agent(lab)
    assert (stopped["state"], stopped["pid"], stopped["expected"]) == ("stopped", None, False)
    assert "already" in run(lab, "agents", "ci-1", "stop", LABEL).out
    # A stop that was asked for is no drift.
    assert run(lab, "--json", "status", "ci-1").json["vms"][0]["unlocked"] == "yes"
    begun = run(lab, "--json", "agents", "ci-1", "start", LABEL)
    assert begun.rc == 0 and begun.json["changed"] and begun.json["agent"]["library"] == "active", begun
    assert begun.json["agent"]["pid"] != first["pid"]
    assert "already" in run(lab, "agents", "ci-1", "start", LABEL).out
    assert run(lab, "agents", "ci-1", "stop", LABEL).rc == 0
    loads = count(lab, "bootstrap")
    assert run(lab, "rollback", "ci-1").rc == 0
    assert count(lab, "bootstrap") == loads, "an agent that is to go was loaded once more"
    assert lab.snapshot() == lab.pristine


def count(lab, verb):
    return sum(1 for call in lab.calls("launchctl") if call["argv"][:1] == [verb])


def test_restart_gives_a_new_process_and_leaves_no_trace_in_the_journal(lab):
    before = agent(lab)["pid"]
    done = run(lab, "--json", "agents", "ci-1", "restart", LABEL)
    assert done.rc == 0 and done.json["agent"]["pid"] != before and done.json["agent"]["library"] == "active", done
    assert run(lab, "rollback", "ci-1").rc == 0
    assert lab.snapshot() == lab.pristine


def test_an_agent_that_somebody_else_unloaded_is_started_again(lab):
    assert lab.ssh("ci-1", f"/bin/launchctl bootout gui/501/{LABEL}").returncode == 0
    assert agent(lab)["state"] == "not loaded"
    assert run(lab, "agents", "ci-1", "start", LABEL).rc == 0
    assert agent(lab)["state"] == "running"
    assert run(lab, "rollback", "ci-1").rc == 0
    assert lab.snapshot() == lab.pristine


def test_remove_takes_agent_and_plist_and_rollback_the_rest(lab):
    assert run(lab, "agents", "ci-1", "remove", LABEL).rc == 0
    assert agent(lab) is None
    assert not (guest_home(lab, "ci-1") / f"Library/LaunchAgents/{LABEL}.plist").exists()
    assert (guest_home(lab, "ci-1") / ".local/share/lumelift/server/model.gguf").exists()
    assert run(lab, "--json", "verify", "ci-1").rc == 0
    assert run(lab, "rollback", "ci-1").rc == 0
    assert lab.snapshot() == lab.pristine


def test_a_crash_between_stop_and_start_is_taken_back(lab):
    lab.fault("launchctl", match="bootout", times=1, kill_parent="after")
    died = run(lab, "agents", "ci-1", "restart", LABEL)
    lab.clear_faults()
    assert died.rc == -signal.SIGKILL, died
    assert run(lab, "agents", "ci-1", "start", LABEL).rc == 0
    assert agent(lab)["state"] == "running"
    assert run(lab, "rollback", "ci-1").rc == 0
    assert lab.snapshot() == lab.pristine


def test_unknown_labels_and_verbs(lab):
    done = run(lab, "agents", "ci-1", "stop", LABEL[:-1])
    assert done.rc == 2 and done.error_id == "agent-unknown" and f"did you mean '{LABEL}'" in done.err, done
    assert run(lab, "agents", "ci-1", "stop").error_id == "label-missing"
    assert run(lab, "agents", "ci-1", "explode", LABEL).error_id == "usage"


def test_a_log_full_of_control_characters_does_no_harm(lab):
    evil = b"\x1b]0;title\x07\x1b[2J\x9b31m\xe2\x80\xae\xff\r" + b"x" * 500 + b"\n"
    (logs(lab) / "stderr.log").write_bytes(evil * 50)
    done = run(lab, "logs", "ci-1", LABEL)
    lines = [line for line in done.out.splitlines() if line.startswith("err  ")]
    assert done.rc == 0 and len(lines) == 50 and "x" * 500 in lines[0], done
    assert not [c for c in done.out if ord(c) < 32 and c not in "\n\t" or 0x7f <= ord(c) < 0xa0 or c == "\u202e"]


def test_since_keeps_what_is_young_enough(lab):
    now = time.time()
    stamp = lambda age: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now - age))  # noqa: E731
    (logs(lab) / "stderr.log").write_text(f"{stamp(7200)} old\n  of old\n{stamp(60)} new\n  of new\n")
    out = run(lab, "logs", "ci-1", LABEL, "--since", "1h").out
    assert "new" in out and "of new" in out and "old" not in out
    assert "old" in run(lab, "logs", "ci-1", LABEL, "--since", "1d").out
    assert run(lab, "logs", "ci-1", LABEL, "--since", "soon").error_id == "duration-invalid"


def test_a_long_log_is_read_from_its_end(lab):
    (logs(lab) / "stderr.log").write_text("".join(f"line {n:07}\n" for n in range(200_000)))
    done = run(lab, "--json", "logs", "ci-1", LABEL)
    text = done.json["stderr"]["text"]
    assert text.endswith("line 0199999\n") and text.startswith("line ") and len(text) <= 1 << 20


def test_follow_shows_what_comes_and_survives_rotation(lab):
    log = logs(lab) / "stderr.log"
    log.write_text("first\n")
    child = start(lab, "logs", "ci-1", LABEL, "-f", bufsize=1)
    try:
        assert until(child, "err  first")
        with open(log, "a") as file:
            file.write("second\nhalf")
        assert until(child, "err  second")
        with open(log, "a") as file:
            file.write(" and half\n")
        assert until(child, "err  half and half")
        log.write_text("new\n")
        assert until(child, "err  new")
    finally:
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=20)
    assert child.returncode == 0, err


def until(child, text):
    """Reads lines until one is `text`; the test's own time limit ends what never comes."""
    for line in child.stdout:
        if line.rstrip("\n") == text:
            return True
    return False


PROGRAMS = ("lab-llama-server", "lab-ignore", "lab-crash")


def write_workload(folder, text):
    folder.mkdir()
    for name in PROGRAMS:
        (folder / name).write_bytes((BUILD / "tests/lab/workloads" / name).read_bytes())
        (folder / name).chmod(0o755)
    (folder / "model.gguf").write_bytes(b"GGUF\3\0\0\0" + bytes(20_000))
    (folder / "w.yaml").write_text("schema: 1\n" + text)
    return folder / "w.yaml"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def bare(tmp_path):
    with Lab(tmp_path / "bare", build=BUILD) as made:
        made.add_vm("ci-1", running=True, arch="x86_64")
        made.start()
        made.pristine = made.snapshot()
        yield made


def test_several_agents_of_one_workload(bare, tmp_path):
    port = free_port()
    path = write_workload(tmp_path / "w", f"""name: stack
files: [{{ from: model.gguf }}]
agents:
  - name: front
    executable: {{ host: ./lab-llama-server }}
    arguments: [--model, model.gguf, --port, {port}]
    ready: {{ port: {port} }}
  - name: back
    executable: {{ host: ./lab-llama-server }}
    arguments: [--model, model.gguf]
    ready: {{ log: "server is listening on nothing" }}
  - name: third
    executable: {{ host: ./lab-ignore }}
    arguments: [--serve]
    ready: {{ command: [/bin/test, -d, /tmp] }}
""")
    done = run(bare, "--json", "unlock", "ci-1", "--workload", path)
    assert done.rc == 0, done
    assert [a["library"] for a in done.json["agents"]] == ["active", "active", "armed"] and "agent" not in done.json
    assert f"listens on port {port}" in done.err and "its log says" in done.err and "/bin/test ended with 0" in done.err, done
    labels = [a["label"] for a in done.json["agents"]]
    assert labels == ["io.lumelift.stack.front", "io.lumelift.stack.back", "io.lumelift.stack.third"]
    for label in labels:
        plist = plistlib.loads((guest_home(bare, "ci-1") / f"Library/LaunchAgents/{label}.plist").read_bytes())
        assert plist["ProcessType"] == "Interactive"
    assert "nothing to change" in run(bare, "unlock", "ci-1", "--workload", path).out

    def reds():
        report = run(bare, "--json", "verify", "ci-1").json
        return [check["evidence"].split(":")[0].split(" ")[0] for check in report["checks"] if not check["passed"]]
    assert reds() == []
    for name in ("front", "back", "third"):
        receipt = guest_home(bare, "ci-1") / f".local/share/lumelift/stack/run/{name}.receipt.json"
        kept = receipt.read_bytes()
        receipt.unlink()
        assert reds() == [f"io.lumelift.stack.{name}"]
        receipt.write_bytes(kept)
        receipt.chmod(0o600)
    # One goes, the others stay as they are.
    pids = {a["label"]: a["pid"] for a in run(bare, "--json", "agents", "ci-1").json["agents"]}
    assert run(bare, "agents", "ci-1", "stop", labels[1]).rc == 0
    again = run(bare, "--json", "agents", "ci-1", "restart", labels[0])
    assert again.rc == 0 and f"listens on port {port}" in again.err, again
    now = {a["label"]: a["pid"] for a in run(bare, "--json", "agents", "ci-1").json["agents"]}
    assert now[labels[1]] is None and now[labels[2]] == pids[labels[2]] and now[labels[0]] != pids[labels[0]]
    assert run(bare, "agents", "ci-1", "start", labels[1]).rc == 0
    assert run(bare, "rollback", "ci-1").rc == 0
    assert bare.snapshot() == bare.pristine


@pytest.mark.parametrize("ready, why", [("{ port: 1, within: 1 }", "nothing listens on port 1"), ("{ log: never, within: 1 }", "stands in neither of its logs"),
                                        ("{ command: [/bin/test, -d, /nowhere], within: 1 }", "ended with")], ids=["port", "log", "command"])
def test_one_that_does_not_get_ready_is_taken_back(bare, tmp_path, ready, why):
    path = write_workload(tmp_path / "w", f"name: s\nexecutable: {{ host: ./lab-llama-server }}\nready: {ready}\n")
    done = run(bare, "unlock", "ci-1", "--workload", path)
    assert done.rc == 5 and done.error_id == "workload-not-ready" and why in done.err, done
    assert bare.snapshot() == bare.pristine


def test_a_port_of_somebody_else_is_not_ready(bare, tmp_path):
    port = free_port()
    path = write_workload(tmp_path / "w", f"""name: stack
agents:
  - {{ name: owner, executable: {{ host: ./lab-llama-server }}, arguments: [--port, {port}] }}
  - {{ name: other, executable: {{ host: ./lab-ignore }}, arguments: [--serve], ready: {{ port: {port}, within: 1 }} }}
""")
    done = run(bare, "unlock", "ci-1", "--workload", path)
    assert done.rc == 5 and done.error_id == "workload-not-ready" and "belongs to pid" in done.err, done
    assert bare.snapshot() == bare.pristine


def test_one_that_crashes_when_unlocked_is_told_with_its_last_words(bare, tmp_path):
    path = write_workload(tmp_path / "w", "name: s\nexecutable: { host: ./lab-crash }\n")
    done = run(bare, "unlock", "ci-1", "--workload", path)
    assert done.rc == 5 and done.error_id == "agent-exits" and "Unable to construct residency set" in done.err, done
    assert bare.snapshot() == bare.pristine


def test_last_words_are_the_last_of_a_long_log(bare, tmp_path):
    path = write_workload(tmp_path / "w", "name: s\nexecutable: { host: ./lab-crash }\narguments: [--chatter]\n")
    done = run(bare, "unlock", "ci-1", "--workload", path)
    assert done.rc == 5 and done.error_id == "agent-exits", done
    said = [line.strip() for line in done.err.splitlines() if line.startswith("  it said: ")]
    assert said[-1] == "it said: [metal::Device] Unable to construct residency set."
    assert set(said[:-1]) == {"it said: one of very many lines of a chatty log"} and len(said) < 15
    assert bare.snapshot() == bare.pristine


def test_a_readiness_command_that_is_none_is_not_waited_for(bare, tmp_path):
    path = write_workload(tmp_path / "w", "name: s\nexecutable: { host: ./lab-ignore }\narguments: [--serve]\n"
                                          "ready: { command: [/usr/bin/no-such-tool], within: 600 }\n")
    done = run(bare, "unlock", "ci-1", "--workload", path)
    assert done.rc == 5 and done.error_id == "workload-not-ready" and "cannot be run: /usr/bin/no-such-tool ended with" in done.err, done
    assert "whole path" in done.err and bare.snapshot() == bare.pristine


def test_logs_are_rotated_before_a_start_and_on_request(lab):
    log = logs(lab) / "stderr.log"
    log.write_bytes(b"old\n" * (9 << 18))
    assert "rotated" in run(lab, "agents", "ci-1", "restart", LABEL).err
    assert (logs(lab) / "stderr.log.1").stat().st_size == 9 << 20 and log.stat().st_size < 1 << 20
    for number in range(1, 6):
        with open(log, "a") as file:
            file.write(f"part {number}\n")
        done = run(lab, "--json", "agents", "ci-1", "rotate", LABEL)
        assert done.rc == 0 and done.json["changed"], done
    kept = sorted(path.name for path in logs(lab).glob("stderr.log.*"))
    assert kept == ["stderr.log.1", "stderr.log.2", "stderr.log.3"]
    assert [(logs(lab) / name).read_text().splitlines()[-1] for name in kept] == ["part 5", "part 4", "part 3"]
    # The process goes on writing to the emptied file, at its start.
    assert b"\0" not in log.read_bytes()
    assert run(lab, "rollback", "ci-1").rc == 0
    assert lab.snapshot() == lab.pristine
