"""State of one rehearsal lab, shared by every stand-in: where things are, who runs, what was called, which fault applies.

Part of the rehearsal lab, which stands in for a Mac and cannot prove what only a Mac can show.
Only cheap imports here: each stand-in call pays for them. `json`, `signal`, `socket` and `contextlib` would double its start
(they bring `re` and `enum`), hence the C modules below them and the small writer and cache of our own.
"""

import _signal
import fcntl
import marshal
import os
import sys
import time
from _json import encode_basestring_ascii

HOST_TOOLS = ("lume", "defaults", "sw_vers", "sysctl", "nc", "ioreg", "system_profiler", "ps", "caffeinate")

LAB_DEFAULTS = {
    "version": "0.5.3",            # what `lume --version` prints; below 0.5.0 there is no --detach and no shutdown
    "guest_limit": 2,              # macOS guests at a time; null lifts the limit
    "noise": "on",                 # lume's own log lines around its JSON: on, off
    "json": "array",               # array, object (bare) or old (array, keys of early releases only)
    "headless": True,              # `lume run` without a display option fails, as on a host with no window server
    "host": {
        "product": "macOS", "version": "26.5.2", "build": "25F84",
        "hw.model": "Mac13,2", "machdep.cpu.brand_string": "Apple M1 Ultra", "hw.memsize": "137438953472",
        "hw.ncpu": "20", "hw.optional.arm64": "1", "kern.osproductversion": "26.5.2", "kern.osversion": "25F84",
        "kern.uuid": "7C0E7A3B-31C5-3F4B-A0B1-1B6C9A1D2E3F", "hw.machine": "arm64", "sysctl.proc_translated": "0",
    },
}

VM_DEFAULTS = {
    "os": "macOS", "cpu": 4, "memory": 8589934592, "disk_allocated": 32212254720, "disk_total": 68719476736,
    "display": "1024x768", "network": "nat", "storage": "home", "status": None, "running": False,
    "ip": None, "ip_changes": False, "port": None, "ip_delay": 0.1, "stale_lease": 0, "stale_ip": "127.255.255.1",
    "boot_delay": 0.3, "boot": "ok",       # ok, never, refuse, silent, http, drop
    "reset_first": 0,                      # connections that are reset at boot before the real server answers
    "run_lag": 0, "run_fails": None, "run_fail_delay": 0.1, "log_old": None,
    "stop_delay": 0.05, "stop_ignores_int": False, "linger_running": 0, "missing_after_stop": 0,
    "shutdown_delay": 0.2, "shutdown_hangs": False, "lose_unsynced": False, "ssh_available": None,
    "user": "lume", "password": "lume", "uid": 501, "gui": True, "gui_error": 125, "user_domain": True,
    "user_error": 125, "sip": False, "arch": "arm64", "metal": None, "umask": "022",
    "server": "sshd",                      # sshd, or kbdint: keyboard-interactive only (asyncssh)
    "sshd": [], "key_types": ["ed25519"], "keys": True, "sudo": "nopasswd", "zshenv": None, "banner": None,
    "disk_kb": None, "tools": [], "without": [], "proxy": False,
    "drain": 0, "throttle_scale": 0.05, "exit_timeout": 2, "bootout_wait": 0.5, "session_key_fatal": False,
    "user_needs_background": False, "perm_error": 122, "bootstrap_error": None, "bootstrap_lies": 0,
    "product": "macOS", "version": "26.5.2", "build": "25F84", "host_name": None, "shares_visible": True,
}


def to_json(value):
    if isinstance(value, str):
        return encode_basestring_ascii(value)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict):
        return "{" + ", ".join(f"{encode_basestring_ascii(str(key))}: {to_json(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(to_json, value)) + "]"
    return repr(value)


def read_json(path, default=None):
    """The file's value. What was once parsed is kept beside it in a form that needs no parser, until the file changes."""
    try:
        about = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return default
    key = file_key(about)
    try:
        with open(path + ".cache", "rb") as file:
            known, value = marshal.load(file)
        if known == key:
            return value
    except (OSError, EOFError, ValueError, TypeError):
        pass
    import json
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            value = json.load(file)
    except FileNotFoundError:
        return default
    try:
        replace_file(path + ".cache", marshal.dumps((key, value)))
    except OSError:
        pass
    return value


