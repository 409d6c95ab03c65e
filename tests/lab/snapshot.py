"""The whole world of a lab as text, for `before == after`: nothing in it differs from run to run by itself.

Part of the rehearsal lab. Left out: process ids, addresses, times, and what guests write by themselves (shell history).
"""

import hashlib
import json
import os
import stat

from defaults import store
from world import read_json

NOISE = {".zsh_history", ".zcompdump", ".zsh_sessions", ".DS_Store"}


def digest(path):
    total = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            total.update(block)
    return total.hexdigest()


def tree(root):
    """One line per entry below `root`: kind, mode, size, SHA-256, name, extended attributes."""
    lines = [f'folder {stat.S_IMODE(os.stat(root).st_mode):04o} "."']
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(folders + names):
            if name in NOISE:
                continue
            path = os.path.join(folder, name)
            about = os.lstat(path)
            mode, shown = f"{stat.S_IMODE(about.st_mode):04o}", json.dumps(os.path.relpath(path, root), ensure_ascii=True)
            if stat.S_ISLNK(about.st_mode):
                lines.append(f"link {shown} -> {json.dumps(os.readlink(path))}")
            elif stat.S_ISDIR(about.st_mode):
                lines.append(f"folder {mode} {shown}")
            elif stat.S_ISREG(about.st_mode):
                extra = "".join(f" {name}={os.getxattr(path, name).hex()}" for name in sorted(os.listxattr(path)))
                lines.append(f"file {mode} {about.st_size} {digest(path)} {shown}{extra}")
            else:
                lines.append(f"special {stat.filemode(about.st_mode)} {shown}")
    return sorted(lines, key=lambda line: line[line.index('"'):])


def options_of(run):
    options = run["options"]
    shares = ",".join(f"{share['hostPath']}:{'ro' if share['readOnly'] else 'rw'}" for share in options.get("shared") or [])
    return (f"display={options['display']} network={options['network']} vnc={options['vnc']} recovery={options['recovery']} "
            f"shares=[{shares}]")


def preferences(world):
    for domain, values in sorted(read_json(store(world), {}).items()):
        for key, item in sorted(values.items()):
            yield f"{domain} {key} {item['type']} {json.dumps(item['value'], sort_keys=True)}"


def render(world):
    lines = ["[preferences]", *preferences(world)]
    for vm in world.vms():
        run = vm.run_state()
        lines += ["", f"[vm {vm.name}]", f"status {'running ' + options_of(run) if run else 'stopped'}"]
        if run:
            seen = run["feature_level_at_start"]
            lines.append(f"preference at start {'absent' if seen is None else seen['type'] + ' ' + json.dumps(seen['value'])}")
            for agent in vm.ask({"op": "agents"}) or []:
                path = agent["path"].replace(vm.home, "~")
                lines.append(f"agent {agent['domain']}/{agent['label']} {agent['state']} {path}")
        for target, value in sorted(vm.memory().get("disabled", {}).items()):
            lines.append(f"override {target} {'disabled' if value else 'enabled'}")
        lines += tree(vm.home)
    return "\n".join(lines) + "\n"
