"""How processes of a guest are started: their environment, the exec layer, the login shell that sshd runs.

Part of the rehearsal lab. A guest is an environment and a set of tools, not a machine: it shares the host's kernel.
"""

import os
import shlex

REAL_SFTP = "/usr/lib/openssh/sftp-server"


def layer_environment(vm):
    """What makes a process a guest's: which tools absolute names mean, how Mach-O files run."""
    build = vm.world.config.get("build")
    environment = {"LAB_GUEST_ROOT": vm.root}
    if build:
        folder = os.path.join(build, "tests", "lab")
        environment |= {
            "LD_PRELOAD": os.path.join(folder, "libguestexec.so"), "LAB_MACHRUN_DIR": folder, "LAB_ARCH": vm["arch"],
            "LAB_QEMU": "/usr/bin/qemu-aarch64", "LAB_SIP": "1" if vm["sip"] else "0"}
    if vm["metal"]:
        environment["LAB_METAL"] = str(vm["metal"])
    return environment


def search_path(vm):
    """A Mac's search path; without the exec layer, which gives these names the guest's meaning, the folders themselves."""
    if vm.world.config.get("build"):
        return "/usr/bin:/bin:/usr/sbin:/sbin"
    return ":".join(vm.root + folder for folder in ("/usr/bin", "/bin", "/usr/sbin", "/sbin"))


def base_environment(vm):
    return {"HOME": vm.home, "USER": vm["user"], "LOGNAME": vm["user"], "SHELL": "/bin/zsh", "PATH": search_path(vm),
            "TMPDIR": vm.path("tmp") + "/", **layer_environment(vm)}


def job_environment(vm, own, label):
    """A launchd job's: the session's, then the plist's, which may replace anything but the layer itself."""
    path = None if vm.world.config.get("build") else own.get("PATH")
    mapped = {"PATH": ":".join(vm.root + part if part.startswith(("/usr/bin", "/bin", "/usr/sbin", "/sbin")) else part
                               for part in path.split(":"))} if path else {}
    return {**base_environment(vm), **own, **mapped, "XPC_SERVICE_NAME": label, **layer_environment(vm)}


def unprivileged():
    """Root's guests run without capabilities, so that modes and owners bind them as they bind any user."""
    if os.geteuid() != 0:
        return []
    return ["/usr/bin/setpriv", "--bounding-set=-all", "--inh-caps=-all"]


def wrap(vm, environment, command):
    """The command line that runs `command` in the guest with exactly this environment.

    Two `env`: the first enters the exec layer, the second, already inside it, starts the program, so that a Mach-O file
    runs and absolute tool names mean the guest's.
    """
    outer = [f"{key}={value}" for key, value in layer_environment(vm).items()]
    inner = [f"{key}={value}" for key, value in environment.items()]
    return [*unprivileged(), "/usr/bin/env", "-i", *outer, "/usr/bin/env", *inner, *command]


def login_shell(vm):
    """Text of the guest account's login shell: a zsh script that sshd runs for commands, shells and sftp alike."""
    quoted = [shlex.quote(f"{key}={value}") for key, value in base_environment(vm).items()]
    slow = [shlex.quote(word) for word in ("/usr/bin/python3", "-IS", os.path.join(os.path.dirname(os.path.abspath(__file__)), "slow_session.py"), vm.dir)]
    limit = ""
    if vm["disk_kb"] is not None:
        # A full disk, without root: no file may grow beyond what is free when the session begins. Writes then fail for real.
        limit = (f"used=$(/usr/bin/du -sk {shlex.quote(vm.home)}); free=$(( {int(vm['disk_kb'])} - ${{used%%[^0-9]*}} ))\n"
                 "trap '' XFSZ; limit filesize $(( free > 0 ? free : 0 ))k\n")
    return f"""#!/usr/bin/zsh -f
# Login shell of a rehearsal guest (a stand-in: no Mac is involved). Generated; the lab writes it anew for each VM.
zmodload zsh/datetime
export LC_ALL=C
umask {vm['umask']}
cd {shlex.quote(vm.home)} || exit 1
{limit}typeset -a own
own=({' '.join(quoted)})
for name in SSH_CLIENT SSH_CONNECTION SSH_TTY SSH_AUTH_SOCK TERM LANG; do
  [[ -n ${{(P)name}} ]] && own+=("$name=${{(P)name}}")
done
tool=guest command=$2
if [[ $1 != -c ]]; then
  shell=(/usr/bin/zsh -l -i) command='<shell>'
elif [[ $2 == sftp-server || $2 == *libexec/sftp-server* ]]; then
  shell=({REAL_SFTP} -u {vm['umask']}) tool=sftp
else
  shell=(/usr/bin/zsh -c "$2")
fi
faults={shlex.quote(vm.world.path('faults.json'))}
if [[ -s $faults ]]; then
  text=$(<$faults)
  if [[ $text == *'"guest"'* || $text == *'"sftp"'* || $text == *'"*"'* ]]; then
    exec {' '.join(slow)} $tool "$command" {' '.join(unprivileged())} /usr/bin/env -i $own $shell
  fi
fi
json=${{command//\\\\/\\\\\\\\}}
json=${{json//\\"/\\\\\\"}}
json=${{json//$'\\n'/\\\\n}}
json=${{json//$'\\r'/\\\\r}}
json=${{json//$'\\t'/\\\\t}}
json=${{json//[[:cntrl:]]/?}}
calls={shlex.quote(vm.world.path('calls.jsonl'))} id=$$-$EPOCHREALTIME
print -r -- "{{\\"id\\": \\"$id\\", \\"tool\\": \\"$tool\\", \\"vm\\": \\"{vm.name}\\", \\"argv\\": [\\"$json\\"], \\"start\\": $EPOCHREALTIME}}" >> $calls
{' '.join(unprivileged())} /usr/bin/env -i $own $shell
rc=$?
print -r -- "{{\\"id\\": \\"$id\\", \\"end\\": $EPOCHREALTIME, \\"exit\\": $rc}}" >> $calls
exit $rc
"""
