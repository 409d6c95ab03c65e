"""The network between host and guest, when it is to fail: delays, stalls, cuts. Part of the rehearsal lab (VM option `proxy`).

Each connection asks for a fault of tool `ssh`: `delay_ms` (each way), `stall_after`, `cut_after` (bytes towards the guest),
`reset` (at once), `swallow` (accept, pass nothing on), `banner` (text sent before the guest's own).
"""

import asyncio
import socket
import struct


class Proxy:
    def __init__(self, world, vm, behind):
        self.world, self.vm, self.behind = world, vm, behind
        self.kept = []

    async def listen(self, address):
        self.kept.append(await asyncio.start_server(self.serve, *address, limit=1 << 20))

    async def serve(self, reader, writer):
        fault = self.world.fault_for("ssh", [], self.vm.name) or {}
        if fault.get("reset"):
            reset(writer)
            return
        if fault.get("swallow"):
            self.kept.append((reader, writer))
            return
        if fault.get("banner"):
            writer.write(fault["banner"].encode("utf-8", "surrogateescape"))
        try:
            far_reader, far_writer = await asyncio.open_connection(*self.behind, limit=1 << 20)
        except OSError:
            reset(writer)
            return
        await asyncio.gather(self.pass_on(reader, far_writer, fault, writer), self.pass_on(far_reader, writer, {
            "delay_ms": fault.get("delay_ms", 0)}, far_writer), return_exceptions=True)

    async def pass_on(self, reader, writer, fault, back):
        passed = 0
        stall, cut = fault.get("stall_after"), fault.get("cut_after")
        while data := await reader.read(1 << 18):
            await asyncio.sleep(fault.get("delay_ms", 0) / 1000)
            passed += len(data)
            if cut is not None and passed >= cut:
                reset(writer)
                reset(back)
                return
            if stall is not None and passed >= stall:
                await asyncio.sleep(3600)
            writer.write(data)
            await writer.drain()
        writer.close()


def reset(writer):
    link = writer.get_extra_info("socket")
    if link:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
