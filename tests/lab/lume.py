"""Stand-in for `lume`, warts included. Part of the rehearsal lab: it starts no virtual machine and proves nothing about one."""

import _signal as signal
import fcntl
import os
import sys
import time

from world import Vm, kill_exactly, start_time, to_json

USAGE = 64


class Failure(Exception):
    """Swift's ArgumentParser: the message goes to standard error."""

    def __init__(self, message, status=1):
        super().__init__(message)
        self.status = status


def stamp():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def log(world, level, message):
    """lume's own log goes to standard output, whatever else is printed there."""
    if world.config["noise"] == "on" and (level == "ERROR" or os.environ.get("LUME_LOG_LEVEL", "info") != "error"):
        print(f"[{stamp()}] {level}: {message}")


def parse(command, words, flags, options, repeated=(), operands=1, rest=False):
    """ArgumentParser's grammar, as far as it is used: `--x v`, `--x=v`, flags; anything unknown is a usage error."""
    values, names, queue = {name: [] for name in repeated}, [], list(words)
    while queue:
        word = queue.pop(0)
        if rest and len(names) == operands and not word.startswith("-"):
            values["rest"] = [word, *queue]
            break
        if not word.startswith("-") or word == "-":
            names.append(word)
            continue
        name, has_value, value = word.partition("=")
        name = {"-d": "--no-display", "-u": "--user", "-p": "--password", "-t": "--timeout", "-f": "--format"}.get(name, name)
        if name in flags and not has_value:
            values[name] = True
            continue
        if name not in options and name not in repeated:
            raise Failure(f"Unknown option '{word}'\nUsage: lume {command} <name> [options]\n"
                          f"  See 'lume {command} --help' for more information.", USAGE)
        if not has_value:
            if not queue:
                raise Failure(f"Missing value for '{word} <{word.lstrip('-')}>'\nUsage: lume {command} <name> [options]", USAGE)
            value = queue.pop(0)
        if name in repeated:
            values[name].append(value)
        else:
            values[name] = value
    if len(names) < operands:
        raise Failure(f"Missing expected argument '<name>'\nUsage: lume {command} <name> [options]", USAGE)
    if len(names) > operands:
        raise Failure(f"Unexpected argument '{names[operands]}'\nUsage: lume {command} <name> [options]", USAGE)
    return names, values


def since(world, key):
    return tuple(map(int, world.config["version"].split("."))) >= key


def address_of(vm, run):
    """What the DHCP leases say at this moment: nothing, an older boot's address, or the right one."""
    age = time.monotonic() - run["t0"]
    if age < vm["ip_delay"]:
        return None
    return vm["stale_ip"] if age < vm["ip_delay"] + vm["stale_lease"] else run["ip"]


def port_answers(vm, address, port):
    """Would a connection be taken? Of a plain guest the kernel is asked whether somebody listens there, since a connection would
    cost its server a process: an address in use for listening is the only one that cannot be shared."""
    import _socket
    if vm["boot"] == "ok" and not vm["proxy"] and not vm["reset_first"]:
        probe = _socket.socket()
        probe.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return True
        finally:
            probe.close()
        return False
    probe = _socket.socket()
    probe.settimeout(2)
    try:
        return probe.connect_ex((address, port)) == 0
    finally:
        probe.close()


def describe(vm: Vm):
    run, memory = vm.run_state(), vm.memory()
    if run and time.monotonic() - run["t0"] < vm["run_lag"]:
        run = None
    status = "running" if run else "stopped"
    if not run and time.monotonic() < memory.get("listed_until", 0):
        status = "running"
    address = address_of(vm, run) if run else None
    options = run["options"] if run else {}
    reachable = None
    if address:
        reachable = vm["ssh_available"] if vm["ssh_available"] is not None else port_answers(vm, address, vm.port)
    shares = options.get("shared") or None
    vnc = f"vnc://:secret-{vm.name}@127.0.0.1:{5900 + run['boot'] % 90}" if run and options.get("vnc") != "disabled" else None
    return {
        "cpuCount": vm["cpu"], "diskSize": {"allocated": vm["disk_allocated"], "total": vm["disk_total"]},
        "display": vm["display"], "downloadProgress": 41.7 if vm["status"] == "pulling" else None, "ipAddress": address,
        "locationName": vm["storage"], "memorySize": vm["memory"], "name": vm.name,
        "networkMode": options.get("network", vm["network"]), "os": vm["os"],
        "provisioningOperation": "create" if str(vm["status"]).startswith("provisioning") else None,
        "sharedDirectories": shares, "sshAvailable": reachable, "status": vm["status"] or status, "vncUrl": vnc,
    }


