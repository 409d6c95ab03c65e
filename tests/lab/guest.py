"""The inside of a running guest: boot order, the SSH server, the control socket, the end. Part of the rehearsal lab."""

import asyncio
import marshal
import os
import signal
import socket
import struct
import subprocess
import time

import sshd
from world import die_with_parent
from launchd import Launchd


class Guest:
    def __init__(self, world, vm):
        self.world, self.vm = world, vm
        self.run = vm.run_state()
        self.launchd = Launchd(world, vm)
        self.ended = None
        self.server = None
        self.up = False

    async def live(self):
        """Boots, serves, and returns how it ended: `clean-shutdown` or `hard-stop`."""
        loop = asyncio.get_running_loop()
        self.ended = loop.create_future()
        loop.add_signal_handler(signal.SIGTERM, self.end, "hard-stop")
        loop.add_signal_handler(signal.SIGCHLD, self.reap)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        listener = await asyncio.start_unix_server(self.serve, self.vm.socket_name())
        boot = asyncio.ensure_future(self.boot())
        boot.add_done_callback(lambda done: done.cancelled() or done.exception() is None or self.crash(done.exception()))
        how = await self.ended
        listener.close()
        return how

    def crash(self, error):
        if not self.ended.done():
            self.ended.set_exception(error)

    def end(self, how):
        if not self.ended.done():
            self.ended.set_result(how)

    def reap(self):
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.launchd.ended(pid, status)

    async def boot(self):
        vm = self.vm
        await asyncio.sleep(max(0, self.run["t0"] + vm["boot_delay"] - time.monotonic()))
        self.launchd.boot()
        address = (self.run["ip"], vm.port)
        if vm["boot"] in ("never", "refuse"):
            return
        if vm["boot"] != "ok":
            await self.odd_server(address)
            return
        if vm["reset_first"]:
            await reset_connections(address, vm["reset_first"])
        behind = address
        if vm["proxy"]:
            head, _, last = address[0].rpartition(".")
            behind = (f"{head}.{(int(last) + 120) % 250 + 1}", vm.port)
            from proxy import Proxy
            await Proxy(self.world, vm, behind).listen(address)
        self.start_server(behind)
        await self.wait_for_server(behind)
        self.up = True

    def start_server(self, address):
        vm = self.vm
        if vm["server"] == "kbdint":
            command = ["/usr/bin/python3", os.path.join(os.path.dirname(os.path.abspath(__file__)), "kbdint.py"), vm.dir, *map(str, address)]
        else:
            self.write_sshd_config(address)
            self.server = sshd.launch(vm.path("ssh"), die_with_parent)
            return
        with open(vm.path("ssh", "sshd.log"), "ab") as output:
            self.server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                           start_new_session=True, preexec_fn=die_with_parent)

    def write_sshd_config(self, address):
        vm = self.vm
        lines = [
            *vm["sshd"],
            f"PasswordAuthentication {'yes' if vm['password'] is not None else 'no'}",
            f"PubkeyAuthentication {'yes' if vm['keys'] else 'no'}", f"AuthorizedKeysFile {vm.home}/.ssh/authorized_keys",
            "Subsystem sftp sftp-server"]
        if vm["banner"]:
            with open(vm.path("ssh", "banner"), "w", encoding="utf-8") as file:
                file.write(vm["banner"])
            lines.append(f"Banner {vm.path('ssh', 'banner')}")
        sshd.write_config(vm.path("ssh"), address, vm["key_types"], lines)

    async def wait_for_server(self, address):
        while self.server.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(address) == 0:
                    return
            await asyncio.sleep(0.01)

    async def odd_server(self, address):
        """Addresses that behave badly: listen and say nothing, speak HTTP, or swallow every packet."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        self.kept = [listener]
        if self.vm["boot"] == "drop":
            listener.listen(0)
            for _ in range(3):
                filler = socket.socket()
                filler.setblocking(False)
                filler.connect_ex(address)
                self.kept.append(filler)
            return
        listener.listen(16)
        listener.setblocking(False)
        while True:
            link, _ = await asyncio.get_running_loop().sock_accept(listener)
            self.kept.append(link)
            if self.vm["boot"] == "http":
                link.send(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
                link.close()

    async def serve(self, reader, writer):
        try:
            answer = await self.answer(marshal.loads(await reader.read()))
            writer.write(marshal.dumps(answer))
            await writer.drain()
        except (ConnectionError, EOFError):
            pass
        finally:
            writer.close()

    async def answer(self, request):
        operation = request.get("op")
        if operation == "up":
            return self.up
        if operation == "shutdown":
            self.world.event("shutdown-asked", vm=self.vm.name)
            if not self.vm["shutdown_hangs"]:
                asyncio.get_running_loop().call_later(self.vm["shutdown_delay"], self.end, "clean-shutdown")
            return True
        if operation == "launchctl":
            return await self.launchd.command(request["argv"])
        if operation == "agents":
            return self.launchd.snapshot()
        return None


async def reset_connections(address, count):
    """Accepts and resets so many connections, as a guest does whose sshd is not yet ready."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(16)
        listener.setblocking(False)
        for _ in range(count):
            link, _ = await asyncio.get_running_loop().sock_accept(listener)
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            link.close()
