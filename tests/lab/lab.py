"""The rehearsal lab: a pretended Mac with pretended macOS guests, made of real processes, real SSH servers and stand-ins.

It runs without root, touches nothing outside its folder, and cannot prove what only a Mac can show.

    with Lab(folder, build=build) as lab:
        vm = lab.add_vm("tahoe", running=True)
        lab.start()
        subprocess.run(["lumelift", "status"], env=lab.env())
        print(lab.snapshot())
"""

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import server  # noqa: E402
import sshd  # noqa: E402
from session import REAL_SFTP, login_shell  # noqa: E402
from tools import build_guest_root, standin  # noqa: E402
from world import (HOST_TOOLS, VM_DEFAULTS, Vm, World, alive, descendants, kill_exactly, locked, read_json,  # noqa: E402
                   start_time, write_json)

REQUIRED = {"/usr/sbin/sshd": "openssh-server", "/usr/bin/zsh": "zsh", "/usr/bin/ssh-keygen": "openssh-client",
            "/usr/bin/setpriv": "util-linux"}


class LabError(Exception):
    """The lab itself could not do what it was asked: never a finding about the product."""


class Lab:
    """Owns one lab folder and every process of it. `down()` (or leaving the context, or dying) ends them all."""

    def __init__(self, directory, build=None, **options):
        self.dir = os.path.abspath(directory)
        self.world = World(self.dir)
        self.added = 0
        if not os.path.exists(self.world.path("lab.json")):
            self._create(os.path.abspath(build) if build else None, options)

    def _create(self, build, options):
        for program, package in REQUIRED.items():
            if not os.path.exists(program):
                raise LabError(f"the lab needs {program} (Debian package {package})")
        for folder in ("host/bin", "host/home/.ssh", "host/home/.lume", "vms", "realbin"):
            os.makedirs(self.world.path(folder), mode=0o700, exist_ok=True)
        prefix, port = free_corner()
        write_json(self.world.path("lab.json"), {"build": build, "prefix": prefix, "port": port, **options})
        for tool in HOST_TOOLS:
            os.symlink(standin(build), self.world.path("host", "bin", tool))
        key = os.path.join(self.world.home, ".ssh", "id_ed25519")
        sshd.make_key(key, comment="lab")
        write_json(self.world.path("host", "preferences.json"), {})

    # Building

    @property
    def port(self):
        return self.world.config["port"]

    @property
    def home(self):
        """Home folder of the host's user."""
        return self.world.home

    def add_vm(self, name="tahoe", **options):
        """Makes a stopped VM; options are those of `world.VM_DEFAULTS`. `running=True`: `start()` boots it."""
        unknown = set(options) - set(VM_DEFAULTS)
        if unknown:
            raise LabError(f"unknown VM option: {', '.join(sorted(unknown))}")
        vm = self.world.vm(name)
        if vm.exists():
            raise LabError(f"VM exists: {vm.name}")
        number = len(self.world.vms()) + 1
        options.setdefault("ip", f"{self.world.config['prefix']}.{number}")
        make_vm(vm, options)
        return vm

    def change_vm(self, name, **options):
        """Changes options of a VM; what concerns its boot counts from the next boot on."""
        vm = self.world.vm(name)
        write_json(vm.path("vm.json"), {**read_json(vm.path("vm.json")), **options})
        fresh = self.world.vm(name)
        write_login_shell(fresh)
        build_guest_root(fresh)
        return fresh

    def vm(self, name):
        return self.world.vm(name)

    def start(self, owner=True):
        """Checks what the lab needs and boots the VMs that are to run. With `owner`, the lab ends when this process does."""
        build = self.world.config.get("build")
        if build and not os.path.exists(os.path.join(build, "tests", "lab", "libguestexec.so")):
            raise LabError(f"no exec layer in {build}/tests/lab: build the lab first")
        if owner:
            self.guard(os.getpid())
        for vm in self.world.vms():
            if vm["running"] and not vm.run_state():
                self.boot(vm.name)
        return self

    def guard(self, pid):
        """A small process in its own session that answers for the stand-ins, and takes the lab down when process `pid` ends, however it ends."""
        if not server.serve(self.dir, pid, start_time(pid)):
            raise LabError(f"the lab's server did not start: {read_text(self.world.path('server.log'))}")

    def boot(self, name, *words, wait=True):
        """Starts a VM through the `lume` stand-in and waits until its server answers."""
        done = self.host("lume", "run", name, "--display", "none", "--detach", *words)
        if done.returncode:
            raise LabError(f"lume run {name}: {done.stderr}")
        if wait:
            self.wait_up(name)

    def wait_up(self, name, seconds=20):
        vm = self.world.vm(name)
        deadline = time.monotonic() + seconds
        while not vm.ask({"op": "up"}):
            if time.monotonic() > deadline:
                raise LabError(f"{name} is not up after {seconds} s: {read_text(vm.path('keeper-error.txt'))}"
                               f"{read_text(vm.path('ssh', 'sshd.log'))}")
            time.sleep(0.01)

    # Using

    def env(self, **more):
        """Environment for the program under test: the host user's, stand-ins first on PATH."""
        kept = {key: value for key, value in os.environ.items()
                if key in ("LANG", "LC_ALL", "TERM", "ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS", "NO_COLOR")}
        return {**kept, "PATH": f"{self.world.path('host', 'bin')}:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": self.home,
                "USER": "labuser", "LOGNAME": "labuser", "TMPDIR": self.tmp(), "LUMELIFT_LAB": self.dir, **more}

    def tmp(self):
        path = self.world.path("host", "tmp")
        os.makedirs(path, mode=0o700, exist_ok=True)
        return path

    def host(self, *command, **options):
        """Runs a command as the host's user, e.g. `lab.host("lume", "ls")`."""
        options = {"env": self.env(), "capture_output": True, "text": True, "errors": "surrogateescape", "stdin": subprocess.DEVNULL,
                   **options}
        program = shutil.which(command[0], path=options["env"]["PATH"]) or command[0]
        return subprocess.run([program, *command[1:]], check=False, **options)

    def ssh_command(self, name, *words):
        vm = self.world.vm(name)
        run = vm.run_state()
        return ["/usr/bin/ssh", "-F", "/dev/null", "-i", os.path.join(self.home, ".ssh", "id_ed25519"), "-o", "IdentityAgent=none",
                "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-o", "BatchMode=yes",
                "-p", str(vm.port), f"{vm['user']}@{run['ip'] if run else vm['ip']}", *words]

    def ssh(self, name, command, **options):
        """Runs a shell command in the guest over real SSH."""
        options = {"capture_output": True, "text": True, "errors": "surrogateescape", "stdin": subprocess.DEVNULL, **options}
        if "input" in options:
            options.pop("stdin")
        return subprocess.run(self.ssh_command(name, command), check=False, **options)

    def serve_ssh(self, **environment):
        """Lets a control node log in to the pretended Mac itself, as `labuser` by key: an sshd on the lab's port at its last address. Each
        session has the environment of `env()`. Returns what a client needs: address, port, user, key, known_hosts."""
        folder, address = self.world.path("host", "ssh"), (f"{self.world.config['prefix']}.254", self.port)
        os.makedirs(folder, mode=0o700)
        sshd.make_key(os.path.join(folder, "host_ed25519"))
        sshd.make_key(os.path.join(folder, "control"), comment="control")
        login, known = os.path.join(folder, "login"), os.path.join(folder, "known_hosts")
        with open(login, "w", encoding="utf-8") as file:
            file.write(sshd.host_login(self.home, self.env(LUMELIFT_PORT=str(self.port), **environment)))
        os.chmod(login, 0o755)
        sshd.write_accounts(folder, "labuser", self.home, login)
        sshd.write_config(folder, address, ["ed25519"], ["PasswordAuthentication no", f"AuthorizedKeysFile {folder}/control.pub",
                                                         f"Subsystem sftp {REAL_SFTP}"])
        with open(known, "w", encoding="utf-8") as file:
            file.write(f"[{address[0]}]:{address[1]} {read_text(os.path.join(folder, 'host_ed25519.pub'))}")
        server = sshd.launch(folder, lambda: self.world.record_process("sshd"))
        while not answers(address):
            if server.poll() is not None:
                raise LabError(f"the host's sshd ended: {read_text(os.path.join(folder, 'sshd.log'))}")
            time.sleep(0.01)
        return {"address": address[0], "port": address[1], "user": "labuser", "key": os.path.join(folder, "control"), "known_hosts": known}

    def preference(self, value="-", kind=None, domain="com.apple.gpusw.ParavirtualizedGraphics",
                   key="ForceUnrestrictedDeviceFeatureLevel"):
        """Sets the host preference behind everybody's back: typed, or absent with None."""
        from defaults import change
        change(self.world, domain, key, None if value is None else {"type": kind, "value": value})

    def fault(self, tool, **fault):
        """Adds a fault for a stand-in; see README. Returns its id, under which calls are counted."""
        path = self.world.path("faults.json")
        with locked(self.world.path("faults.lock")):
            faults = read_json(path, [])
            fault = {"id": f"f{len(faults) + 1}-{secrets.token_hex(2)}", "tool": tool, **fault}
            write_json(path, [*faults, fault])
        return fault["id"]

    def clear_faults(self):
        for name in ("faults.json", "fault-counts.json"):
            if os.path.exists(self.world.path(name)):
                os.unlink(self.world.path(name))

    def fault_count(self, identity):
        """How many calls a fault has matched so far."""
        return read_json(self.world.path("fault-counts.json"), {}).get(identity, 0)

    def calls(self, tool=None):
        """Every logged call: tool, argv, start, end and exit (absent while it runs, or when it was killed)."""
        found = {}
        for line in read_text(self.world.path("calls.jsonl")).splitlines():
            record = json.loads(line)
            found.setdefault(record["id"], {}).update(record)
        return [call for call in found.values() if tool in (None, call["tool"])]

    def forget_calls(self):
        if os.path.exists(self.world.path("calls.jsonl")):
            os.unlink(self.world.path("calls.jsonl"))

    def events(self, kind=None):
        events = [json.loads(line) for line in read_text(self.world.path("events.jsonl")).splitlines()]
        return [event for event in events if kind in (None, event["event"])]

    def snapshot(self):
        from snapshot import render
        return render(self.world)

    # Ending

    def down(self, remove=False):
        """Kills every process of this lab, each by its number and start time, and waits until they are gone."""
        take_down(self.world)
        if remove:
            shutil.rmtree(self.dir, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.down()


def read_text(path):
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""


def free_corner():
    """A loopback network and a port that nobody uses: random, so that labs side by side do not meet."""
    while True:
        prefix = f"127.{secrets.randbelow(253) + 1}.{secrets.randbelow(255)}"
        port = 20000 + secrets.randbelow(12000)
        with socket.socket() as probe:
            try:
                probe.bind((f"{prefix}.1", port))
                return prefix, port
            except OSError:
                continue


def answers(address):
    with socket.socket() as probe:
        return probe.connect_ex(address) == 0


def make_vm(vm: Vm, options):
    os.makedirs(vm.path("ssh"), mode=0o700)
    os.makedirs(vm.path("tmp"), mode=0o700)
    os.makedirs(os.path.dirname(vm.config), mode=0o755)
    for folder in (".ssh", "Library", "Desktop", "Documents"):
        os.makedirs(os.path.join(vm.home, folder), mode=0o700)
    os.chmod(vm.home, 0o750)
    write_json(vm.path("vm.json"), options)
    write_json(vm.config, {"os": vm["os"], "macAddress": "02:00:" + ":".join(f"{byte:02x}" for byte in vm.name.encode()[:4].ljust(4, b"\0"))})
    for kind in vm["key_types"]:
        sshd.make_key(vm.path("ssh", "host_" + kind), kind)
    with open(os.path.join(vm.world.home, ".ssh", "id_ed25519.pub"), encoding="ascii") as file:
        public = file.read()
    authorized = os.path.join(vm.home, ".ssh", "authorized_keys")
    with open(authorized, "w", encoding="ascii") as file:
        file.write(public)
    os.chmod(authorized, 0o600)
    if vm["zshenv"]:
        with open(os.path.join(vm.home, ".zshenv"), "w", encoding="utf-8") as file:
            file.write(vm["zshenv"] + "\n")
    if vm["log_old"]:
        folder = os.path.join(vm.world.home, "Library", "Logs", "lume")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, vm.name + ".log"), "a", encoding="utf-8") as file:
            file.write(vm["log_old"] + "\n")
    sshd.write_accounts(vm.path("ssh"), vm["user"], vm.home, vm.path("login"), vm["password"])
    write_login_shell(vm)
    build_guest_root(vm)


