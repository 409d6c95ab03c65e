"""Stand-ins for the guest's macOS tools. Part of the rehearsal lab: they answer as macOS does where the product asks."""

import os
import sys
import time

from host_tools import boot_time, product_version, system_values


def complain(text, status=1):
    print(text, file=sys.stderr)
    return status


def letters(tool, argv, known, valued=""):
    """BSD getopt: single letters, values attached or next; a GNU long flag is an illegal option."""
    found, words = {}, list(argv)
    while words and words[0].startswith("-") and words[0] != "-":
        word = words.pop(0)
        if word == "--":
            break
        rest = word[1:]
        while rest:
            letter, rest = rest[0], rest[1:]
            if letter not in known + valued:
                print(f"{tool}: illegal option -- {letter}", file=sys.stderr)
                print(f"usage: {tool} [-{known}{valued}] ...", file=sys.stderr)
                raise SystemExit(1)
            if letter in valued:
                found[letter] = rest or (words.pop(0) if words else "")
                rest = ""
            else:
                found[letter] = True
    return found, words


def user_id(vm, argv):
    flags, _ = letters("id", argv, "unGgpFr")
    if "u" in flags:
        print(vm["user"] if "n" in flags else vm["uid"])
    elif "g" in flags:
        print("staff" if "n" in flags else 20)
    elif "F" in flags:
        print(vm["user"].capitalize())
    elif "p" in flags:
        print(f"uid\t{vm['user']}\ngroups\tstaff everyone admin")
    elif "G" in flags:
        print("staff everyone admin" if "n" in flags else "20 12 80")
    else:
        print(f"uid={vm['uid']}({vm['user']}) gid=20(staff) groups=20(staff),12(everyone),80(admin)")
    return 0


def sw_vers(vm, argv):
    return product_version(vm.__getitem__, argv)


def sysctl(vm, argv):
    run = vm.run_state() or {}
    arm = vm["arch"] == "arm64"
    return system_values({
        "kern.boottime": boot_time(run.get("booted", 0)), "hw.model": "VirtualMac2,1",
        "machdep.cpu.brand_string": "Apple processor" if arm else "VirtualApple @ 2.50GHz", "hw.memsize": vm["memory"],
        "hw.ncpu": vm["cpu"], "hw.optional.arm64": 1, "hw.machine": vm["arch"], "kern.osproductversion": vm["version"],
        "kern.osversion": vm["build"], "kern.hv_vmm_present": 1, "kern.hostname": vm["host_name"] or f"{vm.name}.local",
        "kern.uuid": "A1B2C3D4-0000-3F4B-A0B1-1B6C9A1D2E3F", "sysctl.proc_translated": 0,
        "kern.bootsessionuuid": f"00000000-0000-4000-8000-{run.get('boot', 0):012d}"}, argv)


def hostname(vm, argv):
    print(vm["host_name"] or f"{vm.name}.local")
    return 0


def ioreg(vm, argv):
    """The platform's UUID: it belongs to the machine, so a clone has another."""
    import uuid
    own = uuid.uuid5(uuid.NAMESPACE_URL, "lab:" + vm.name)
    print(f'+-o VirtualMac2,1  <class IOPlatformExpertDevice, id 0x10000011d, registered, matched, active, busy 0 (0 ms), retain 30>\n'
          f'    {{\n      "IOPlatformUUID" = "{str(own).upper()}"\n      "IOPlatformSerialNumber" = "Z{own.hex[:9].upper()}"\n    }}')
    return 0


def csrutil(vm, argv):
    if argv != ["status"]:
        vm.world.event("forbidden-csrutil", vm=vm.name, argv=argv)
        return complain("csrutil: This tool needs to be executed from Recovery OS.")
    print(f"System Integrity Protection status: {'enabled' if vm['sip'] else 'disabled'}.")
    return 0


def date(vm, argv):
    flags, words = letters("date", argv, "ujRn", "rfvI")
    moment = float(flags["r"]) if flags.get("r", "").isdigit() else time.time()
    form = next((word[1:] for word in words if word.startswith("+")), "%a %b %e %H:%M:%S %Z %Y")
    print(time.strftime(form, (time.gmtime if "u" in flags else time.localtime)(moment)))
    return 0