def file_key(about):
    return about.st_mtime_ns, about.st_ino, about.st_size


def replace_file(path, data, cached=None):
    """Written whole under another name, then renamed: a reader sees the former or the new bytes."""
    temporary = f"{path}.{os.getpid()}.tmp"
    with open(temporary, "wb") as file:
        file.write(data)
    if cached is not None:
        # Two writes within one tick of the clock can look alike from outside, so a writer renews the cache itself.
        replace_file(path + ".cache", marshal.dumps((file_key(os.stat(temporary)), cached[0])))
    os.rename(temporary, path)


def write_json(path, value):
    replace_file(path, to_json(value).encode("utf-8", "surrogateescape") + b"\n", (value,))


class locked:  # noqa: N801 - used like a function
    """Holds an exclusive lock on a file for a `with` block."""

    def __init__(self, path):
        self.path = path

    def __enter__(self):
        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self.fd, fcntl.LOCK_EX)

    def __exit__(self, *_):
        os.close(self.fd)


def append_line(path, value):
    line = to_json(value) + "\n"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, line.encode("utf-8", "surrogateescape"))
    finally:
        os.close(fd)


def stat_fields(pid):
    """State, parent, start time of a process; None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return fields[0].decode(), int(fields[1]), int(fields[19])


def start_time(pid):
    fields = stat_fields(pid)
    return fields[2] if fields else None


def alive(pid, started):
    """Is this very process (not a later one with its number) there and not a zombie?"""
    fields = stat_fields(pid) if pid else None
    return bool(fields) and fields[2] == started and fields[0] not in "ZX"


def kill_exactly(pid, started, number=_signal.SIGKILL):
    """Signals a process by its number and start time, through a descriptor so that the number cannot be reused between."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if start_time(pid) != started:
            return False
        _signal.pidfd_send_signal(fd, number)
        return True
    except OSError:
        return False
    finally:
        os.close(fd)


def descendants(root):
    """All processes below `root`, parents first."""
    children = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            fields = stat_fields(entry)
            if fields:
                children.setdefault(fields[1], []).append((int(entry), fields[2]))
    found, queue = [], [root]
    while queue:
        for child in children.get(queue.pop(0), []):
            found.append(child)
            queue.append(child[0])
    return found


def set_title(words, name):
    """Shows this process to others under the command line `words` and `name`: without, a server's child looks like the server."""
    import ctypes
    with open("/proc/self/stat", "rb") as file:
        begin, end = map(int, file.read().rpartition(b")")[2].split()[45:47])
    text = b"\0".join(map(os.fsencode, words))[: end - begin - 1]
    ctypes.memmove(begin, text.ljust(end - begin, b"\0"), end - begin)
    ctypes.CDLL(None).prctl(15, os.fsencode(name)[:15])


def give_up_capabilities():
    """What setpriv did for the guest's other processes (see session.py): root without powers."""
    if os.geteuid() == 0:
        import ctypes
        ctypes.CDLL(None).capset((0x20080522).to_bytes(4, "little") + bytes(4), bytes(24))


def die_with_parent():
    """Asks the kernel to kill this process when its parent ends."""
    import ctypes
    ctypes.CDLL(None).prctl(1, _signal.SIGKILL)


def become_subreaper():
    import ctypes
    ctypes.CDLL(None).prctl(36, 1)


def only_looks(tool, argv):
    """Calls in a guest that change nothing are no points of interest for a fault of every tool."""
    if tool == "launchctl":
        return argv[:1] != [] and argv[0].startswith(("print", "list", "manager", "error"))
    return tool in ("id", "stat", "df", "date", "sysctl", "sw_vers", "csrutil", "hostname", "ioreg", "xattr", "plutil", "lsof", "vmmap",
                    "codesign", "mktemp", "osascript", "python3", "ps")


