"""Stand-ins for the host's small tools. Part of the rehearsal lab: the figures are configured, not measured."""

import os
import sys
import time


def product_version(facts, argv):
    """`sw_vers`, for host and guest alike."""
    values = {"ProductName": facts("product"), "ProductVersion": facts("version"), "BuildVersion": facts("build")}
    flags = {"-productName": "ProductName", "-productVersion": "ProductVersion", "-buildVersion": "BuildVersion",
             "--productName": "ProductName", "--productVersion": "ProductVersion", "--buildVersion": "BuildVersion"}
    if not argv:
        for key, value in values.items():
            print(f"{key}:\t\t{value}")
        return 0
    if argv[0] not in flags:
        print("Usage: sw_vers [--help|--productName|--productVersion|--productVersionExtra|--buildVersion]", file=sys.stderr)
        return 1
    print(values[flags[argv[0]]])
    return 0


def boot_time(seconds):
    whole = int(seconds)
    return f"{{ sec = {whole}, usec = {int((seconds - whole) * 1e6)} }} {time.strftime('%a %b %e %H:%M:%S %Y', time.localtime(whole))}"


def system_values(values, argv):
    """`sysctl`, for host and guest alike: `-n` prints values only."""
    names = [word for word in argv if not word.startswith("-")]
    flags = "".join(word[1:] for word in argv if word.startswith("-"))
    if not names or set(flags) - set("nbdehiqxA"):
        print("usage: sysctl [-bdehiNnoqx] [-B <bufsize>] [-f filename] name[=value] ...", file=sys.stderr)
        return 1
    status = 0
    for name in names:
        if name not in values:
            if "i" not in flags:
                print(f"sysctl: unknown oid '{name}'", file=sys.stderr)
                status = 1
            continue
        print(values[name] if "n" in flags else f"{name}: {values[name]}")
    return status


def sw_vers(world, argv):
    return product_version(world.config["host"].get, argv)


def sysctl(world, argv):
    host = world.config["host"]
    with open("/proc/stat", encoding="ascii") as file:
        booted = next(int(line.split()[1]) for line in file if line.startswith("btime"))
    return system_values({"kern.boottime": boot_time(host.get("booted", booted)), **host}, argv)


def nc(world, argv):
    """`nc -z HOST PORT` tries a port; `nc [-v] HOST PORT` carries standard input and output. Both connect for real."""
    import socket
    flags = "".join(word[1:] for word in argv if word.startswith("-"))
    host, port = argv[-2:]
    with socket.socket() as link:
        link.settimeout(3)
        refused = link.connect_ex((host, int(port)))
        if "z" in flags or refused:
            if refused and "v" in flags:
                print(f"nc: connectx to {host} port {port} (tcp) failed: Connection refused", file=sys.stderr)
            return 1 if refused else 0
        link.settimeout(None)
        if "v" in flags:
            print(f"Connection to {host} port {port} [tcp/ssh] succeeded!", file=sys.stderr, flush=True)
        carry(link)
    return 0


def carry(link):
    """Both ways until the network's end; the end of our input is passed on."""
    import os
    import select
    import socket
    inputs = [0, link.fileno()]
    while True:
        for ready in select.select(inputs, [], [])[0]:
            data = os.read(ready, 65536)
            if ready == 0 and data:
                link.sendall(data)
            elif ready == 0:
                inputs.remove(0)
                link.shutdown(socket.SHUT_WR)
            elif not data:
                return
            while ready != 0 and data:
                data = data[os.write(1, data):]


def ioreg(world, argv):
    if "AGXAccelerator" in argv:
        print('+-o AGXAcceleratorG13X  <class AGXAcceleratorG13X, id 0x1000004d1>\n    {\n      "gpu-core-count" = 48\n    }')
        return 0
    print('+-o Root  <class IORegistryEntry, id 0x100000100, retain 30>\n  +-o ' + world.config["host"]["hw.model"]
          + '  <class IOPlatformExpertDevice>\n      "IOPlatformUUID" = "' + world.config["host"]["kern.uuid"] + '"')
    return 0


def system_profiler(world, argv):
    host = world.config["host"]
    print(f"Hardware:\n\n    Hardware Overview:\n\n      Model Identifier: {host['hw.model']}\n"
          f"      Chip: {host['machdep.cpu.brand_string']}\n      Memory: {int(host['hw.memsize']) >> 30} GB\n")
    return 0


def ps(world, argv):
    """`ps -xo args=`: of this user's processes only those of this lab, since other labs are other Macs. Who started whom is the real answer."""
    if argv == ["-axo", "pid=,ppid=,comm="]:
        import subprocess
        return subprocess.run(["/usr/bin/ps", *argv], check=False).returncode
    if argv != ["-xo", "args="]:
        print("ps: this stand-in only answers to -xo args= and -axo pid=,ppid=,comm=", file=sys.stderr)
        return 1
    import json
    from world import alive
    with open(world.path("pids.jsonl"), encoding="ascii") as file:
        recorded = [json.loads(line) for line in file]
    for item in recorded:
        if alive(item["pid"], item["start"]):
            with open(f"/proc/{item['pid']}/cmdline", "rb") as file:
                print(file.read().replace(b"\0", b" ").decode(errors="replace").strip())
    return 0


def caffeinate(world, argv):
    """`caffeinate -i -w PID`: lasts until that process has ended."""
    if len(argv) != 3 or argv[:2] != ["-i", "-w"] or not argv[2].isdigit():
        print("usage: caffeinate [-disu] [-t timeout] [-w Process ID] [command arguments...]", file=sys.stderr)
        return 1
    while os.path.exists(f"/proc/{argv[2]}"):
        time.sleep(0.1)
    return 0


TOOLS = {"sw_vers": sw_vers, "ps": ps, "sysctl": sysctl, "nc": nc, "ioreg": ioreg, "system_profiler": system_profiler, "caffeinate": caffeinate}