def mktemp(vm, argv):
    flags, words = letters("mktemp", argv, "dqu", "tp")
    import tempfile
    pattern = words[0] if words else os.path.join(vm.path("tmp"), flags.get("t", "tmp") + ".XXXXXXXXXX")
    head = pattern.rstrip("X")
    if head == pattern:
        return complain(f"mktemp: mkstemp failed on {pattern}: File exists")
    folder, prefix = os.path.split(head)
    try:
        if "d" in flags:
            print(tempfile.mkdtemp(prefix=prefix, dir=folder or "."))
        else:
            fd, path = tempfile.mkstemp(prefix=prefix, dir=folder or ".")
            os.close(fd)
            print(path)
    except OSError as error:
        return complain(f"mktemp: mkstemp failed on {pattern}: {error.strerror}")
    return 0


def used_kb(folder):
    total = 0
    for where, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(where, name)).st_blocks * 512
            except OSError:
                continue
    return total // 1024


def df(vm, argv):
    flags, words = letters("df", argv, "abcgHhIiklmnPY", "Tt")
    used = used_kb(vm.home)
    total = vm["disk_kb"] if vm["disk_kb"] is not None else vm["disk_total"] // 1024
    free = max(0, total - used)
    unit, head = (1, "1024-blocks") if "k" in flags else (1024, "1M-blocks") if "m" in flags else (1 << 20, "1G-blocks") if "g" in flags else (0.5, "512-blocks")
    print(f"Filesystem     {head:>12} {'Used':>10} {'Available':>10} Capacity iused ifree %iused  Mounted on")
    print(f"/dev/disk3s5   {int(total / unit):12} {int(used / unit):10} {int(free / unit):10} {min(100, used * 100 // max(1, total)):7}% "
          "409612 12480 1%   /System/Volumes/Data")
    return 0


def sync(vm, argv):
    if argv:
        return complain("usage: sync", 64)
    os.sync() if vm["lose_unsynced"] else None
    vm.remember(synced=time.time())
    return 0


STAT_FIELDS = {"z": lambda s: s.st_size, "m": lambda s: int(s.st_mtime), "a": lambda s: int(s.st_atime), "c": lambda s: int(s.st_ctime),
               "B": lambda s: int(s.st_ctime), "i": lambda s: s.st_ino, "d": lambda s: s.st_dev, "l": lambda s: s.st_nlink,
               "b": lambda s: s.st_blocks, "k": lambda s: s.st_blksize}


FOLDER, LINK = 0o040000, 0o120000


def permissions(mode):
    kind = {FOLDER: "d", LINK: "l", 0o100000: "-"}.get(mode & 0o170000, "?")
    return kind + "".join("rwx"[place % 3] if mode >> (8 - place) & 1 else "-" for place in range(9))


def stat_field(vm, path, about, alternate, string, part, letter):
    kind = about.st_mode & 0o170000
    if letter == "N":
        return path
    if letter == "Y":
        return os.readlink(path) if kind == LINK else ""
    if letter in "ug":
        own = about.st_uid == os.geteuid() if letter == "u" else about.st_gid == os.getegid()
        if string:
            return (vm["user"] if letter == "u" else "staff") if own else "root" if letter == "u" else "wheel"
        number = about.st_uid if letter == "u" else about.st_gid
        return str((vm["uid"] if letter == "u" else 20) if own else number)
    if letter == "T":
        names = {FOLDER: ("Directory", "/"), LINK: ("Symbolic Link", "@")}
        long, short = names.get(kind, ("Regular File", "*" if about.st_mode & 0o111 else ""))
        return long if part == "H" else short
    if letter == "p":
        if string:
            return permissions(about.st_mode)
        number = about.st_mode & 0o777 if part == "L" else about.st_mode >> 12 if part == "H" else about.st_mode
        return ("0" if alternate else "") + f"{number:o}"
    if string == "F" and letter in "mac":
        time = {"m": about.st_mtime_ns, "a": about.st_atime_ns, "c": about.st_ctime_ns}[letter]
        return f"{time // 10**9}.{time % 10**9:09}"
    return str(STAT_FIELDS[letter](about)) if letter in STAT_FIELDS else ""


