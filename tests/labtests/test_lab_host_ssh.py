"""The pretended Mac's own sshd, as a control node meets it."""

import subprocess

from lab import Lab


def client(login, *words):
    return ["/usr/bin/ssh", "-F", "/dev/null", "-i", login["key"], "-o", f"UserKnownHostsFile={login['known_hosts']}", "-o", "BatchMode=yes",
            "-p", str(login["port"]), f"{login['user']}@{login['address']}", *words]


def test_a_session_is_the_host_users(tmp_path):
    with Lab(tmp_path / "lab") as lab:
        lab.add_vm("tahoe")
        login = lab.serve_ssh()
        said = subprocess.run(client(login, 'echo "$HOME $USER $LUMELIFT_PORT"; command -v lume; lume ls; exit 7'), capture_output=True, text=True, check=False)
        assert said.returncode == 7, said
        lines = said.stdout.splitlines()
        assert lines[0] == f"{lab.home} labuser {lab.port}" and lines[1] == f"{lab.dir}/host/bin/lume" and "tahoe" in said.stdout
        assert not [name for name in ("LD_PRELOAD", "NSS_WRAPPER_PASSWD") if name in subprocess.run(client(login, "env"), capture_output=True, text=True, check=True).stdout]
        sent = subprocess.run([*client(login)[:-1], "-s", client(login)[-1], "sftp"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
        assert sent.returncode == 0, sent
        kept = subprocess.Popen(client(login, "echo up; sleep 600"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        assert kept.stdout.readline() == "up\n"
    assert kept.wait(timeout=10) != 0