def write_login_shell(vm):
    with open(vm.path("login"), "w", encoding="utf-8") as file:
        file.write(login_shell(vm))
    os.chmod(vm.path("login"), 0o755)


def clone_vm(world, original, name):
    """Copies a stopped VM, its SSH host keys included; only the address is new."""
    vm = world.vm(name)
    options = {**read_json(original.path("vm.json")), "ip": f"{world.config['prefix']}.{len(world.vms()) + 1}", "running": False}
    make_vm(vm, options)
    shutil.rmtree(vm.home)
    shutil.copytree(original.home, vm.home, symlinks=True)
    for kind in vm["key_types"]:
        for suffix in ("", ".pub"):
            shutil.copy2(original.path("ssh", f"host_{kind}{suffix}"), vm.path("ssh", f"host_{kind}{suffix}"))
    return vm


def take_down(world):
    """Holders first, so that keepers clean up; then whatever is left of the recorded processes and their children."""
    recorded = [json.loads(line) for line in read_text(world.path("pids.jsonl")).splitlines()]

    def living(*roles):
        return [item for item in recorded if item["role"] in roles and item["pid"] != os.getpid() and alive(item["pid"], item["start"])]

    for item in living("vm", "hang"):
        kill_exactly(item["pid"], item["start"])
    deadline = time.monotonic() + 5
    while living("keeper") and time.monotonic() < deadline:
        time.sleep(0.01)
    for item in living("keeper", "guard", "serve", "sshd"):
        for pid, started in descendants(item["pid"]):
            kill_exactly(pid, started)
        kill_exactly(item["pid"], item["start"])
    while living("keeper", "guard", "vm", "hang", "serve", "sshd") and time.monotonic() < deadline:
        time.sleep(0.01)