class Vm:
    """One virtual machine on disk: what it is made of, and what runs of it."""

    def __init__(self, world, name):
        self.world = world
        self.name = name.replace(":", "_")
        self.dir = os.path.join(world.dir, "vms", self.name)
        self.home = os.path.join(self.dir, "home")
        self.root = os.path.join(self.dir, "root")
        self._spec = None

    def __getitem__(self, key):
        if self._spec is None:
            self._spec = {**VM_DEFAULTS, **read_json(os.path.join(self.dir, "vm.json"), {})}
        return self._spec[key]

    def exists(self):
        return os.path.exists(os.path.join(self.dir, "vm.json"))

    def path(self, *parts):
        return os.path.join(self.dir, *parts)

    @property
    def config(self):
        """The file whose lock a running VM holds."""
        return os.path.join(self.world.home, ".lume", self.name, "config.json")

    @property
    def port(self):
        return self["port"] or self.world.config["port"]

    def run_state(self):
        """What runs: process, start, options; None when nothing does."""
        state = read_json(self.path("run.json"))
        return state if state and alive(state["pid"], state["start"]) else None

    def memory(self):
        """What outlives a run: boots, last stop, launchd's overrides."""
        return read_json(self.path("memory.json"), {})

    def remember(self, **changes):
        with locked(self.path("memory.lock")):
            write_json(self.path("memory.json"), {**self.memory(), **changes})

    def count_down(self, key):
        """Takes one from a counter of `memory`; tells whether there was one to take."""
        with locked(self.path("memory.lock")):
            memory = self.memory()
            left = memory.get(key, 0)
            if left > 0:
                write_json(self.path("memory.json"), {**memory, key: left - 1})
            return left > 0

    def socket_name(self):
        """An abstract name: no file to clean up, no limit on the length of the lab's path."""
        import zlib
        path = os.path.realpath(self.dir).encode()
        return b"\0lumelift-lab-%08x%08x" % (zlib.crc32(path), zlib.crc32(path[::-1]))

    def ask(self, request, timeout=60):
        """One request to the running guest's control socket; None when no guest listens."""
        import _socket
        link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
        try:
            link.settimeout(timeout)
            link.connect(self.socket_name())
            link.sendall(marshal.dumps(request))
            link.shutdown(_socket.SHUT_WR)
            answer = b""
            while piece := link.recv(65536):
                answer += piece
        except OSError:
            return None
        finally:
            link.close()
        return marshal.loads(answer) if answer else None


class World:
    """The lab in one folder."""

    def __init__(self, directory):
        self.dir = os.path.abspath(directory)
        self.home = os.path.join(self.dir, "host", "home")
        self._config = None

    @property
    def config(self):
        if self._config is None:
            stored = read_json(os.path.join(self.dir, "lab.json"), {})
            self._config = {**LAB_DEFAULTS, **stored, "host": {**LAB_DEFAULTS["host"], **stored.get("host", {})}}
        return self._config

    def path(self, *parts):
        return os.path.join(self.dir, *parts)

    def vm(self, name):
        return Vm(self, name)

    def vms(self):
        folder = self.path("vms")
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        return [vm for vm in map(self.vm, names) if vm.exists()]

    def event(self, kind, **details):
        append_line(self.path("events.jsonl"), {"time": time.time(), "event": kind, **details})

    def record_process(self, role):
        append_line(self.path("pids.jsonl"), {"pid": os.getpid(), "start": start_time(os.getpid()), "role": role})

    # Calls and faults

    def note_target(self, pid):
        """Writes down the lumelift process that `pid` is or is below of, so that a fault in the guest knows whom to kill."""
        while pid > 1:
            fields = stat_fields(pid)
            if not fields:
                return
            try:
                name = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
            except OSError:
                name = ""
            if name == "lumelift":
                known = read_json(self.path("target.json"))
                target = {"pid": pid, "start": fields[2]}
                if known != target:
                    write_json(self.path("target.json"), target)
                return
            pid = fields[1]

    def target(self):
        """The lumelift that a fault of this call is meant for: taken when the call begins, since a call may outlive its lumelift."""
        named = os.environ.get("LUMELIFT_LAB_TARGET") or self.path("target.pid")
        try:
            with open(named, encoding="ascii") as file:
                pid = int(file.read().split()[0])
            return {"pid": pid, "start": start_time(pid)}
        except (OSError, ValueError, IndexError):
            return read_json(self.path("target.json"))

    @staticmethod
    def kill(target):
        """Kills that process and no later one, and waits for its end."""
        if not target or not kill_exactly(target["pid"], target["start"]):
            return
        for _ in range(200):
            if not alive(target["pid"], target["start"]):
                return
            time.sleep(0.005)

    def shell(self, text):
        """What somebody else does at this moment: a host command, run in the lab's folder, waited for."""
        if not text:
            return
        pid = os.fork()
        if pid == 0:
            os.chdir(self.dir)
            null = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1):
                os.dup2(null, number)
            os.execve("/bin/sh", ["sh", "-c", text], {
                "PATH": f"{self.path('host', 'bin')}:/usr/bin:/bin", "HOME": self.home, "LAB_HOST": "1"})
        os.waitpid(pid, 0)

    def fault_for(self, tool, argv, vm=None):
        """The fault that this call meets, if any. Counts the call for every fault that it matches."""
        path = self.path("faults.json")
        if not os.path.exists(path):
            return None
        with locked(self.path("faults.lock")):
            faults = read_json(path, [])
            counts = read_json(self.path("fault-counts.json"), {})
            chosen, words = None, " ".join(argv)
            for index, fault in enumerate(faults):
                if fault["tool"] not in ("*", tool) or (fault["tool"] == "*" and vm and only_looks(tool, argv)) or (vm and fault.get("vm") not in (None, vm)):
                    continue
                if fault.get("match") and fault["match"] not in words:
                    continue
                key = str(fault.get("id", index))
                count = counts[key] = counts.get(key, 0) + 1
                first = fault.get("nth", 1)
                last = first if "nth" in fault and "times" not in fault else first + fault.get("times", 1 << 60) - 1
                if chosen is None and first <= count <= last:
                    chosen = fault
            write_json(self.path("fault-counts.json"), counts)
        return chosen

    def log_start(self, tool, argv, vm=None):
        number = f"{os.getpid()}-{time.monotonic_ns()}"
        record = {"id": number, "tool": tool, "argv": argv, "start": time.time()}
        append_line(self.path("calls.jsonl"), {**record, "vm": vm} if vm else record)
        return number

    def log_end(self, number, status):
        append_line(self.path("calls.jsonl"), {"id": number, "end": time.time(), "exit": status})