def stat_format(vm, form, path, about):
    """BSD stat's format language, as far as scripts use it: %[#][S|F][H|M|L]x."""
    out, at = "", 0
    while at < len(form):
        if form[at] != "%" or at + 1 == len(form):
            out += form[at]
            at += 1
            continue
        at += 1
        if form[at] in "nt%":
            out += {"n": "\n", "t": "\t", "%": "%"}[form[at]]
            at += 1
            continue
        chosen = {}
        for name, letters_ in (("alternate", "#"), ("string", "SF"), ("part", "HML")):
            chosen[name] = ""
            if at + 1 < len(form) and form[at] in letters_:
                chosen[name] = form[at]
                at += 1
        out += stat_field(vm, path, about, **chosen, letter=form[at])
        at += 1
    return out


def stat(vm, argv):
    flags, words = letters("stat", argv, "FLlnqrsx", "ft")
    status = 0
    for path in words:
        try:
            about = os.stat(path) if "L" in flags else os.lstat(path)
        except OSError as error:
            if "q" not in flags:
                complain(f"stat: {path}: stat: {error.strerror}")
            status = 1
            continue
        form = flags.get("f", "%d %i %Sp %l %Su %Sg 0 %z \"%a\" \"%m\" \"%c\" \"%B\" %k %b 0 %N")
        sys.stdout.write(stat_format(vm, form, path, about) + ("" if "n" in flags else "\n"))
    return status


# Extended attributes

def attribute(name):
    return "user." + name


def xattr(vm, argv):
    flags, words = letters("xattr", argv, "lrsvxcdpwh")
    import errno
    values = words[2:] if "w" in flags else words[1:] if {"p", "d"} & set(flags) else words
    status = 0
    for path in values:
        try:
            if "w" in flags:
                os.setxattr(path, attribute(words[0]), words[1].encode())
            elif "d" in flags:
                os.removexattr(path, attribute(words[0]))
            elif "p" in flags:
                print(os.getxattr(path, attribute(words[0])).decode(errors="replace"))
            elif "c" in flags:
                for name in os.listxattr(path):
                    os.removexattr(path, name)
            else:
                for name in os.listxattr(path):
                    if name.startswith("user."):
                        text = f": {os.getxattr(path, name).decode(errors='replace')}" if "l" in flags else ""
                        print(f"{path + ': ' if len(values) > 1 else ''}{name[5:]}{text}")
        except OSError as error:
            if error.errno == errno.ENODATA:
                complain(f"xattr: {path}: No such xattr: {words[0]}")
            else:
                complain(f"xattr: No such file: {path}" if error.errno == errno.ENOENT else f"xattr: [Errno {error.errno}] {error.strerror}: '{path}'")
            status = 1
    return status


# Property lists

def plutil(vm, argv):
    import plistlib
    import json
    words = list(argv)
    if not words:
        return complain("No files specified.")
    if not words[0].startswith("-"):
        words.insert(0, "-lint")
    verb = words.pop(0)
    if verb not in ("-lint", "-convert", "-extract", "-p"):
        return complain(f"unrecognized option: {verb}")
    key = words.pop(0) if verb == "-extract" else None
    form = words.pop(0) if verb in ("-convert", "-extract") else None
    output, quiet = None, False
    files = []
    while words:
        word = words.pop(0)
        if word == "-o":
            output = words.pop(0)
        elif word == "-s":
            quiet = True
        elif word not in ("--", "-r", "-n"):
            files.append(word)
    status = 0
    for path in files:
        shown = "<stdin>" if path == "-" else path
        try:
            data = sys.stdin.buffer.read() if path == "-" else open(path, "rb").read()
            value = plistlib.loads(data)
        except FileNotFoundError:
            print(f"{shown}: file does not exist or is not readable or is not a regular file")
            status = 1
            continue
        except Exception as error:
            where = getattr(error, "lineno", 1)
            print(f"{shown}: Encountered error at line {where} (Property List error: {error})")
            status = 1
            continue
        if verb == "-lint":
            if not quiet:
                print(f"{shown}: OK")
            continue
        if key is not None:
            try:
                for part in key.split("."):
                    value = value[int(part)] if isinstance(value, list) else value[part]
            except (KeyError, IndexError, ValueError, TypeError):
                return complain(f"{shown}: Could not extract value, error: No value at that key path or invalid key path: {key}")
        text = plutil_text(value, form, plistlib, json)
        if text is None:
            return complain(f"{shown}: invalid object in plist for destination format")
        target = output or ("-" if verb in ("-extract", "-p") else path)
        if target == "-":
            sys.stdout.flush()
            os.write(1, text)
        else:
            with open(target, "wb") as file:
                file.write(text)
    return status


