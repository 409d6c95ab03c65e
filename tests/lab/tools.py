"""Which tools a rehearsal guest has, and where: a stock macOS without developer tools, as far as the product may rely on it."""

import os

HERE = os.path.dirname(os.path.abspath(__file__))

# The host's own program as it is: a shell, or a tool that has no GNU flags of its own.
PLAIN = {"/bin/zsh": "/usr/bin/zsh", "/bin/sh": "/usr/bin/bash", "/bin/bash": "/usr/bin/bash",
         "/usr/libexec/sftp-server": "/usr/lib/openssh/sftp-server"}

# The host's GNU tool behind `bin/posix`, which refuses every flag that the BSD tool of a Mac does not have.
POSIX = ("/bin/cat /bin/chmod /bin/cp /bin/dd /bin/echo /bin/ln /bin/ls /bin/mkdir /bin/mv /bin/pwd /bin/rm /bin/rmdir /bin/sleep "
         "/bin/test /usr/bin/basename /usr/bin/dirname /usr/bin/env /usr/bin/false /usr/bin/head /usr/bin/nohup "
         "/usr/bin/printf /usr/bin/shasum /usr/bin/tail /usr/bin/touch /usr/bin/true /usr/bin/tty /usr/bin/uname /usr/bin/wc /bin/kill").split()

# Python stand-ins.
STANDIN = ("/bin/launchctl /bin/date /bin/df /bin/sync /bin/ps /usr/bin/stat /usr/bin/id /usr/bin/plutil /usr/bin/sw_vers /usr/bin/csrutil "
           "/usr/bin/xattr /usr/bin/vmmap /usr/bin/codesign /usr/bin/mktemp /usr/bin/sudo /usr/bin/osascript /usr/bin/python3 "
           "/usr/sbin/ioreg /usr/sbin/lsof /usr/sbin/sysctl /sbin/shutdown /bin/hostname").split()

OPTIONAL = {"rsync": "/usr/bin/rsync", "scp": "/usr/bin/scp", "ps": "/usr/bin/ps", "grep": "/usr/bin/grep", "sed": "/usr/bin/sed",
            "nc": "/usr/bin/nc"}


def standin(build):
    """What the name of a stand-in leads to: its front where a build made one, else the Python program itself."""
    front = os.path.join(build, "tests", "lab", "standin") if build else ""
    return front if os.path.exists(front) else os.path.join(HERE, "bin", "standin")


def link(target, path):
    if os.path.islink(path):
        os.unlink(path)
    os.symlink(target, path)


def build_guest_root(vm):
    """Fills the folders that the guest's absolute tool names stand for. `tools` adds, `without` takes away, by name."""
    real = vm.world.path("realbin")
    for folder in ("bin", "sbin", "usr/bin", "usr/sbin", "usr/libexec"):
        os.makedirs(os.path.join(vm.root, folder), exist_ok=True)
    places = dict(PLAIN)
    for path in POSIX:
        name = os.path.basename(path)
        places[path] = os.path.join(HERE, "bin", "posix")
        link(f"/usr/bin/{name}", os.path.join(real, name))
    for path in STANDIN:
        places[path] = standin(vm.world.config.get("build"))
    for name in vm["tools"]:
        places[f"/usr/bin/{name}"] = OPTIONAL[name]
    for path, target in places.items():
        place = vm.root + path
        if os.path.basename(path) in vm["without"]:
            if os.path.islink(place):
                os.unlink(place)
        else:
            link(target, place)
