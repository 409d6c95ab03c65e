"""What the lab's own tests share."""

import json
import os
import pathlib
import sys
import time

LAB = pathlib.Path(__file__).resolve().parent.parent / "lab"
sys.path.insert(0, str(LAB))

from lab import Lab  # noqa: E402, F401

DOMAIN, KEY = "com.apple.gpusw.ParavirtualizedGraphics", "ForceUnrestrictedDeviceFeatureLevel"

# With a build folder the guests run behind its exec layer, as in the product's tests; without one, on their PATH alone.
BUILD = os.environ.get("LUMELIFT_BUILD")


def processes_of(directory):
    """Every process that mentions the folder in its environment or command line."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                text = pathlib.Path("/proc", entry, "environ").read_bytes() + pathlib.Path("/proc", entry, "cmdline").read_bytes()
                if str(directory).encode() + b"/" in text.replace(b"\0", b"/\0"):
                    found.append((int(entry), text[:200]))
            except OSError:
                continue
    return found


def wait_for(condition, seconds=5):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "condition not met in time"
        time.sleep(0.02)


def get(lab, name="tahoe"):
    """The VM object of `lume get`, found among the log lines."""
    done = lab.host("lume", "get", name, "--format", "json")
    assert done.returncode == 0, done.stderr
    text = done.stdout[done.stdout.index("\n[\n") + 1:] if lab.world.config["noise"] == "on" else done.stdout
    return json.JSONDecoder().raw_decode(text)[0][0]


def agent(lab, label="com.example.w", name="tahoe", mode=0o644, **extra):
    import plistlib
    home = pathlib.Path(lab.vm(name).home)
    folder = home / "Library" / "LaunchAgents"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{label}.plist"
    path.write_bytes(plistlib.dumps({"Label": label, "ProgramArguments": ["/bin/sleep", "60"], "RunAtLoad": True, **extra}))
    path.chmod(mode)
    return path


def launchctl(lab, command):
    return lab.ssh("tahoe", "launchctl " + command)