def swift_json(value, pad="\n"):
    """Swift's encoder: blanks around the colon, slashes escaped."""
    if isinstance(value, (dict, list)) and value:
        if isinstance(value, dict):
            items = [f"{swift_json(key)} : {swift_json(item, pad + '  ')}" for key, item in value.items()]
        else:
            items = [swift_json(item, pad + "  ") for item in value]
        opening, closing = "{}" if isinstance(value, dict) else "[]"
        return opening + pad + "  " + f",{pad}  ".join(items) + pad + closing
    return to_json(value).replace("/", "\\/")


def print_objects(world, objects, single):
    if world.config["json"] == "old":
        for item in objects:
            for key in ("sharedDirectories", "provisioningOperation", "networkMode", "downloadProgress", "sshAvailable"):
                item.pop(key)
    bare = single and world.config["json"] == "object"
    print(swift_json(objects[0] if bare else objects))


def print_table(objects):
    print("name\tos\tcpu\tmemory\tdisk\tdisplay\tstatus\tstorage\tip\tssh\tvnc")
    for item in objects:
        print("\t".join(str(item.get(key) or "-") for key in (
            "name", "os", "cpuCount", "memorySize", "diskSize", "display", "status", "locationName", "ipAddress",
            "sshAvailable", "vncUrl")))


def find(world, name, storage=None):
    vm = world.vm(name)
    if "/" in name or not vm.exists() or (storage and storage != vm["storage"]):
        raise Failure(f"Virtual machine not found: {name}")
    if vm.memory().get("missing", 0) and not vm.run_state() and vm.count_down("missing"):
        raise Failure(f"Virtual machine not found: {name}")
    return vm


def cmd_ls(world, words):
    _, values = parse("ls", words, (), ("--format", "--storage"), operands=0)
    objects = [describe(vm) for vm in world.vms() if values.get("--storage", vm["storage"]) == vm["storage"]]
    for item in objects:
        log(world, "INFO", f"Cleaned up stale session file name={item['name']} ports=[5901, 5902]")
    if values.get("--format") == "json":
        print_objects(world, objects, single=False)
    elif objects:
        print_table(objects)
    else:
        print("No virtual machines found")
    return 0


def cmd_get(world, words):
    (name,), values = parse("get", words, (), ("--format", "--storage"))
    log(world, "INFO", f"Cleaned up stale session file name={name} ports=[5901, 5902]")
    vm = find(world, name, values.get("--storage"))
    item = describe(vm)
    if values.get("--format") == "json":
        print_objects(world, [item], single=True)
    else:
        print_table([item])
    log(world, "ERROR", f"Failed to read lease file [errno 2] name={vm.name} {{retry: true}}")
    return 0


RUN_OPTIONS = ("--display", "--log-file", "--vnc", "--vnc-port", "--network", "--storage", "--recovery-mode")


def share(text):
    path, mode = text, "rw"
    for suffix in (":ro", ":rw"):
        if text.endswith(suffix):
            path, mode = text[:-3], suffix[1:]
    if not os.path.isdir(path):
        raise Failure(f"Invalid shared directory: {path}", USAGE)
    return {"hostPath": os.path.abspath(path), "readOnly": mode == "ro", "tag": "com.apple.virtio-fs.automount"}


