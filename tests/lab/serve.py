"""`lume serve`: the HTTP API of a host on which VMs live inside the server's process. Part of the rehearsal lab."""

import http.server
import json
import os
import re
import signal
import time

from lume import Failure, describe, find, prepare_run, share, swift_json
from vm import launch


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, value):
        body = swift_json(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def handle_with(self, action):
        try:
            self.reply(*action())
        except Failure as failure:
            self.reply(400, {"message": str(failure)})

    def do_GET(self):
        world = self.server.world
        if self.path == "/lume/vms":
            self.handle_with(lambda: (200, [describe(vm) for vm in world.vms()]))
        elif match := re.fullmatch(r"/lume/vms/([^/]+)", self.path):
            self.handle_with(lambda: (200, describe(find(world, match[1]))))
        else:
            self.reply(404, {"message": "Not found"})

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        match = re.fullmatch(r"/lume/vms/([^/]+)/(run|stop)", self.path)
        if not match:
            self.reply(404, {"message": "Not found"})
            return
        action = self.server.run_vm if match[2] == "run" else self.server.stop_vm
        self.handle_with(lambda: action(match[1], json.loads(body or b"{}")))


class Server(http.server.HTTPServer):
    allow_reuse_address = True

    def __init__(self, world, port):
        super().__init__(("127.0.0.1", port), Handler)
        self.world = world
        self.keepers = {}

    def run_vm(self, name, options):
        vm = find(self.world, name)
        values = {"--no-display": options.get("noDisplay", True), "--shared-dir": []}
        shares = [share(item["hostPath"] + (":ro" if item.get("readOnly") else "")) for item in options.get("sharedDirectories") or []]
        values["--shared-dir"] = [item["hostPath"] + (":ro" if item["readOnly"] else ":rw") for item in shares]
        try:
            lock = prepare_run(self.world, vm, values)
            self.keepers[vm.name] = launch(self.world, vm)
            os.close(lock)  # the keeper holds it on
        except Failure as failure:
            # The answer is out before the framework is asked: the reason goes to the daemon's log only.
            print(f"[{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}] ERROR: Failed to run VM name={vm.name} error={failure}", flush=True)
        return 202, {"message": "VM started in background", "name": vm.name, "status": "pending"}

    def stop_vm(self, name, _):
        vm = find(self.world, name)
        keeper = self.keepers.get(vm.name)
        if not keeper or not vm.run_state():
            raise Failure(f"Virtual machine not running: {name}")
        time.sleep(vm["stop_delay"])
        os.kill(keeper, signal.SIGTERM)
        os.waitpid(keeper, 0)
        del self.keepers[vm.name]
        return 200, {"message": "VM stopped successfully"}

    def service_actions(self):
        """Reaps guests that shut down by themselves."""
        for name, keeper in list(self.keepers.items()):
            if os.waitpid(keeper, os.WNOHANG)[0]:
                del self.keepers[name]


def serve(world, port):
    server = Server(world, port)
    world.record_process("serve")

    def leave(*_):
        os._exit(0)

    signal.signal(signal.SIGINT, leave)
    signal.signal(signal.SIGTERM, leave)
    print(f"lume API server on http://localhost:{port}", flush=True)
    server.serve_forever(poll_interval=0.05)
    return 0