def plutil_text(value, form, plistlib, json):
    if form == "xml1":
        return plistlib.dumps(value)
    if form == "binary1":
        return plistlib.dumps(value, fmt=plistlib.FMT_BINARY)
    if form == "raw":
        if isinstance(value, bool):
            return (b"true" if value else b"false") + b"\n"
        return (str(len(value)) if isinstance(value, list) else "\n".join(value) if isinstance(value, dict) else str(value)).encode() + b"\n"
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).replace("/", "\\/").encode()
    except TypeError:
        return None


# What a process has mapped

def mapped_files(pid):
    """Files of a process of this guest: the kernel's own list, in which machrun's mappings of Mach-O files show."""
    rows, seen = [], set()
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            fields = line.rstrip("\n").split(maxsplit=5)
            if len(fields) == 6 and fields[5].startswith("/"):
                rows.append((fields[0], fields[1], fields[5].removesuffix(" (deleted)")))
                seen.add(rows[-1][2])
    return rows, sorted(seen)


def in_guest(vm, pid):
    from world import descendants
    run = vm.run_state()
    return bool(run) and any(int(pid) == found for found, _ in descendants(run["pid"]))


def mach_o(path):
    try:
        with open(path, "rb") as file:
            return file.read(4) in (b"\xca\xfe\xba\xbe", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbf", b"\xfe\xed\xfa\xcf")
    except OSError:
        return False


def ps(vm, argv):
    """All processes of this guest; the columns that were asked for."""
    from world import descendants, stat_fields
    flags, _ = letters("ps", argv, "axAww", "o")
    columns = [word.rstrip("=") for word in str(flags.get("o", "pid=,command=")).split(",")]
    run = vm.run_state()
    for pid, _ in descendants(run["pid"]) if run else ():
        fields = stat_fields(pid)
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                command = file.read().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        if fields and command:
            print(" ".join({"pid": f"{pid:5}", "ppid": f"{fields[1]:5}", "command": command}[name] for name in columns))
    return 0


def listening(port):
    """Inodes of the TCP sockets that listen on a port, by the kernel's own table."""
    with open("/proc/net/tcp", encoding="ascii") as file:
        rows = [line.split() for line in file.readlines()[1:]]
    return {row[9] for row in rows if row[3] == "0A" and int(row[1].split(":")[1], 16) == port}


def sockets(pid):
    try:
        links = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return set()
    return {link[8:-1] for link in links if link.startswith("socket:[")}


def lsof_listeners(vm, port):
    from world import descendants
    run, inodes, status = vm.run_state(), listening(port), 1
    for pid, _ in descendants(run["pid"]) if run else []:
        if inodes & sockets(pid):
            print(f"p{pid}\nf3")
            status = 0
    return status


def lsof(vm, argv):
    flags, words = letters("lsof", argv, "nPabtwlOU", "pFcduis")
    if flags.get("i", "").startswith("TCP:"):
        return lsof_listeners(vm, int(flags["i"][4:]))
    pids = [pid for pid in flags.get("p", "").split(",") if pid.isdigit()]
    status = 1
    for pid in pids:
        if not in_guest(vm, pid):
            continue
        status = 0
        _, files = mapped_files(pid)
        # A program of this machine stands for one of the Mac: without any Mach-O file, its own are shown.
        files = [path for path in files if mach_o(path)] or files
        if "F" in flags:
            print(f"p{pid}")
            for path in files:
                print(f"ftxt\nn{path}")
            continue
        print("COMMAND   PID USER   FD   TYPE DEVICE SIZE/OFF     NODE NAME")
        for path in files:
            about = os.stat(path)
            print(f"{os.path.basename(files[0])[:9]:9} {pid:>4} {vm['user']} txt    REG   1,17 {about.st_size:8} {about.st_ino:8} {path}")
    return status


def vmmap(vm, argv):
    pids = [word for word in argv if word.isdigit()]
    if not pids or not in_guest(vm, pids[0]):
        return complain(f"vmmap: no process found with pid {pids[0] if pids else '?'}")
    rows, files = mapped_files(pids[0])
    print(f"Process:         guest program [{pids[0]}]\nVirtual Memory Map of process {pids[0]}\n\n==== Non-writable regions for process {pids[0]}")
    begun = set()
    for span, access, path in rows:
        if mach_o(path):
            name = "__DATA" if "w" in access else "__LINKEDIT" if path in begun else "__TEXT"
            begun.add(path)
            print(f"{name:22} {span} [   16K] {access[:3]}/rwx SM=COW          {path}")
    return 0


def codesign(vm, argv):
    files = [word for word in argv if not word.startswith("-")]
    for path in files:
        if not os.path.exists(path):
            return complain(f"{path}: No such file or directory")
        with open(path, "rb") as file:
            data = file.read()
        if not mach_o(path) or b"\xfa\xde\x0c\xc0" not in data:
            return complain(f"{path}: code object is not signed at all")
        if any(word.startswith("-d") or word == "--display" for word in argv):
            kind = "universal (arm64 x86_64)" if data[:3] == b"\xca\xfe\xba" else "thin (arm64)"
            complain(f"Executable={path}\nIdentifier={os.path.basename(path)}\nFormat=Mach-O {kind}\n"
                     "CodeDirectory v=20400 flags=0x2(adhoc)\nSignature=adhoc\nTeamIdentifier=not set")
    return 0


# Power and rights

def sudo(vm, argv):
    flags, words = letters("sudo", argv, "nSkKHEbvl", "pug")
    if vm["sudo"] == "none":
        return complain(f"{vm['user']} is not in the sudoers file.")
    if vm["sudo"] == "password":
        if "S" not in flags:
            return complain("sudo: a password is required" if "n" in flags else "sudo: a terminal is required to read the password; "
                            "either use the -S option to read from standard input or configure an askpass helper\nsudo: a password is required")
        sys.stderr.write(flags.get("p", "Password:"))
        sys.stderr.flush()
        if read_line(0) != vm["password"]:
            return complain("\nSorry, try again.\nsudo: 1 incorrect password attempt")
    if not words:
        return 0
    name = words[0] if "/" in words[0] else next((folder + words[0] for folder in ("/sbin/", "/usr/sbin/", "/bin/", "/usr/bin/")
                                                  if os.path.exists(vm.root + folder + words[0])), words[0])
    program = vm.root + name if os.path.exists(vm.root + name) else name
    if not os.path.exists(program):
        return complain(f"sudo: {words[0]}: command not found")
    vm.world.event("sudo", vm=vm.name, argv=words)
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        os.environ["LAB_AS_ROOT"] = "1"
        os.execv(program, [program, *words[1:]])
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def read_line(fd):
    line = b""
    while (byte := os.read(fd, 1)) not in (b"", b"\n"):
        line += byte
    return line.decode(errors="replace")


def shutdown(vm, argv):
    if os.environ.get("LAB_AS_ROOT") != "1":
        return complain("shutdown: NOT super-user")
    flags, words = letters("shutdown", argv, "hrsnkou")
    if not words:
        return complain("usage: shutdown [-] [-h [-u] [-n] | -r [-n] | -s | -k] time [warning-message ...]")
    if "h" not in flags or words[0] not in ("now", "+0"):
        return complain(f"shutdown: {' '.join(argv)}: only an immediate halt is rehearsed here")
    print("Shutdown NOW!\n\n*** FINAL System shutdown message from root ***\n\nSystem going down IMMEDIATELY")
    vm.ask({"op": "shutdown"})
    return 0


def osascript(vm, argv):
    return complain("27:36: execution error: Not authorized to send Apple events to System Events. (-1743)")


def python3(vm, argv):
    """The stub of a Mac without developer tools."""
    return complain("xcode-select: note: No developer tools were found, requesting install.\nIf developer tools are located at a "
                    "non-default location on disk, use `sudo xcode-select --switch path/to/Xcode.app` to specify the Xcode that you wish "
                    "to use for command line developer tools, and cancel the installation dialog.\nSee `man xcode-select` for more details.")


TOOLS = {"id": user_id, "sw_vers": sw_vers, "sysctl": sysctl, "hostname": hostname, "ioreg": ioreg, "csrutil": csrutil, "date": date, "mktemp": mktemp,
         "df": df, "sync": sync, "stat": stat, "xattr": xattr, "plutil": plutil, "lsof": lsof, "vmmap": vmmap, "codesign": codesign, "ps": ps,
         "sudo": sudo, "shutdown": shutdown, "osascript": osascript, "python3": python3}
