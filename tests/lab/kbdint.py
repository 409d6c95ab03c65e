"""SSH server of a guest that offers keyboard-interactive login only, which sshd without PAM cannot. Part of the rehearsal lab.

Called as: kbdint.py VMDIR ADDRESS PORT. Commands and sftp run through the same login shell as behind sshd.
"""

import asyncio
import os
import subprocess
import sys
import warnings

warnings.simplefilter("ignore")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import asyncssh  # noqa: E402

from world import World  # noqa: E402

directory, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
vm = World(directory.rpartition("/vms/")[0]).vm(os.path.basename(directory))


class Process(asyncssh.SSHServerProcess):
    """A session whose sftp is a program like any other, not asyncssh's own server."""

    def __init__(self):
        super().__init__(session, None, 3, False)

    def subsystem_requested(self, subsystem):
        return subsystem == "sftp"

    def session_started(self):
        streams = [asyncssh.SSHReader(self, self._chan), asyncssh.SSHWriter(self, self._chan),
                   asyncssh.SSHWriter(self, self._chan, asyncssh.EXTENDED_DATA_STDERR)]
        self._conn.create_task(self._start_process(*streams))


class Server(asyncssh.SSHServer):
    def connection_made(self, conn):
        self.connection, self.tries = conn, 0

    def session_requested(self):
        return self.connection.create_server_channel(encoding=None), Process()

    def begin_auth(self, username):
        return True

    def password_auth_supported(self):
        return False

    def public_key_auth_supported(self):
        return False

    def kbdint_auth_supported(self):
        return True

    def get_kbdint_challenge(self, username, lang, submethods):
        return "", "", "en-US", [("Password:", False)]

    def validate_kbdint_response(self, username, responses):
        self.tries += 1
        if self.tries > 6:
            raise asyncssh.DisconnectError(2, "Too many authentication failures")
        return username == vm["user"] and list(responses) == [vm["password"]]


async def session(process):
    words = [vm.path("login")]
    command = "sftp-server" if process.subsystem else process.command
    if command is not None:
        words += ["-c", command]
    environment = {"HOME": vm.home, "USER": vm["user"], "SSH_CONNECTION": "127.0.0.1 1 127.0.0.1 22", "PATH": "/usr/bin:/bin"}
    child = await asyncio.create_subprocess_exec(*words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    # With send_eof the end of one stream closes the channel for what the other still has to say.
    await process.redirect(stdin=child.stdin, stdout=child.stdout, stderr=child.stderr, send_eof=False)
    status = await child.wait()
    await process.stdout.drain()
    await process.stderr.drain()
    process.exit(status if status >= 0 else 128 - status)


async def main():
    keys = [vm.path("ssh", "host_" + kind) for kind in vm["key_types"]]
    await asyncssh.create_server(Server, address, port, server_host_keys=keys, line_editor=False,
                                 server_version="OpenSSH_10.0", reuse_address=True)
    await asyncio.Event().wait()


asyncio.run(main())
