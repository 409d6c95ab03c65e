"""launchd of one guest: starts and supervises jobs, answers launchctl. Part of the rehearsal lab, not Apple's launchd.

Jobs are real processes, run through the guest's exec layer, so Mach-O programs start as they do over SSH.
"""

import asyncio
import os
import plistlib
import re
import signal
import stat
import subprocess
import time

from session import job_environment, wrap
from world import kill_exactly, start_time

TEXTS = {3: "No such process", 5: "Input/output error", 36: "Operation now in progress", 37: "Operation already in progress",
         112: "Could not find specified domain", 113: "Could not find specified service", 119: "Service is disabled",
         122: "Path had bad ownership/permissions", 125: "Domain does not support specified action"}

KNOWN = {"Label": str, "Program": str, "ProgramArguments": list, "EnvironmentVariables": dict, "WorkingDirectory": str,
         "StandardOutPath": str, "StandardErrorPath": str, "StandardInPath": str, "RunAtLoad": bool,
         "KeepAlive": (bool, dict), "ThrottleInterval": int, "ProcessType": str, "LimitLoadToSessionType": (str, list),
         "ExitTimeOut": int, "Disabled": bool, "Umask": (int, str), "Nice": int, "AbandonProcessGroup": bool}


class Refused(Exception):
    def __init__(self, code, text=None):
        super().__init__(code)
        self.code, self.text = code, text


class Job:
    def __init__(self, domain, path, plist):
        self.domain, self.path, self.plist = domain, path, plist
        self.label = plist["Label"]
        self.pid = self.started = self.exit = self.signal = None
        self.runs = 0
        self.draining = False
        self.timer = None
        self.begun = 0.0
        self.gone = asyncio.Event()

    @property
    def arguments(self):
        return self.plist.get("ProgramArguments") or [self.plist["Program"]]

    @property
    def program(self):
        return self.plist.get("Program") or self.arguments[0]

    def state(self):
        if self.draining:
            return "SIGTERMed"
        if self.pid:
            return "running"
        return "spawn scheduled" if self.timer else "not running"

    def last_exit(self):
        if self.exit is None and self.signal is None:
            return "last exit code = (never exited)"
        if self.signal is not None:
            return f"last terminating signal = {signal.strsignal(self.signal)}: {self.signal}"
        return f"last exit code = {self.exit}" + (": EX_CONFIG" if self.exit == 78 else "")


