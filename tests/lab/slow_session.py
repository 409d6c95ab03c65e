"""One SSH command or SFTP session of a guest under a fault: delays, cuts, kills before, after or within. Part of the rehearsal lab.

Called by the guest's login shell as: slow_session.py VMDIR guest|sftp COMMAND PROGRAM ARGUMENTS…
"""

import _signal as signal
import os
import struct
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from world import World, hang  # noqa: E402

PACKETS = {"open": 3, "close": 4, "read": 5, "write": 6, "lstat": 7, "setstat": 9, "fsetstat": 10, "opendir": 11, "readdir": 12,
           "remove": 13, "mkdir": 14, "rmdir": 15, "realpath": 16, "stat": 17, "rename": 18, "readlink": 19, "symlink": 20,
           "extended": 200}


class Pump:
    """Passes the client's bytes on to the program and meets the fault at its byte or its SFTP packet."""

    def __init__(self, world, fault):
        self.world, self.fault = world, fault
        self.target = world.target()
        self.passed, self.buffer, self.packets = 0, b"", 0
        self.struck = False

    def strike(self):
        """What the fault does at its moment."""
        self.struck = True
        if self.fault.get("stall"):
            time.sleep(float(self.fault["stall"]) if self.fault["stall"] is not True else 3600)
        if self.fault.get("kill_parent"):
            self.world.kill(self.target)
        if self.fault.get("cut"):
            cut_connection()

    def cut(self, data):
        """Splits arriving bytes at the fault's byte; returns what may pass before it."""
        at = self.fault.get("at_byte")
        if at is None or self.struck or self.passed + len(data) < at:
            self.passed += len(data)
            return data, b""
        head = data[: at - self.passed]
        self.passed += len(head)
        return head, data[len(head):]

    def packets_of(self, data):
        """Whole SFTP packets out of the stream: (type, bytes)."""
        self.buffer += data
        while len(self.buffer) >= 5:
            size = struct.unpack(">I", self.buffer[:4])[0] + 4
            if len(self.buffer) < size:
                return
            yield self.buffer[4], self.buffer[:size]
            self.buffer = self.buffer[size:]


def cut_connection():
    """Ends the SSH connection as a dead network does for the server: its process for this connection is killed."""
    pid = os.getppid()
    os.kill(pid, signal.SIGKILL)
    os._exit(255)


def write_all(fd, data):
    while data:
        data = data[os.write(fd, data):]


def main():
    directory, tool, command, program = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
    lab, _, name = directory.rpartition("/vms/")
    world = World(lab)
    number = world.log_start(tool, [command], name)
    fault = world.fault_for(tool, [command], name) or {}
    target = world.target() if fault.get("kill_parent") else None
    within = "at_byte" in fault or "packet" in fault
    time.sleep(0 if within else fault.get("delay", 0))

    def leave(status):
        world.log_end(number, status)
        os._exit(status)

    world.shell(fault.get("shell_before"))
    if not within and fault.get("kill_parent") == "before":
        world.kill(target)
        leave(137)
    if fault.get("hang"):
        hang(world, fault)
    for _ in range(int(fault.get("flood", 0))):
        write_all(1, (b"x" * 1023 + b"\n") * 1024)
    if fault.get("garbage"):
        write_all(1, b"\xff\xfe[{\x00]\x1b[2J\x1b]0;owned\x07" + bytes(range(256)) + b"\n")
    write_all(1, fault.get("stdout", "").encode("utf-8", "surrogateescape"))
    write_all(2, fault.get("stderr", "").encode("utf-8", "surrogateescape"))
    if any(key in fault for key in ("exit", "garbage", "flood")) and not fault.get("effect"):
        leave(fault.get("exit", 0))
    if fault.get("cut") and not within:
        cut_connection()
    status = pumped(world, fault, tool, program) if within else plain(program)
    world.shell(fault.get("shell_after"))
    if not within and fault.get("kill_parent") == "after":
        world.kill(target)
    leave(fault["exit"] if fault.get("exit") is not None else status)


def plain(program):
    pid = os.fork()
    if pid == 0:
        os.execv(program[0], program)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return status if status >= 0 else 128 - status


def pumped(world, fault, tool, program):
    source, sink = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(source, 0)
        os.close(source)
        os.close(sink)
        os.execv(program[0], program)
    os.close(source)
    pump = Pump(world, fault)
    kind = PACKETS.get(fault.get("packet"))
    try:
        while data := os.read(0, 65536):
            if kind is None:
                head, rest = pump.cut(data)
                write_all(sink, head)
                if rest or (pump.passed == fault["at_byte"] and not pump.struck):
                    pump.strike()
                    write_all(sink, rest)
                    pump.passed += len(rest)
                continue
            for number, packet in pump.packets_of(data):
                hit = number == kind and fault.get("contains", "").encode() in packet and not pump.struck
                pump.packets += hit
                now = hit and pump.packets == fault.get("packet_nth", 1)
                if now and fault.get("kill_parent") != "after":
                    pump.strike()
                write_all(sink, packet)
                if now and fault.get("kill_parent") == "after":
                    time.sleep(0.05)  # the server's answer and its effect come first
                    pump.strike()
    except BrokenPipeError:
        pass
    os.close(sink)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    main()