def cmd_run(world, words):
    (name,), values = parse("run", words, ("--no-display", "--detach"), RUN_OPTIONS, ("--shared-dir",))
    if values.get("--detach") and not since(world, (0, 5, 0)):
        raise Failure("Unknown option '--detach'\nUsage: lume run <name> [options]", USAGE)
    vm = world.vm(name)
    if ":" in name and not vm.exists():
        world.event("forbidden-pull", vm=name)
        log(world, "INFO", f"Pulling image {name} [ghcr.io]")
        raise Failure(f"Failed to pull image {name}")
    if not values.get("--detach"):
        return run_here(world, find(world, name, values.get("--storage")), values)
    find(world, name, values.get("--storage"))
    target = values.get("--log-file") or os.path.join(world.home, "Library", "Logs", "lume", f"{vm.name}.log")
    os.makedirs(os.path.dirname(target), exist_ok=True)
    child = os.fork()
    if child == 0:
        os.setsid()
        output = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, number in ((null, 0), (output, 1), (output, 2)):
            os.dup2(source, number)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        os.closerange(3, 256)
        # The stand-in again, as `nohup lume run …` would: its own call, its own faults.
        from dispatch import again
        again(["run", *[word for word in words if word != "--detach"]])
    world_record(world, child)
    print(f"Started '{name}' in the background (PID {child}).")
    print(f"Log: {target}")
    return 0


def world_record(world, pid):
    from world import append_line
    append_line(world.path("pids.jsonl"), {"pid": pid, "start": start_time(pid), "role": "vm"})


def running_macos(world, besides):
    return sum(1 for vm in world.vms() if vm.name != besides.name and vm["os"] == "macOS" and vm.run_state())


