"""A second SSH server with manners that OpenSSH does not have: odd_server.py PORT MODE [ARGUMENT].

    password          user "lume", password "secret"
    two               a key first, whatever it is, then password "secret"
    interactive N     keyboard-interactive only, in N rounds; the round that hides its input wants "secret"
    tiny              as password, with windows of 4 kB and packets of 512 bytes
    signal            as password; every command ends by SIGTERM
    rekey             as password, with new keys after every 200 kB
    old               as password, with the oldest algorithms that libssh2 and asyncssh share
    resets N          as password; the first N connections are reset, every second one in the middle of the greeting
    banner            as password, with 200 lines before the greeting and a login banner full of terminal escapes
"""

import asyncio
import socket
import struct
import sys

import asyncssh

PORT, MODE, ARGUMENTS = int(sys.argv[1]), sys.argv[2], sys.argv[3:]


class Account(asyncssh.SSHServer):
    def connection_made(self, connection):
        self.connection = connection
        self.round = 0
        self.key_seen = False
        if MODE == "banner":
            connection.send_auth_banner("\x1b]0;owned\x07\x1b[31mred\n")

    def begin_auth(self, username):
        return True

    def public_key_auth_supported(self):
        return MODE == "two" and not self.key_seen

    def validate_public_key(self, username, key):
        return True

    def password_auth_supported(self):
        return self.key_seen if MODE == "two" else MODE != "interactive"

    def validate_password(self, username, password):
        return username == "lume" and password == "secret"

    def kbdint_auth_supported(self):
        return MODE == "interactive"

    def get_kbdint_challenge(self, username, language, submethods):
        return self.next_round()

    def next_round(self):
        self.round += 1
        last = self.round == int(ARGUMENTS[0])
        if last:
            return "", "", "", [("Password: ", False)]
        return "", "Read this first", "", [("Continue? ", True)] if self.round % 2 else []

    def validate_kbdint_response(self, username, responses):
        if self.round == int(ARGUMENTS[0]):
            return username == "lume" and list(responses) == ["secret"]
        return self.next_round()


def ask_for_two_methods():
    """asyncssh takes the first for enough; here it is told to go on, as OpenSSH does with AuthenticationMethods."""
    kind = asyncssh.connection.SSHServerConnection
    succeed = kind.send_userauth_success

    def go_on(self):
        if self._owner.key_seen:
            succeed(self)
        else:
            self._owner.key_seen = True
            self.send_userauth_failure(True)

    kind.send_userauth_success = go_on


async def handle(process):
    if MODE == "signal":
        process.exit_with_signal("TERM", False, "ended")
        return
    command = await asyncio.create_subprocess_shell(
        process.command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
    # With send_eof the end of one stream closes the channel for what the other still has to say.
    await process.redirect(stdin=command.stdin, stdout=command.stdout, stderr=command.stderr, send_eof=False)
    status = await command.wait()
    await process.stdout.drain()
    await process.stderr.drain()
    process.exit(status)


async def greet(reader, writer):
    """Lines before the greeting are allowed by the protocol; then everything goes to the real server."""
    for number in range(200):
        writer.write(f"line {number} before the greeting\r\n".encode())
    inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", INNER)

    async def pump(source, sink):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
        sink.close()

    await asyncio.gather(pump(reader, inner_writer), pump(inner_reader, writer))


async def reset_connections(count):
    with socket.create_server(("127.0.0.1", PORT)) as listener:
        listener.setblocking(False)
        for number in range(count):
            link, _ = await asyncio.get_running_loop().sock_accept(listener)
            if number % 2:
                link.send(b"SSH-2.0-half")
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            link.close()


async def main():
    options = {}
    if MODE == "rekey":
        options = {"rekey_bytes": 200_000}
    if MODE == "old":
        options = {"kex_algs": ["diffie-hellman-group14-sha1"], "encryption_algs": ["aes128-cbc"], "mac_algs": ["hmac-sha1"]}
    if MODE == "two":
        ask_for_two_methods()
    if MODE == "tiny":
        options = {"window": 4096, "max_pktsize": 512}
    if MODE == "resets":
        await reset_connections(int(ARGUMENTS[0]))
    port = 0 if MODE == "banner" else PORT
    server = await asyncssh.create_server(
        Account, "127.0.0.1", port, server_host_keys=[asyncssh.generate_private_key("ssh-ed25519")],
        process_factory=handle, encoding=None, **options)
    if MODE == "banner":
        global INNER
        INNER = server.sockets[0].getsockname()[1]
        await asyncio.start_server(greet, "127.0.0.1", PORT)
    await asyncio.Event().wait()


asyncio.run(main())
