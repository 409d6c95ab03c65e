"""A running guest of the rehearsal lab: `lume run` holds it, a keeper process below it owns everything that runs in it.

The holder is the process that `lume` users see: it has the lock, takes SIGINT, may be killed. The keeper is told by the
kernel when the holder dies, adopts every orphan of the guest, and kills them all before it ends. Nothing outlives a VM.
"""

import _signal as signal
import os
import time

from world import become_subreaper, descendants, kill_exactly, start_time, write_json, read_json


def begin(vm, options):
    """Writes down the run before anything of it starts: from now on the VM is listed as running."""
    boot = vm.memory().get("boots", 0) + 1
    vm.remember(boots=boot, missing=0, listed_until=0)
    preferences = read_json(vm.world.path("host", "preferences.json"), {})
    seen = preferences.get("com.apple.gpusw.ParavirtualizedGraphics", {}).get("ForceUnrestrictedDeviceFeatureLevel")
    pid = os.getpid()
    write_json(vm.path("run.json"), {
        "pid": pid, "start": start_time(pid), "t0": time.monotonic(), "booted": time.time(), "boot": boot,
        "ip": guest_address(vm, boot), "options": options, "feature_level_at_start": seen})
    vm.world.event("boot", vm=vm.name, boot=boot, feature_level_at_start=seen, options=options)


def guest_address(vm, boot):
    """The same address at each boot, unless the VM is one whose address changes."""
    address = vm["ip"]
    if not vm["ip_changes"]:
        return address
    head, _, last = address.rpartition(".")
    return f"{head}.{(int(last) + 40 * (boot - 1)) % 250 + 1}"


def end(vm, how):
    """What is left of a run: the event, and the lies that `lume get` tells for a while."""
    vm.remember(missing=vm["missing_after_stop"], listed_until=time.monotonic() + vm["linger_running"], last_stop=how)
    if how != "clean-shutdown" and vm["lose_unsynced"]:
        drop_unsynced(vm)
    vm.world.event(how, vm=vm.name)
    try:
        os.unlink(vm.path("run.json"))
    except FileNotFoundError:
        pass


def drop_unsynced(vm):
    """A guest whose plug is pulled loses what it never wrote down: files changed after the last `sync` come back empty."""
    synced = vm.memory().get("synced", 0)
    for folder, _, names in os.walk(vm.home):
        for name in names:
            path = os.path.join(folder, name)
            if not os.path.islink(path) and os.stat(path).st_mtime > synced:
                os.truncate(path, 0)


def launch(world, vm):
    """Starts the keeper below this process; returns its process id once it would notice our end."""
    ready, told = os.pipe()
    holder = os.getpid()
    keeper = os.fork()
    if keeper == 0:
        os.close(ready)
        try:
            keep(world, vm, holder, told)
        except BaseException:  # noqa: BLE001 - the only witness of a fault of the lab itself
            import traceback
            with open(vm.path("keeper-error.txt"), "a", encoding="utf-8") as file:
                traceback.print_exc(file=file)
            kill_all_below()
        os._exit(1)
    os.close(told)
    os.read(ready, 1)
    os.close(ready)
    return keeper


def hold(world, vm):
    """The life of the foreground `lume run`. Returns 0 after a clean shutdown, 1 after a stop."""
    keeper = launch(world, vm)
    stopping = []

    def interrupt(*_):
        if not vm["stop_ignores_int"] and not stopping:
            stopping.append(True)
            time.sleep(vm["stop_delay"])
            os.kill(keeper, signal.SIGTERM)

    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, interrupt)
    _, status = os.waitpid(keeper, 0)
    return os.waitstatus_to_exitcode(status)


def kill_all_below():
    """Kills every process of this guest, again and again until none is left: orphans fall to us, the subreaper."""
    while below := descendants(os.getpid()):
        for pid, started in below:
            kill_exactly(pid, started)
        while True:
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    break
            except ChildProcessError:
                break
        time.sleep(0.002)


def keep(world, vm, holder, told):
    import ctypes
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.setsid()
    become_subreaper()
    world.record_process("keeper")
    # Before the loop is there to take it, a stop must not kill us half-way.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
    os.write(told, b"x")
    os.close(told)
    if os.getppid() != holder:
        os.kill(os.getpid(), signal.SIGTERM)
    shared = vm.run_state()["options"].get("shared")
    if shared and vm["shares_visible"]:
        import shares
        os.makedirs(vm.path("view"), exist_ok=True)
        shares.give(vm.path("view"), shared)
    import asyncio
    from guest import Guest
    how = asyncio.run(Guest(world, vm).live())
    kill_all_below()
    end(vm, how)
    os._exit(0 if how == "clean-shutdown" else 1)
