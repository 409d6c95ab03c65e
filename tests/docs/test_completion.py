"""Completion, tried in the shells themselves, with the names of a lab's VMs."""

import os
import pathlib
import pty
import re
import select
import subprocess
import time

import pytest

from product import BUILD, LUMELIFT

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "templates/completions"


@pytest.fixture
def there(lab):
    lab.add_vm("ci-1")
    lab.add_vm("ci-2")
    lab.add_vm("with blank")
    lab.start()
    return {**lab.env(), "PATH": f"{lab.env()['PATH']}:{BUILD}", "TERM": "dumb"}


def ask(env, *words, cwd=None):
    done = subprocess.run([LUMELIFT, "complete", "--", *words], env=env, cwd=cwd, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return [line.split("\t")[0] for line in done.stdout.splitlines()]


def test_candidates(there):
    assert {"unlock", "rollback", "status"} <= set(ask(there, ""))
    assert "complete" not in ask(there, "") and "reference" not in ask(there, "")
    assert ask(there, "unl") == ["unlock"]
    assert ask(there, "unlock", "") == ["ci-1", "ci-2", "with blank"]
    assert ask(there, "unlock", "ci-1", "") == []
    assert ask(there, "unlock", "--res") == ["--restart"]
    assert ask(there, "unlock", "--restart", "") == ["auto", "always", "never", "idle"]
    assert ask(there, "unlock", "--restart=n") == ["--restart=never"]
    assert ask(there, "unlock", "--restart", "=", "n") == ["never"]
    assert ask(there, "unlock", "--profile", "") == ["minimal", "tested", ":files"]
    assert ask(there, "--color", "al") == ["always"]
    assert ask(there, "unlock", "--workload", "") == [":files"]
    assert ask(there, "run", "ci-1", "--", "") == [":files"]
    assert ask(there, "unlock", "--restart", "auto", "ci-1", "--res") == [], "given once"
    assert ask(there, "nonsense", "x", "") == []


def test_a_lume_that_hangs_costs_little(lab, there):
    lab.fault("lume", match="ls", hang=True)
    began = time.monotonic()
    assert ask(there, "unlock", "") == []
    assert time.monotonic() - began < 5
    lab.clear_faults()
    assert {call["tool"] for call in lab.calls("lume")} == {"lume"} and not lab.calls("guest")


def test_names_that_a_terminal_must_not_see(lab, there):
    lab.fault("lume", match="ls", stdout='[{"name":"a\\nb","os":"macOS","status":"stopped"},{"name":"ok","os":"macOS","status":"stopped"}]\n', exit=0)
    assert ask(there, "unlock", "") == ["ok"]


BASH = r"""
source {script}
complete_line() {{  # words before the cursor, the last one being typed
  COMP_WORDS=(lumelift "$@") COMP_CWORD=$# COMP_LINE="lumelift $*" COMP_POINT=${{#COMP_LINE}}
  _lumelift; printf '%s\n' "${{COMPREPLY[@]}}"; echo .
}}
complete_line unl
complete_line unlock ci
complete_line unlock --restart = al
complete_line unlock wi
complete_line unlock --workload mod
complete -p lumelift
"""


def test_bash(there, tmp_path):
    (tmp_path / "model.yaml").touch()
    done = subprocess.run(["bash", "--norc", "-c", BASH.format(script=SCRIPTS / "lumelift.bash")], env=there, cwd=tmp_path,
                          capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout == "unlock\n.\nci-1\nci-2\n.\nalways\n.\nwith\\ blank\n.\nmodel.yaml\n.\ncomplete -F _lumelift lumelift\n"


class Terminal:
    """A shell on a terminal of its own; `type` presses keys and gives back what appears until it is quiet."""

    def __init__(self, argv, env, cwd):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            os.execvpe(argv[0], argv, env)

    def until(self, wanted, limit=20):
        text, end = "", time.monotonic() + limit
        while time.monotonic() < end:
            if select.select([self.fd], [], [], 0.2)[0]:
                try:
                    text += os.read(self.fd, 65536).decode(errors="replace")
                except OSError:
                    break
            if re.search(wanted, re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\r", "", text)):
                return text
        raise AssertionError(f"{wanted!r} did not appear in {text!r}")

    def type(self, keys, wanted):
        os.write(self.fd, keys.encode())
        return self.until(wanted)

    def close(self):
        os.close(self.fd)
        os.waitpid(self.pid, 0)


@pytest.fixture
def terminal(tmp_path):
    made = []

    def start(argv, env):
        made.append(Terminal(argv, env, tmp_path))
        return made[-1]

    yield start
    for one in made:
        one.close()


def test_bash_on_a_terminal(there, terminal, tmp_path):
    rc = tmp_path / "rc"
    rc.write_text(f"PS1='ready> '\nsource {SCRIPTS}/lumelift.bash\n")
    shell = terminal(["bash", "--rcfile", str(rc), "-i"], there)
    shell.until("ready> ")
    shell.type("echo lumelift unl\t", "unl")  # not the first word: nothing of ours
    shell.type("\x15", "")
    shell.type("lumelift unl\t", "lumelift unlock ")
    shell.type("wi\t", r"with\\ blank ")
    shell.type("--restart=ne\t", r"--restart=never")


def test_zsh_on_a_terminal(there, terminal, tmp_path):
    (tmp_path / ".zshrc").write_text(f"PS1='ready> '\nfpath=({SCRIPTS} $fpath)\nautoload -Uz compinit && compinit -u -D\nsetopt no_beep\n")
    shell = terminal(["zsh", "-i"], {**there, "ZDOTDIR": str(tmp_path)})
    shell.until("ready> ")
    shell.type("lumelift unl\t", "lumelift unlock ")
    shell.type("wi\t", r"with\\ blank ")
    shell.type("--restart=ne\t", r"--restart=never")
    shell.type("\x15", "")
    shell.type("lumelift unlock ci\t\t", r"ci-1[\s\S]*ci-2")


def test_fish(there, tmp_path):
    (tmp_path / "model.yaml").touch()
    env = {**there, "XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_DATA_HOME": str(tmp_path / "data")}

    def fish(line):
        done = subprocess.run(["fish", "--no-config", "-c", f"source {SCRIPTS}/lumelift.fish; complete -C '{line}'"], env=env, cwd=tmp_path,
                              capture_output=True, text=True, check=True)
        return [row.split("\t")[0] for row in done.stdout.splitlines()]

    assert fish("lumelift unl") == ["unlock"]
    assert fish("lumelift unlock ci") == ["ci-1", "ci-2"]
    assert fish("lumelift unlock wi") in (["with blank"], ["with\\ blank"])
    assert fish("lumelift unlock --restart ne") == ["never"]
    assert fish("lumelift unlock --restart=ne") == ["--restart=never"]
    assert fish("lumelift unlock --workload mod") == ["model.yaml"]