def prepare_run(world, vm, values):
    """Everything between the command line and a started machine; returns the descriptor that holds the lock."""
    shared = [share(text) for text in values.get("--shared-dir", [])]
    display = "none" if values.get("--no-display") else values.get("--display")
    if world.config["headless"] and display != "none":
        raise Failure("Failed to open the viewer: no window server connection")
    lock = os.open(vm.config, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise Failure(f"Virtual machine already running: {vm.name}") from None
    if vm["run_fails"]:
        time.sleep(vm["run_fail_delay"])
        raise Failure(vm["run_fails"])
    limit = world.config["guest_limit"]
    if limit is not None and vm["os"] == "macOS":
        from world import locked
        with locked(world.path("limit.lock")):
            if running_macos(world, vm) >= limit:
                time.sleep(vm["run_fail_delay"])
                world.event("limit-reached", vm=vm.name)
                raise Failure('Error Domain=VZErrorDomain Code=6 "The number of virtual machines exceeds the limit." '
                              "UserInfo={NSLocalizedFailureReason=The maximum supported number of active virtual machines "
                              "has been reached.}")
            note_run(vm, values, shared, display)
    else:
        note_run(vm, values, shared, display)
    return lock


def note_run(vm, values, shared, display):
    from vm import begin
    begin(vm, {"display": display, "shared": shared, "network": values.get("--network", vm["network"]),
               "vnc": values.get("--vnc", "enabled"), "recovery": values.get("--recovery-mode", "false")})


def run_here(world, vm, values):
    log(world, "INFO", f"Starting virtual machine name={vm.name} [display={values.get('--display')}]")
    sys.stdout.flush()
    world.record_process("vm")
    lock = prepare_run(world, vm, values)
    from vm import hold
    status = hold(world, vm)
    os.close(lock)
    if status:
        raise Failure("The operation couldn’t be completed. (Swift.CancellationError error 1.)")
    return 0


def wait_unlocked(vm, seconds):
    deadline = time.monotonic() + seconds
    fd = os.open(vm.config, os.O_RDWR | os.O_CLOEXEC)
    try:
        while time.monotonic() < deadline:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                time.sleep(0.01)
        return False
    finally:
        os.close(fd)


def cmd_stop(world, words):
    (name,), values = parse("stop", words, (), ("--storage",))
    vm = find(world, name, values.get("--storage"))
    run = vm.run_state()
    if not run:
        raise Failure(f"Virtual machine not running: {name}")
    log(world, "INFO", f"Stopping virtual machine name={vm.name}")
    kill_exactly(run["pid"], run["start"], signal.SIGINT)
    if not wait_unlocked(vm, 10):
        log(world, "ERROR", f"Virtual machine did not stop in 10 s, killing [pid {run['pid']}]")
        kill_exactly(run["pid"], run["start"], signal.SIGKILL)
        if not wait_unlocked(vm, 2):
            raise Failure(f"Failed to stop virtual machine: {name}")
    print(f"VM stopped successfully: {vm.name}")
    return 0


def login(vm, values):
    run = vm.run_state()
    if not run:
        raise Failure(f"Virtual machine not running: {vm.name}")
    if not address_of(vm, run):
        raise Failure(f"No IP address for virtual machine {vm.name}")
    if not vm.ask({"op": "up"}):
        raise Failure(f"SSH connection failed: {run['ip']}:22 [connection refused]")
    if (values.get("--user", "lume"), values.get("--password", "lume")) != (vm["user"], vm["password"]):
        raise Failure("SSH authentication failed")
    return run


def cmd_shutdown(world, words):
    if not since(world, (0, 5, 0)):
        raise Failure("Unexpected argument 'shutdown'\nUsage: lume <subcommand>", USAGE)
    (name,), values = parse("shutdown", words, (), ("--user", "--password", "--timeout", "--storage"))
    vm = find(world, name, values.get("--storage"))
    login(vm, values)
    vm.ask({"op": "shutdown"})
    print(f"Shutdown requested: {vm.name}")
    return 0


def cmd_ssh(world, words):
    """Words joined by blanks, both streams as one, 60 s, password login: no way to carry a command faithfully."""
    (name,), values = parse("ssh", words, (), ("--user", "--password", "--timeout", "--storage"), rest=True)
    vm = find(world, name, values.get("--storage"))
    run = login(vm, values)
    if not values.get("rest"):
        raise Failure("An interactive session needs a terminal", USAGE)
    command = " ".join(values["rest"])
    import subprocess
    key = os.path.join(world.home, ".ssh", "id_ed25519")
    ssh = ["/usr/bin/ssh", "-F", "/dev/null", "-i", key, "-o", "StrictHostKeyChecking=no", "-o", "LogLevel=ERROR",
           "-o", "UserKnownHostsFile=/dev/null", "-o", "IdentityAgent=none", "-p", str(vm.port), f"{vm['user']}@{run['ip']}",
           command]
    # The password was checked above; the key only spares the stand-in a second implementation of SSH.
    try:
        done = subprocess.run(ssh, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                              timeout=float(values.get("--timeout", 60)) or None, check=False)
    except subprocess.TimeoutExpired:
        raise Failure(f"SSH command timed out after {values.get('--timeout', 60)} seconds") from None
    sys.stdout.flush()
    os.write(1, done.stdout)
    return done.returncode


def cmd_clone(world, words):
    (source, target), _ = parse("clone", words, (), ("--source-storage", "--dest-storage"), operands=2)
    original = find(world, source)
    if world.vm(target).exists():
        raise Failure(f"Virtual machine already exists: {target}")
    if original.run_state():
        raise Failure(f"Virtual machine is running: {source}")
    from lab import clone_vm
    clone_vm(world, original, target)
    print(f"VM cloned successfully: {source} -> {target}")
    return 0


def cmd_forbidden(kind):
    def answer(world, words):
        world.event(f"forbidden-{kind}", argv=words)
        raise Failure(f"lume {kind} is not part of this lab")
    return answer


def cmd_serve(world, words):
    _, values = parse("serve", words, (), ("--port",), operands=0)
    from serve import serve
    return serve(world, int(values.get("--port", 7777)))


COMMANDS = {"ls": cmd_ls, "get": cmd_get, "run": cmd_run, "stop": cmd_stop, "shutdown": cmd_shutdown, "ssh": cmd_ssh,
            "clone": cmd_clone, "serve": cmd_serve,
            **{kind: cmd_forbidden(kind) for kind in ("pull", "create", "delete", "set", "push", "prune")}}


def answer(world, argv):
    if argv[:1] == ["--version"]:
        print(world.config["version"])
        return 0
    try:
        if not argv or argv[0] not in COMMANDS:
            raise Failure(f"Unexpected argument '{argv[0] if argv else ''}'\nUsage: lume <subcommand>", USAGE)
        return COMMANDS[argv[0]](world, argv[1:])
    except Failure as failure:
        sys.stdout.flush()
        print(f"Error: {failure}", file=sys.stderr)
        return failure.status
