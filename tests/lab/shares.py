"""Shared folders of a guest: what `lume run --shared-dir` brings to /Volumes/My Shared Files. Part of the rehearsal lab.

The keeper of such a VM, and so everything in its guest, gets a mount namespace of its own and in it a root made of the
host's folders, with Volumes beside them. A read-only share is a read-only mount: the kernel refuses whoever writes. As with
the real one, each shared folder is a folder of its own name there.
"""

import ctypes
import os

PLACE = "Volumes/My Shared Files"
NEW_NAMESPACE, NEW_USER = 0x00020000, 0x10000000
READ_ONLY, REMOUNT, BIND, RECURSIVE, PRIVATE = 1, 32, 4096, 16384, 1 << 18

libc = ctypes.CDLL(None, use_errno=True)


def mount(source, target, kind=None, flags=0, data=None):
    words = [None if word is None else os.fsencode(word) for word in (source, target, kind)]
    if libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), None if data is None else data.encode()) != 0:
        fault = ctypes.get_errno()
        raise OSError(fault, os.strerror(fault), target)


def enter_namespace():
    """Root needs only the namespace; others get it with a user namespace in which they stay who they are."""
    uid, gid = os.geteuid(), os.getegid()
    if libc.unshare(NEW_NAMESPACE | (NEW_USER if uid else 0)) != 0:
        fault = ctypes.get_errno()
        raise OSError(fault, os.strerror(fault), "unshare")
    if uid:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)


def names_of(shares):
    """A folder's own name, numbered where two have the same."""
    taken = {}
    for share in shares:
        own = os.path.basename(share["hostPath"]) or "Shared Folder"
        name, number = own, 2
        while name in taken:
            name, number = f"{own} ({number})", number + 1
        taken[name] = share
    return taken


def give(folder, shares):
    """Moves this process to a root where the shares are mounted. `folder`: an empty one, the new root's place."""
    enter_namespace()
    mount(None, "/", flags=RECURSIVE | PRIVATE)
    mount("lab", folder, "tmpfs", data="mode=755")
    for entry in os.scandir("/"):
        target = os.path.join(folder, entry.name)
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), target)
        elif entry.is_dir():
            os.mkdir(target)
            mount(entry.path, target, flags=BIND | RECURSIVE)
    for name, share in names_of(shares).items():
        target = os.path.join(folder, PLACE, name)
        os.makedirs(target)
        mount(share["hostPath"], target, flags=BIND)
        if share["readOnly"]:
            mount(None, target, flags=BIND | REMOUNT | READ_ONLY)
    os.chroot(folder)
    os.chdir("/")
