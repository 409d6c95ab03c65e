"""A control node for the tests: real ansible-core, the built collection, and rehearsal Macs that it reaches over real SSH."""

import functools
import hashlib
import json
import os
import pathlib
import re
import subprocess
import tarfile
import tempfile

import yaml

from product import BUILD, LUMELIFT

HERE = pathlib.Path(__file__).resolve().parent
COLLECTION = HERE.parent.parent / "templates/ansible/lumelift/fleet"
RECAP = re.compile(r"^(\S+)\s*: ok=(\d+)\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.MULTILINE)


def sha256_of(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


def release_archive(folder):
    """What a release would hold, as tar file: program, library, probe, templates."""
    path = pathlib.Path(folder) / "lumelift.tar.gz"
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        archive.add(LUMELIFT, "lumelift-0/bin/lumelift")
        for name in ("liblumelift-metal.dylib", "lumelift-probe"):
            archive.add(BUILD / "shim" / name, f"lumelift-0/libexec/lumelift/{name}")
        for name in ("agent.plist", "profiles"):
            archive.add(HERE.parent.parent / "templates" / name, f"lumelift-0/share/lumelift/{name}")
    return path


class Collections:
    """The collection as a user gets it: built into an archive, installed from that. For all tests of a process."""

    def __init__(self, folder):
        self.path = folder / "installed"
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "LC_ALL": "C.UTF-8"}
        galaxy = functools.partial(subprocess.run, env=environment, cwd=folder, check=True, capture_output=True, timeout=300)
        galaxy(["ansible-galaxy", "collection", "build", str(COLLECTION), "--output-path", str(folder)])
        self.tarball = next(folder.glob("lumelift-fleet-*.tar.gz"))
        galaxy(["ansible-galaxy", "collection", "install", str(self.tarball), "-p", str(self.path), "--offline"])


class Control:
    """One control node in `folder`. Its ssh connections end with it."""

    def __init__(self, folder, collections):
        self.folder, self.collections = pathlib.Path(folder), collections.path
        self.folder.mkdir(parents=True)
        # A short path: socket names are limited to about 100 bytes.
        self.sockets = tempfile.mkdtemp(prefix="ll-", dir="/tmp")
        self.macs, self.runs = {}, 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for name in os.listdir(self.sockets):
            subprocess.run(["ssh", "-O", "exit", "-o", f"ControlPath={self.sockets}/{name}", "none"], capture_output=True, check=False)
        os.rmdir(self.sockets)

    def env(self):
        return {"PATH": "/usr/bin:/bin", "HOME": str(self.folder), "LC_ALL": "C.UTF-8", "ANSIBLE_NOCOLOR": "1", "ANSIBLE_LOCALHOST_WARNING": "0",
                "ANSIBLE_COLLECTIONS_PATH": str(self.collections), "ANSIBLE_CALLBACK_PLUGINS": str(HERE / "record"),
                "ANSIBLE_CALLBACKS_ENABLED": "record", "LUMELIFT_RECORD": str(self.folder / f"record-{self.runs}"),
                "ANSIBLE_SSH_CONTROL_PATH_DIR": self.sockets, "ANSIBLE_SSH_ARGS": "-C -o ControlMaster=auto -o ControlPersist=20s",
                "ANSIBLE_SSH_RETRIES": "0", "ANSIBLE_TIMEOUT": "10"}

    def run(self, *words, env=None, timeout=300):
        return subprocess.run(words, env={**self.env(), **(env or {})}, cwd=self.folder, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              timeout=timeout, check=False)

    def add_mac(self, name, lab, **variables):
        """A Mac of the inventory. Without Python, unless `lumelift_python` says that its modules run there."""
        login = lab.serve_ssh()
        python = "/usr/bin/python3" if variables.get("lumelift_python") else "/nonexistent/python3"
        self.macs[name] = {
            "ansible_host": login["address"], "ansible_port": login["port"], "ansible_user": login["user"], "ansible_python_interpreter": python,
            "ansible_ssh_private_key_file": login["key"], "ansible_ssh_common_args": f"-F /dev/null -o UserKnownHostsFile={login['known_hosts']}", **variables}
        self.write_inventory(self.macs)
        return login

    def write_inventory(self, macs):
        (self.folder / "inventory.json").write_text(json.dumps({"all": {"children": {"macs": {"hosts": macs}}}}))

    def play(self, playbook, *words, env=None, **extra):
        """Runs a playbook: a name of the collection, or the plays themselves."""
        self.runs += 1
        if not isinstance(playbook, str):
            path = self.folder / f"play-{self.runs}.yml"
            path.write_text(yaml.safe_dump(playbook))
            playbook = str(path)
        more = ["-e", json.dumps(extra)] if extra else []
        return Played(self, self.run("ansible-playbook", "-i", "inventory.json", *words, *more, playbook, env=env))

    def tasks(self, *tasks, words=(), env=None, **extra):
        """Runs tasks, each a mapping without a name; one that fails does not stop the next."""
        named = [{"name": f"Task {number}", "ignore_errors": True, **task} for number, task in enumerate(tasks)]
        return self.play([{"hosts": "macs", "gather_facts": False, "tasks": named}], *words, env=env, **extra)


class Played:
    def __init__(self, control, done):
        self.rc, self.out, self.err = done.returncode, done.stdout, done.stderr
        path = pathlib.Path(control.env()["LUMELIFT_RECORD"])
        self.records = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @functools.cached_property
    def recap(self):
        return {name: {"ok": int(ok), "changed": int(changed), "unreachable": int(away), "failed": int(failed)}
                for name, ok, changed, away, failed in RECAP.findall(self.out)}

    def changed(self):
        return {name: counts["changed"] for name, counts in self.recap.items()}

    def results(self, module, host=None):
        return [one["result"] for one in self.records if one["action"] == f"lumelift.fleet.{module}" and host in (None, one["host"])]

    def of_task(self, number):
        """What the task of this number gave; `kind` is ok, failed or skipped."""
        return next({"kind": one["kind"], **one["result"]} for one in self.records if one["task"] == f"Task {number}")

    def failures(self, host):
        return [one["result"] for one in self.records if one["kind"] == "failed" and one["host"] == host]

    def __repr__(self):
        return f"rc={self.rc}\n{self.out[-6000:]}\n--- stderr\n{self.err[-3000:]}"
