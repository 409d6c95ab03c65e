"""Serves a lab's stand-ins: one process with Python and every module loaded, which forks for each call that standin.c hands over.

A template process per owner (the tests' process) pays for the loading once and forks a server for each lab. The server is also the
lab's guard: it takes the lab down when the owner ends, however it ends. Part of the rehearsal lab.
"""

import array
import gc
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
MESSAGE_MOST = 192 * 1024
TITLE_ROOM = 4096                 # bytes of our command line that a served `lume run` may overwrite with its own


# What the owner does

class Template:
    """The owner's end of its template process, which ends with it."""

    def __init__(self):
        self.link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            subprocess.Popen(["/usr/bin/python3", "-IS", "-X", "utf8", os.path.join(HERE, "server.py"), " " * TITLE_ROOM], stdin=theirs,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, cwd="/").returncode = 0

    def serve(self, directory, pid, started):
        """Starts the server of a lab; it answers when this returns True."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            place = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            listener.bind(f"/proc/self/fd/{place}/server")
            os.close(place)
            listener.listen(64)
            request = f"{pid} {started} {directory}".encode("utf-8", "surrogateescape")
            try:
                socket.send_fds(self.link, [request], [listener.fileno()])
                return self.link.recv(1) == b"+"
            except OSError:
                return False


template = None


def serve(directory, pid, started):
    """Lets a server answer for the lab's stand-ins, and guard the lab, until process `pid` ends. False when it did not start."""
    global template  # one per process that owns labs
    if not template:
        template = Template()
    return template.serve(directory, pid, started)


# What the template and its servers do

class Call:
    """One call in progress: the connection to its front, and the process that answers."""

    def __init__(self, link):
        self.link, self.pid, self.fd = link, None, None

    def begin(self):
        """Takes the call over and forks for it. False when the front is gone."""
        try:
            data, ancillary, _, _ = self.link.recvmsg(MESSAGE_MOST, socket.CMSG_SPACE(16))
        except OSError:
            data, ancillary = b"", []
        fds = array.array("i")
        for _, _, content in ancillary:
            fds.frombytes(content)
        if len(fds) == 4:
            caller = struct.unpack("3i", self.link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
            self.pid = os.fork()
            if self.pid == 0:
                answer(data, fds, caller)
            self.fd = os.pidfd_open(self.pid)
        for fd in fds:
            os.close(fd)
        return self.pid is not None

    def finish(self):
        """Tells the front how its call ended: the exit status, or minus the signal's number."""
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        try:
            self.link.send(struct.pack("i", status))
        except OSError:
            pass
        self.close()

    def abandon(self):
        """The front was killed, so is the call."""
        if self.pid is not None:
            signal.pidfd_send_signal(self.fd, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        self.close()

    def close(self):
        self.link.close()
        if self.fd is not None:
            os.close(self.fd)


def answer(data, fds, caller):
    """In the call's own process: becomes what its front was, then answers. Never returns."""
    try:
        for number in range(3):
            os.dup2(fds[number], number)
        os.fchdir(fds[3])
        os.closerange(3, 1 << 20)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        head, called_as, *words = data.split(b"\0")[:-1]
        count, mask = map(int, head.split())
        os.umask(mask)
        os.environb.clear()
        os.environb.update(word.split(b"=", 1) for word in words[count:] if b"=" in word[1:])
        time.tzset()
        import dispatch
        sys.argv = [os.fsdecode(word) for word in (called_as, *words[:count])]
        dispatch.main(sys.argv[0], sys.argv[1:], caller)
    except BaseException:  # noqa: BLE001 - as the interpreter would
        import traceback
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(1)


class Server:
    """The life of one lab's server."""

    def __init__(self, directory, owner, started, listener):
        self.directory, self.listener = directory, listener
        self.owner, self.started = owner, started
        self.poll = select.poll()
        self.calls = {}

    def live(self):
        """Serves until the owner ends, then takes the lab down."""
        import world
        self.poll.register(self.listener, select.POLLIN)
        try:
            owner = os.pidfd_open(self.owner)
            self.poll.register(owner, select.POLLIN)
        except ProcessLookupError:
            return
        while world.alive(self.owner, self.started):
            for fd, _ in self.poll.poll():
                if fd == owner:
                    return
                self.step(fd)

    def step(self, fd):
        if fd == self.listener.fileno():
            call = Call(self.listener.accept()[0])
            self.calls[call.link.fileno()] = call
            self.poll.register(call.link, select.POLLIN)
            return
        call = self.calls.get(fd)
        if call is None:
            return  # ended by an event of the same round
        link = call.link.fileno()
        if call.pid is None and call.begin():
            self.calls[call.fd] = call
            self.poll.register(call.fd, select.POLLIN)
            return
        for number in filter(lambda number: number in self.calls, (link, call.fd)):
            self.poll.unregister(number)
            del self.calls[number]
        call.finish() if fd == call.fd else call.abandon()


def guard(directory, owner, started, listener, requests):
    """A lab's server, from its fork on: a session of its own, nothing of the template left open. Its troubles are in server.log."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    from world import World
    world = World(directory)
    log = os.open(world.path("server.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 2)
    os.close(log)
    world.record_process("guard")
    requests.send(b"+")
    requests.close()
    Server(directory, owner, started, listener).live()
    listener.close()
    if os.path.exists(world.path("lab.json")):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        from lab import take_down
        take_down(world)


def load():
    """What nearly every call needs. Each page more makes each fork dearer, hence asyncio without TLS."""
    sys.modules["ssl"] = None
    import ctypes, dispatch, host_tools, guest_tools, launchctl, defaults, lume, vm, guest  # noqa: F401, E401
    del sys.modules["ssl"]
    gc.disable()
    gc.freeze()


def main():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    load()
    requests = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.close(null)
    while True:
        data, fds, _, _ = socket.recv_fds(requests, 8192, 1)
        if not data:
            os._exit(0)
        pid, started, directory = data.decode("utf-8", "surrogateescape").split(" ", 2)
        if os.fork() == 0:
            try:
                guard(directory, int(pid), int(started), socket.socket(fileno=fds[0]), requests)
            except BaseException:  # noqa: BLE001 - the only witness
                import traceback
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(0)
        os.close(fds[0])


if __name__ == "__main__":
    sys.path.insert(0, HERE)
    sys.modules["server"] = sys.modules["__main__"]
    main()
