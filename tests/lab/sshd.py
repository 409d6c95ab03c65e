"""OpenSSH's own server for one account of the lab: of a guest, or of the pretended Mac itself. Part of the rehearsal lab.

A folder holds all that one server needs: host keys, the account files that nss_wrapper shows it, configuration and log.
"""

import os
import shlex
import subprocess
import warnings

SSHD = "/usr/sbin/sshd"


def write_accounts(folder, user, home, shell, password=None):
    """One user, who owns what we own; without a password, none lets him in."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import crypt
    uid, gid = os.geteuid(), os.getegid()
    texts = {
        "passwd": f"{user}:x:{uid}:{gid}:{user}:{home}:{shell}\n"
                  f"sshd:x:{min(uid or 100, 65534) if uid else 65533}:65534::/run/sshd:/usr/sbin/nologin\n",
        "group": f"staff:x:{gid}:\nnogroup:x:65534:\n",
        "shadow": f"{user}:{crypt.crypt(password, '$5$rounds=1000$lab') if password is not None else '*'}:19000:0:99999:7:::\n"}
    for kind, text in texts.items():
        path = os.path.join(folder, kind)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o600)


def make_key(path, kind="ed25519", comment=""):
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", comment, "-f", path], check=True)


def write_config(folder, address, key_types, lines):
    """`lines` go first: sshd takes the first value of a keyword."""
    common = [f"Port {address[1]}", f"ListenAddress {address[0]}", *[f"HostKey {os.path.join(folder, 'host_' + kind)}" for kind in key_types],
              "StrictModes no", "UsePAM no", f"PidFile {folder}/sshd.pid", "PermitRootLogin yes", "PrintMotd no", "PrintLastLog no",
              "KbdInteractiveAuthentication no", "AcceptEnv LANG LC_*", "UseDNS no"]
    with open(os.path.join(folder, "sshd_config"), "w", encoding="utf-8") as file:
        file.write("\n".join([*lines, *common]) + "\n")


def launch(folder, before):
    """Starts the server in a session of its own; `before` runs in it first."""
    if os.geteuid() == 0:
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
    environment = {"PATH": "/usr/bin:/bin", "LD_PRELOAD": "libnss_wrapper.so",
                   **{f"NSS_WRAPPER_{kind.upper()}": os.path.join(folder, kind) for kind in ("passwd", "group", "shadow")}}
    with open(os.path.join(folder, "sshd.log"), "ab") as output:
        return subprocess.Popen([SSHD, "-D", "-e", "-f", os.path.join(folder, "sshd_config")], env=environment, stdin=subprocess.DEVNULL,
                                stdout=output, stderr=output, start_new_session=True, preexec_fn=before)


def host_login(home, environment):
    """Text of the login shell of the pretended Mac's user: every session has exactly this environment."""
    quoted = " ".join(shlex.quote(f"{key}={value}") for key, value in environment.items())
    return f"""#!/usr/bin/zsh -f
# Login shell of a rehearsal host (a stand-in: no Mac is involved). Generated.
cd {shlex.quote(home)} || exit 1
typeset -a own
own=({quoted} SHELL=/bin/zsh)
for name in SSH_CLIENT SSH_CONNECTION SSH_TTY TERM LANG; do
  [[ -n ${{(P)name}} ]] && own+=("$name=${{(P)name}}")
done
[[ $1 == -c ]] && exec /usr/bin/env -i $own /usr/bin/zsh -c "$2"
exec /usr/bin/env -i $own /usr/bin/zsh -l -i
"""