class Launchd:
    def __init__(self, world, vm):
        self.world, self.vm = world, vm
        self.jobs = {}
        uid = vm["uid"]
        self.domains = [f"gui/{uid}"] if vm["gui"] else []
        if vm["user_domain"]:
            self.domains.append(f"user/{uid}")

    def disabled(self):
        return self.vm.memory().get("disabled", {})

    def boot(self):
        """The session loads the account's agents, as a login does; disabled ones and refused ones are passed over."""
        folder = os.path.join(self.vm.home, "Library", "LaunchAgents")
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            path = os.path.join(folder, name)
            domain = f"gui/{self.vm['uid']}" if self.vm["gui"] else f"user/{self.vm['uid']}"
            try:
                plist = self.read(path)
                if not self.vm["gui"] and "Background" not in session_types(plist):
                    continue
                self.load(domain, path)
            except Refused:
                continue

    # Plists

    def read(self, path):
        try:
            about = os.stat(path)
            with open(path, "rb") as file:
                plist = plistlib.load(file)
        except FileNotFoundError:
            raise Refused(5) from None
        except Exception:
            raise Refused(5) from None
        if about.st_uid not in (os.geteuid(), 0) or stat.S_IMODE(about.st_mode) & 0o022 or not stat.S_ISREG(about.st_mode):
            raise Refused(self.vm["perm_error"])
        if not valid(plist):
            raise Refused(5)
        return plist

    def load(self, domain, path):
        plist = self.read(path)
        label = plist["Label"]
        if self.disabled().get(f"{domain}/{label}"):
            raise Refused(119)
        if (domain, label) in self.jobs:
            raise Refused(37 if self.jobs[domain, label].draining else 5)
        types = session_types(plist)
        if domain.startswith("gui/") and self.vm["session_key_fatal"] and "LimitLoadToSessionType" in plist:
            raise Refused(5)
        if domain.startswith("gui/") and types and "Aqua" not in types:
            raise Refused(5)
        if domain.startswith("user/") and (types or self.vm["user_needs_background"]) and "Background" not in types:
            raise Refused(5)
        if self.vm["bootstrap_error"]:
            raise Refused(self.vm["bootstrap_error"])
        if self.vm["bootstrap_lies"]:
            return None
        job = self.jobs[domain, label] = Job(domain, path, plist)
        if plist.get("RunAtLoad") or plist.get("KeepAlive") is True:
            self.spawn(job)
        return job

    # Processes

    def spawn(self, job):
        job.timer = None
        job.begun = time.monotonic()
        plist = job.plist
        environment = job_environment(self.vm, plist.get("EnvironmentVariables", {}), job.label)
        opened = []
        job.runs += 1
        try:
            for key, flags in (("StandardInPath", os.O_RDONLY), ("StandardOutPath", os.O_WRONLY | os.O_CREAT | os.O_APPEND),
                               ("StandardErrorPath", os.O_WRONLY | os.O_CREAT | os.O_APPEND)):
                opened.append(os.open(plist.get(key, os.devnull), flags, 0o644))
            folder = plist.get("WorkingDirectory", "/")
            program = job.program
            mapped = self.vm.root + program if re.match(r"/(usr/)?s?bin/|/usr/libexec/", program) else program
            if not os.path.isdir(folder) or not os.path.isfile(mapped) or not os.access(mapped, os.X_OK):
                raise OSError("cannot start")
            umask = plist.get("Umask", 0o022)
            process = subprocess.Popen(
                wrap(self.vm, environment, [program if self.world.config.get("build") else mapped, *job.arguments[1:]]),
                env={}, cwd=folder, stdin=opened[0], stdout=opened[1], stderr=opened[2], start_new_session=True,
                umask=int(umask, 8) if isinstance(umask, str) else umask)
            job.pid, job.started = process.pid, start_time(process.pid)
            process.returncode = 0  # the keeper reaps; Popen must not
            job.gone.clear()
        except OSError:
            # launchd says no more than this about a path of the plist that it could not use.
            job.exit, job.signal = 78, None
            self.again(job)
        finally:
            for fd in opened:
                os.close(fd)

    def ended(self, pid, status):
        for job in list(self.jobs.values()):
            if job.pid == pid:
                code = os.waitstatus_to_exitcode(status)
                job.exit, job.signal = (code, None) if code >= 0 else (None, -code)
                if not job.plist.get("AbandonProcessGroup"):
                    try:
                        os.killpg(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
                job.pid = job.started = None
                job.gone.set()
                if not job.draining:
                    self.again(job)
                return

    def again(self, job):
        keep = job.plist.get("KeepAlive", False)
        if isinstance(keep, dict):
            wanted = keep.get("SuccessfulExit")
            keep = wanted is None or wanted == (job.exit == 0)
        if keep:
            least = job.plist.get("ThrottleInterval", 10) * self.vm["throttle_scale"]
            wait = max(0.0, job.begun + least - time.monotonic())
            job.timer = asyncio.get_running_loop().call_later(wait, self.spawn, job)

    async def stop(self, job, number=signal.SIGTERM):
        if job.timer:
            job.timer.cancel()
            job.timer = None
        if not job.pid:
            return
        pid, started = job.pid, job.started
        job.gone.clear()
        kill_exactly(pid, started, number)
        limit = job.plist.get("ExitTimeOut", self.vm["exit_timeout"])
        try:
            await asyncio.wait_for(job.gone.wait(), limit)
        except asyncio.TimeoutError:
            kill_exactly(pid, started)
            await job.gone.wait()

    async def drain(self, job):
        await self.stop(job)
        await asyncio.sleep(self.vm["drain"])
        self.jobs.pop((job.domain, job.label), None)

    # Commands

    async def command(self, argv):
        """Answers one launchctl call: (status, standard output, standard error)."""
        verb, words = (argv[0], argv[1:]) if argv else ("help", [])
        handler = getattr(self, "do_" + verb.replace("-", "_"), None)
        if not handler:
            return 64, "", f'Unrecognized subcommand: {verb}\nUsage: launchctl <subcommand> ... | help [subcommand]\n'
        try:
            result = await handler(words)
            return result if isinstance(result, tuple) else (0, result or "", "")
        except Refused as refusal:
            return refusal.code, "", refusal.text or f"{refusal.code}: {TEXTS.get(refusal.code, 'unknown error')}\n"
        except IndexError:
            return 64, "", f"Usage: launchctl {verb} <domain-target> ...\n"

    def refuse(self, what, code):
        hint = "Try re-running the command as root for richer errors.\n" if code == 5 else ""
        raise Refused(code, f"{what} failed: {code}: {TEXTS.get(code, 'unknown error')}\n{hint}")

    def split(self, target):
        parts = target.split("/", 2)
        if len(parts) < 2:
            raise Refused(64, f"Unrecognized target specifier: {target}\n")
        return "/".join(parts[:2]), parts[2] if len(parts) == 3 else None

    def missing_domain(self, domain):
        if domain in self.domains:
            return None
        own = domain in (f"gui/{self.vm['uid']}", f"user/{self.vm['uid']}")
        return (self.vm["gui_error"] if domain.startswith("gui/") else self.vm["user_error"]) if own else 125

    def find(self, target):
        domain, label = self.split(target)
        if code := self.missing_domain(domain):
            raise Refused(code, f"Could not find domain for {domain}: {code}: {TEXTS.get(code, '')}\n")
        job = self.jobs.get((domain, label))
        if not job:
            kind, uid = domain.split("/")
            raise Refused(113, f'Bad request.\nCould not find service "{label}" in domain for user {kind}: {uid}\n')
        return job

    async def do_bootstrap(self, words):
        domain, paths = words[0], words[1:]
        if code := self.missing_domain(domain):
            self.refuse("Bootstrap", code)
        for path in paths or [None]:
            if path is None:
                raise IndexError
            try:
                self.load(domain, path)
            except Refused as refusal:
                self.refuse("Bootstrap", refusal.code)

    async def do_bootout(self, words):
        domain, label = self.split(words[0])
        if code := self.missing_domain(domain):
            self.refuse("Boot-out", code)
        if label is None:
            try:
                with open(words[1], "rb") as file:
                    label = plistlib.load(file)["Label"]
            except (OSError, KeyError, ValueError, plistlib.InvalidFileException):
                self.refuse("Boot-out", 5)
        job = self.jobs.get((domain, label))
        if not job:
            self.refuse("Boot-out", 3)
        if job.draining:
            self.refuse("Boot-out", 36)
        job.draining = True
        try:
            await asyncio.wait_for(asyncio.shield(asyncio.ensure_future(self.drain(job))), self.vm["bootout_wait"])
        except asyncio.TimeoutError:
            self.refuse("Boot-out", 36)

    async def do_kickstart(self, words):
        flags = [word for word in words if word.startswith("-")]
        target = [word for word in words if not word.startswith("-")][0]
        job = self.find(target)
        kill = any("k" in flag for flag in flags)
        if self.disabled().get(f"{job.domain}/{job.label}"):
            raise Refused(119, f'Could not kickstart service "{job.label}": 119: {TEXTS[119]}\n')
        if job.draining or (job.pid and not kill):
            raise Refused(37, f'Could not kickstart service "{job.label}": 37: {TEXTS[37]}\n')
        if job.pid:
            await self.stop(job, signal.SIGKILL)
            if job.timer:
                job.timer.cancel()
        if not job.pid:
            self.spawn(job)
        return f"service spawned with pid: {job.pid}\n" if any("p" in flag for flag in flags) and job.pid else ""

    async def set_disabled(self, target, value):
        domain, label = self.split(target)
        if code := self.missing_domain(domain):
            raise Refused(code, f"Could not find domain for {domain}: {code}: {TEXTS.get(code, '')}\n")
        self.vm.remember(disabled={**self.disabled(), f"{domain}/{label}": value})

    async def do_enable(self, words):
        await self.set_disabled(words[0], False)

    async def do_disable(self, words):
        await self.set_disabled(words[0], True)

    async def do_kill(self, words):
        job = self.find(words[1])
        name = words[0].upper()
        number = int(name) if name.isdigit() else signal.Signals["SIG" + name.removeprefix("SIG")]
        if not job.pid:
            raise Refused(3, "No process to signal.\n")
        kill_exactly(job.pid, job.started, number)

    async def do_list(self, words):
        shown = [job for (domain, _), job in self.jobs.items() if domain == self.domains[0]] if self.domains else []
        if words:
            for job in shown:
                if job.label == words[0]:
                    pid = f'\t"PID" = {job.pid};\n' if job.pid else ""
                    code = -job.signal if job.signal else job.exit or 0
                    return f'{{\n\t"Label" = "{job.label}";\n\t"LastExitStatus" = {code};\n{pid}\t"OnDemand" = true;\n}};\n'
            raise Refused(113, f'Could not find service "{words[0]}" in domain for port\n')
        lines = ["PID\tStatus\tLabel", "412\t0\tcom.apple.Finder", "-\t0\tcom.apple.SafariBookmarksSyncAgent"]
        lines += [f"{job.pid or '-'}\t{-job.signal if job.signal else job.exit or 0}\t{job.label}" for job in shown]
        return "\n".join(lines) + "\n"

    async def do_managername(self, words):
        return "Background\n"

    async def do_manageruid(self, words):
        return f"{self.vm['uid']}\n"

    async def do_setenv(self, words):
        self.world.event("session-wide-setenv", vm=self.vm.name, argv=words)

    async def do_print_disabled(self, words):
        domain = words[0]
        if code := self.missing_domain(domain):
            raise Refused(code, f"Could not find domain for {domain}: {code}: {TEXTS.get(code, '')}\n")
        lines = [f'\t\t"{key[len(domain) + 1:]}" => {"disabled" if value else "enabled"}'
                 for key, value in sorted(self.disabled().items()) if key.startswith(domain + "/")]
        return "\n".join(["", "\tdisabled services = {", '\t\t"com.apple.ManagedClientAgent.enrollagent" => disabled', *lines,
                          "\t}", "\tlogin item associations = {", "\t}", ""])

    async def do_print(self, words):
        domain, label = self.split(words[0])
        if label is None:
            if code := self.missing_domain(domain):
                code = 112 if code == 5 else code
                raise Refused(code, f"Bad request.\nCould not find domain for {domain}: {code}: {TEXTS.get(code, '')}\n")
            services = "".join(f"\t\t{job.pid or 0:8} {'-' if job.exit is None else job.exit:>6} \t{job.label}\n"
                               for (where, _), job in self.jobs.items() if where == domain)
            kind = "login" if domain.startswith("gui/") else "user"
            return (f"com.apple.xpc.launchd.domain.{kind}.{domain.split('/')[1]} = {{\n\ttype = {kind}\n\thandle = 100017\n"
                    f"\tactive count = {len(self.jobs)}\n\tservice count = {len(self.jobs)}\n\tsession = "
                    f"{'Aqua' if kind == 'login' else 'Background'}\n\n\tservices = {{\n{services}\t}}\n}}\n")
        return describe(self.find(words[0]), self.vm)

    def snapshot(self):
        """What a snapshot of the world shows of the agents: nothing that differs from run to run."""
        return [{"domain": job.domain, "label": job.label, "path": job.path, "state": job.state(), "program": job.program}
                for job in sorted(self.jobs.values(), key=lambda job: (job.domain, job.label))]


def session_types(plist):
    value = plist.get("LimitLoadToSessionType", [])
    return [value] if isinstance(value, str) else value


def valid(plist):
    if not isinstance(plist, dict) or not plist.get("Label"):
        return False
    for key, value in plist.items():
        if key in KNOWN and not isinstance(value, KNOWN[key]):
            return False
    if not plist.get("Program") and not plist.get("ProgramArguments"):
        return False
    texts = [*plist.get("ProgramArguments", []), *plist.get("EnvironmentVariables", {}).values()]
    return all(isinstance(text, str) for text in texts)


def block(name, lines, indent="\t"):
    return f"{indent}{name} = {{\n" + "".join(f"{indent}\t{line}\n" for line in lines) + f"{indent}}}\n"


def describe(job, vm):
    plist, rows = job.plist, []
    properties = [name for name, on in (("runatload", plist.get("RunAtLoad")), ("keepalive", plist.get("KeepAlive")),
                                        ("inferred program", not plist.get("Program"))) if on]
    rows.append(f"\tactive count = {1 if job.pid else 0}\n\tpath = {job.path}\n\ttype = LaunchAgent\n\tstate = {job.state()}\n\n")
    rows.append(f"\tprogram = {job.program}\n" + block("arguments", job.arguments) + "\n")
    for key, name in (("WorkingDirectory", "working directory"), ("StandardOutPath", "stdout path"),
                      ("StandardErrorPath", "stderr path")):
        if key in plist:
            rows.append(f"\t{name} = {plist[key]}\n")
    rows.append(block("inherited environment", ["SSH_AUTH_SOCK => /private/tmp/com.apple.launchd.Qw3rty/Listeners"]) + "\n")
    rows.append(block("default environment", ["PATH => /usr/bin:/bin:/usr/sbin:/sbin"]) + "\n")
    own = {**plist.get("EnvironmentVariables", {}), "XPC_SERVICE_NAME": job.label}
    rows.append(block("environment", [f"{key} => {value}" for key, value in own.items()]) + "\n")
    rows.append(f"\tdomain = {job.domain} [100017]\n\tasid = 100017\n"
                f"\tminimum runtime = {plist.get('ThrottleInterval', 10)}\n\texit timeout = {plist.get('ExitTimeOut', 5)}\n"
                f"\truns = {job.runs}\n")
    if job.pid:
        rows.append(f"\tpid = {job.pid}\n\timmediate reason = speculative\n")
    kind = plist.get("ProcessType", "Standard").lower()
    rows.append(f"\tforks = 0\n\texecs = {job.runs}\n\t{job.last_exit()}\n\n\tspawn type = "
                f"{kind} ({ {'interactive': 4, 'background': 2}.get(kind, 3)})\n\tproperties = {' | '.join(properties)}\n")
    return f"{job.domain}/{job.label} = {{\n" + "".join(rows) + "}\n"