def hang(world, fault):
    """Ignores everything but SIGKILL. As `grandchild`, ends at once and leaves a child that keeps the output open."""
    if fault["hang"] == "grandchild" and os.fork():
        os._exit(fault.get("exit", 0))
    world.record_process("hang")
    for number in (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP):
        _signal.signal(number, _signal.SIG_IGN)
    while True:
        time.sleep(3600)


def run_tool(world, tool, argv, main, vm=None, caller=None):
    """Runs `main(argv)` as a logged call, with the fault that applies to it. Never returns. `caller`: see dispatch.main."""
    number = world.log_start(tool, argv, vm)
    if not vm:
        world.note_target(caller or os.getppid())
    fault = world.fault_for(tool, argv, vm) or {}
    target = world.target() if fault.get("kill_parent") else None

    def finish(status):
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except BrokenPipeError:
            status = 141
        world.shell(fault.get("shell_after"))
        if fault.get("kill_parent") == "after":
            world.kill(target)
        world.log_end(number, status)
        os._exit(status)

    time.sleep(fault.get("delay", 0))
    world.shell(fault.get("shell_before"))
    if fault.get("kill_parent") == "before":
        world.kill(target)
        world.log_end(number, 137)
        os._exit(137)
    if fault.get("hang"):
        hang(world, fault)
    if fault.get("flood"):
        block = (b"x" * 1023 + b"\n") * 1024
        for _ in range(int(fault["flood"])):
            os.write(1, block)
    if fault.get("garbage"):
        os.write(1, b"\xff\xfe[{\x00]\x1b[2J]0;" + bytes(range(256)) + b"\n")
    for stream, key in ((sys.stdout, "stdout"), (sys.stderr, "stderr")):
        stream.write(fault.get(key, ""))
    silenced = any(key in fault for key in ("exit", "garbage", "flood")) and not fault.get("effect")
    if silenced:
        finish(fault.get("exit", 0))
    try:
        if fault.get("die"):
            import io
            real, sys.stdout = sys.stdout, io.StringIO()
            main(argv)
            text, sys.stdout = sys.stdout.getvalue(), real
            os.write(1, text[: len(text) // 2].encode())
            os.kill(os.getpid(), _signal.SIGKILL)
        status = main(argv)
    except SystemExit as end:
        status = end.code
    except BrokenPipeError:
        os._exit(141)
    finish(fault["exit"] if fault.get("exit") is not None else int(status or 0))
