"""What a user expects of any command line program: settings in their order, colour, silence, hints, and that nobody is called."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

from product import LUMELIFT, run, workload


@pytest.fixture
def small(lab):
    lab.add_vm("ci-1", running=True, arch="x86_64")
    lab.add_vm("dev")
    return lab.start()


def settings(path, **values):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("schema: 1\n" + "".join(f"{key.replace('_', '-')}: {value}\n" for key, value in values.items()))
    return path


def user_file(lab):
    return pathlib.Path(lab.home) / ".config/lumelift/config.yaml"


# Settings

def answers(lab, tmp_path, *words, env=None):
    """Whether the guest is reached: only with the right port."""
    return run(lab, "doctor", "ci-1", "--json", *words, cwd=tmp_path, env={"LUMELIFT_PORT": "", **(env or {})})


def reached(result):
    return any(f["id"] == "guest-login" for f in result.json["findings"])


def test_flag_over_environment_over_project_over_user(small, tmp_path):
    right, wrong = small.port, 1
    assert not reached(answers(small, tmp_path))
    settings(user_file(small), port=right)
    assert reached(answers(small, tmp_path))
    settings(tmp_path / "lumelift.yaml", port=wrong)
    assert not reached(answers(small, tmp_path)), "the project's file goes over the user's"
    assert reached(answers(small, tmp_path, env={"LUMELIFT_PORT": str(right)}))
    assert not reached(answers(small, tmp_path, "--port", wrong, env={"LUMELIFT_PORT": str(right)}))
    assert reached(answers(small, tmp_path, "--port", right, env={"LUMELIFT_PORT": str(wrong)}))


def test_settings_reach_every_kind_of_option(small, tmp_path):
    settings(tmp_path / "lumelift.yaml", restart="never", color="always", host_preference="keep", quiet="true")
    done = run(small, "unlock", "ci-1", "--dry-run", "--json", cwd=tmp_path)
    assert done.rc == 0 and "host preference left as it is" in done.out, done
    assert "\x1b[" not in run(small, "doctor", "--color", "never", cwd=tmp_path).out and "\x1b[" in run(small, "doctor", cwd=tmp_path).out
    settings(tmp_path / "lumelift.yaml", profile="careful.yaml")
    (tmp_path / "careful.yaml").write_text("schema: 1\nname: careful\napple_family_max: 2000\n")
    (tmp_path / "below").mkdir()
    done = run(small, "unlock", "ci-1", "--dry-run", cwd=tmp_path)
    assert done.error_id == "profile-invalid" and "careful.yaml:3:19" in done.err, done
    assert run(small, "unlock", "ci-1", "--dry-run", "--profile", "minimal", cwd=tmp_path).rc == 0
    assert run(small, "unlock", "ci-1", "--dry-run", cwd=tmp_path / "below").rc == 0, "only the folder itself counts"


@pytest.mark.parametrize("text, place, words", [
    ("schema: 1\nprt: 22\n", "2:1", "did you mean 'port'"),
    ("schema: 1\nport: 99999\n", "2:7", "whole number from 1 to 65535"),
    ("schema: 1\nport: x\n", "2:7", "whole number"),
    ("port: 22\n", "1:1", "'schema' is missing"),
    ("schema: 1\nquiet: maybe\n", "2:8", "true or false"),
    ("schema: 1\nrestart: sometimes\n", "2:10", "sometimes"),
    ("schema: 1\npassword-file: ~/.netrc\n", "2:16", "the user's own settings only"),
])
def test_mistakes_have_a_place(lab, tmp_path, text, place, words):
    lab.start()
    (tmp_path / "lumelift.yaml").write_text(text)
    done = run(lab, "unlock", "nobody", cwd=tmp_path)
    assert (done.rc, done.error_id) == (2, "settings-invalid"), done
    assert f"lumelift.yaml:{place}: " in done.err and words in done.err, done
    assert run(lab, "--help", cwd=tmp_path).rc == 0, "help is there even so"


def test_a_password_file_of_the_users_own(lab, tmp_path):
    lab.add_vm("ci-1", running=True, arch="x86_64")
    lab.start()
    shutil.rmtree(pathlib.Path(lab.home) / ".ssh")
    secret = tmp_path / "secret"
    secret.write_text("lume\n")
    secret.chmod(0o600)
    settings(user_file(lab), password_file=secret)
    found = run(lab, "doctor", "ci-1", "--json", cwd=tmp_path).json["findings"]
    assert [f["level"] for f in found if f["id"] == "guest-login"] == ["ok"]


# Hints

def test_without_words(small):
    bare = run(small)
    assert bare.rc == 0 and bare.err == ""
    assert re.search(r"^ci-1 +running", bare.out, re.M) and re.search(r"^dev +stopped", bare.out, re.M)
    assert bare.out.rstrip().endswith("next: lumelift unlock ci-1")
    assert run(small, "unlock", "ci-1").rc == 0
    assert run(small).out.rstrip().endswith("next: lumelift verify ci-1")
    small.preference(False, "boolean")
    assert "next: lumelift unlock" in run(small).out


def test_suggestions(small):
    unknown = run(small, "--color", "never", "unlok", "ci-1")
    assert unknown.rc == 2 and "there is no command 'unlok'\n  did you mean 'lumelift unlock'?" in unknown.err, unknown
    for command in ("unlock", "status", "doctor", "probe"):
        assert "did you mean 'ci-1'?" in (lambda r: r.err + r.out)(run(small, command, "ci1")), command


def test_no_error_is_a_dead_end(small, tmp_path):
    """What is thrown without a next step gets that of its id."""
    for words in (["unlock", "ci-1", "--workload", tmp_path / "none.yaml"], ["fleet", "plan", "-f", tmp_path / "none.yaml"],
                  ["unlock", "-x"], ["trust", "a/b"], ["explain", "--trace", __file__], ["run", "ci-1", "--env", "DYLD_X=1", "--", "true"]):
        done = run(small, "--json", *words)
        assert done.rc == 2 and "\n  next: " in done.err and done.json["error"]["fix"], done
    settings(tmp_path / "lumelift.yaml", bogus="1")
    assert "docs/settings.md" in run(small, "status", cwd=tmp_path).err


def test_a_machine_that_is_no_mac_is_told_where_to_try(tmp_path):
    done = subprocess.run([LUMELIFT, "status"], env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "rehearsal lab" in done.stderr, done


def test_the_two_hyphens_before_a_program(small):
    for command in ("run", "explain", "ablate"):
        done = run(small, command, "ci-1", "ls")
        assert done.rc == 2 and f"next: put -- before the program: lumelift {command} VM -- " in done.err, done


# Output

def test_colour_and_silence(small):
    assert "\x1b[" not in run(small, "status").out
    assert "\x1b[" in run(small, "doctor", "--color", "always").out
    assert "\x1b[" not in run(small, "doctor", env={"NO_COLOR": "1"}).out
    quiet = run(small, "unlock", "ci-1", "--quiet")
    assert quiet.rc == 0 and quiet.err == ""
    assert "lume" in run(small, "status", "--verbose").err


def test_version(lab):
    lab.start()
    assert re.fullmatch(r"lumelift \d+\.\d+\.\d+\n", run(lab, "--version").out)
    for words in (("--version", "--json"), ("--json", "--version")):
        told = run(lab, *words).json
        assert set(told["libraries"]) == {"CLI11", "fmt", "libssh2", "nlohmann-json", "crypto", "sqlite", "yaml-cpp"}
        assert all(re.search(r"\d+\.\d+", version) for version in told["libraries"].values())
    linked = subprocess.run(["ldd", LUMELIFT], capture_output=True, text=True, check=True).stdout
    ours = {"libfmt", "libssh2", "libcrypto", "libsqlite3", "libyaml-cpp", "libstdc++", "libm", "libgcc_s", "libc"}
    third = {re.match(r"\s*(lib[^.]+)", line)[1] for line in linked.splitlines() if re.match(r"\s*lib", line)}
    sanitizers = {"libasan", "libubsan", "libresolv"} if "ASAN_OPTIONS" in os.environ else set()
    assert third - ours <= {"libz", "libssl"} | sanitizers, "a library that --version does not name"


# Bug reports

def test_bug_report(small, tmp_path):
    settings(tmp_path / "lumelift.yaml", user="lume")
    done = run(small, "bug-report", "ci-1", "-o", tmp_path / "report.txt", cwd=tmp_path,
               env={"LUMELIFT_PASSWORD": "hunter2-secret", "USER": "annabelle", "HOSTNAME": "annas-mac"})
    assert done.rc == 0, done
    text = (tmp_path / "report.txt").read_text()
    assert oct((tmp_path / "report.txt").stat().st_mode & 0o777) == "0o600"
    for part in ("versions", "doctor", "history", "settings in lumelift.yaml"):
        assert f"== {part}" in text
    assert '"libssh2"' in text and '"guest-login"' in text and "user: lume" in text
    for secret in ("hunter2-secret", "annabelle", "annas-mac", "127.0"):
        assert secret not in text.replace("127.0.0.1", ""), secret


# Nobody is called

def test_only_the_guest_is_contacted(small, tmp_path):
    """Every connection of lumelift and of all that it starts, as the kernel saw it."""
    trace = tmp_path / "trace"
    done = subprocess.run(["strace", "-f", "-qq", "-e", "trace=connect,sendto,sendmsg,bind", "-o", trace, LUMELIFT, "unlock", "ci-1", "--restart", "never",
                           "--host-preference", "keep", "--workload", workload(tmp_path / "work")],
                          env={**small.env(), "LUMELIFT_PORT": str(small.port)}, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    lines = [line for line in trace.read_text().splitlines() if "AF_INET" in line]
    told = subprocess.run(["lume", "get", "ci-1", "--format", "json"], env=small.env(), capture_output=True, text=True, check=True).stdout
    address = re.search(r'"ipAddress" ?: ?"([^"]+)"', told)[1]
    assert lines, done.stderr
    for line in lines:
        assert f'htons({small.port})' in line and f'inet_addr("{address}")' in line, line


def test_commands_without_a_vm_contact_nobody(lab, tmp_path):
    lab.start()
    for words in (["--version"], ["--help"], ["history"], ["inspect", str(LUMELIFT)], ["bug-report", "-o", str(tmp_path / "r.txt")], ["complete", "--", ""]):
        trace = tmp_path / "trace"
        subprocess.run(["strace", "-f", "-qq", "-e", "trace=%network", "-o", trace, LUMELIFT, *words], env=lab.env(), capture_output=True,
                       check=False, stdin=subprocess.DEVNULL)
        assert not [line for line in trace.read_text().splitlines() if "AF_INET" in line], words


def test_strace_would_see_a_call(tmp_path):
    trace = tmp_path / "trace"
    subprocess.run(["strace", "-f", "-qq", "-e", "trace=connect", "-o", trace, "/usr/bin/python3", "-c",
                    "import socket; socket.socket().connect_ex(('127.0.0.1', 9))"], check=True, env={**os.environ})
    assert 'inet_addr("127.0.0.1")' in trace.read_text()
