# SPDX-License-Identifier: MIT
"""Every module of the collection: options to words of the lumelift command, its JSON to a module's result.

Nothing here knows how the command is run: `perform` gets a function for that, so that a module on the Mac and an action plugin on the
control node, which needs no Python there, are the same code.
"""

from __future__ import (absolute_import, division, print_function)
__metaclass__ = type

import json

SCHEMA = 1
# A non-interactive SSH session of macOS searches neither.
SEARCH_PATH = ["~/.local/bin", "/opt/homebrew/bin", "/usr/local/bin"]
LAST_WORDS = 600

LOGIN = {
    "guest_user": {"type": "str"},
    "guest_port": {"type": "int"},
    "guest_key": {"type": "str", "no_log": False},
    "guest_password": {"type": "str", "no_log": True},
    "guest_passphrase": {"type": "str", "no_log": True},
}
RUN = {
    "executable": {"type": "str", "default": "lumelift"},
    "search_path": {"type": "list", "elements": "str", "default": SEARCH_PATH},
}
VM = {"vm": {"type": "str", "required": True}}
STATE = {"state": {"type": "str", "choices": ["present", "absent"], "default": "present"}}
START = {
    "profile": {"type": "str"},
    "restart": {"type": "str", "choices": ["auto", "always", "never"], "default": "auto"},
    "host_preference": {"type": "str", "choices": ["set", "keep"], "default": "set"},
    "timeout": {"type": "int"},
}


def spec(*parts):
    merged = {}
    for part in (LOGIN, RUN) + parts:
        merged.update(part)
    return merged


SPECS = {
    "unlock": spec(VM, STATE, START, {"workload": {"type": "str"}, "together": {"type": "list", "elements": "str", "default": []}}),
    "workload": spec(VM, STATE, START, {"src": {"type": "str"}, "label": {"type": "str"}}),
    "artifact": spec(VM, {"src": {"type": "list", "elements": "str", "required": True}, "dest": {"type": "str", "required": True}}),
    "probe": spec(VM, {"profile": {"type": "str"}}),
    "verify": spec(VM),
    "info": spec({"vm": {"type": "str"}}),
    "bench": spec(VM, {
        "profile": {"type": "str"}, "model": {"type": "str"}, "bench": {"type": "str"}, "files": {"type": "list", "elements": "str", "default": []},
        "guest_model": {"type": "str"}, "guest_bench": {"type": "str"}, "output": {"type": "str"}, "prompt_tokens": {"type": "str"},
        "generate_tokens": {"type": "str"}, "repetitions": {"type": "int"}, "rounds": {"type": "int"}, "cool_down": {"type": "int"},
        "bare_metal": {"type": "bool", "default": True}, "compare_text": {"type": "bool", "default": True},
    }),
}
RULES = {"workload": {"required_if": [("state", "present", ["src"]), ("state", "absent", ["label"])]}}


class Failure(Exception):
    """Carries the result of a failed module."""

    def __init__(self, message, **result):
        super(Failure, self).__init__(message)
        self.result = dict(result, failed=True, msg=message)


# Options that name a file of the Mac: "~/" in front means its home there. Those of the guest's are lumelift's to read.
HOST_PATHS = ("executable", "workload", "src", "profile", "guest_key", "model", "bench", "files", "output")


class HostPath(str):
    """A word with a path of the Mac in it that starts with "~"."""

    def parts(self):
        """What stands before the "~" and behind it."""
        return self.split("~", 1)


def host_path(name, word, value):
    return HostPath(word) if name in HOST_PATHS and value.startswith("~/") else word


class Command(object):
    """The lumelift of one Mac. `run(argv, password, passphrase)` gives status, stdout and stderr."""

    def __init__(self, params, run):
        self.params, self.run = params, run

    def words(self, *names):
        """Options that were given, as the command line wants them; secrets are never among them."""
        found = []
        for name, flag in names:
            value = self.params.get(name)
            for one in value if isinstance(value, list) else [value]:
                if one is not None:
                    found.append(host_path(name, "%s=%s" % (flag, one), str(one)))
        return found

    def ask(self, verb, *words):
        """Runs a command to its end; status and the object that it printed. A failure that it tells is raised as one."""
        program = self.params["executable"]
        argv = [host_path("executable", program, program), "--json", "--quiet", verb]
        argv += self.words(("guest_user", "--user"), ("guest_port", "--port"), ("guest_key", "--key"))
        if self.params["guest_password"]:
            argv.append("--password-fd=0")
        status, out, err = self.run(argv + list(words), self.params["guest_password"], self.params["guest_passphrase"])
        try:
            answer = json.loads(out)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise Failure(self.no_answer(status), rc=status, stderr=err[-LAST_WORDS:])
        if "error" in answer:
            raise told(answer["error"], status)
        if answer.get("schema") != SCHEMA:
            raise Failure("this collection reads schema %s of lumelift's answers, it gave %s: update the older of the two"
                          % (SCHEMA, answer.get("schema")), rc=status)
        return status, answer

    def no_answer(self, status):
        if status in (126, 127):
            return ("%s was not found or cannot be executed: install it with the role lumelift.fleet.host, or set executable or search_path"
                    % self.params["executable"])
        return "lumelift ended with status %s and printed no JSON object" % status


def told(error, status):
    """The command's own error, whole."""
    text = "lumelift: %s [%s, exit status %s]" % (error.get("message"), error.get("id"), error.get("status"))
    if error.get("fix"):
        text += "; next: %s" % error["fix"]
    # Status 3: something is left changed.
    return Failure(text, error=error, rc=status, changed=status == 3)


def unproven(what, lines, status, answer):
    return Failure("%s: %s [exit status %s]" % (what, "; ".join(lines) or "see report", status), rc=status, report=answer,
                   changed=status == 3)


# Plans as diffs

def shown(value):
    """One side of a step, for a person."""
    if value is None:
        return "absent"
    if not isinstance(value, dict):
        return str(value)
    if "sha256" in value:
        return "sha256 %s, %s bytes, mode %04o" % (value["sha256"], value["size"], value["mode"])
    if value.get("type") == "absent":
        return "absent"
    return "%s %s" % (value.get("type"), json.dumps(value.get("value", value.get("digest"))))


def resource(vm, step):
    kind = step["kind"]
    if kind == "preference":
        return "host: preference %s %s" % (step["domain"], step["key"])
    if kind == "agent":
        return "%s: agent %s/%s" % (vm, step["domain"], step["label"])
    if kind in ("file", "folder"):
        return "%s: %s %s" % (vm, kind, step["path"])
    return "%s: %s" % (vm, kind)


def diffs(vm, steps, undo=False):
    """One entry per resource, in the order in which they are first touched."""
    entries, order = {}, []
    for step in steps:
        name = resource(vm, step)
        if step["kind"] == "folder":
            before, after = "absent", "folder, mode %04o" % step["mode"]
            if undo:
                before, after = after, before
        else:
            before, after = shown(step.get("before")), shown(step.get("after"))
        if name not in entries:
            order.append(name)
            entries[name] = {"before_header": name, "after_header": name, "before": before + "\n"}
        entries[name]["after"] = after + "\n"
    for name in order:
        if entries[name]["after"] == entries[name]["before"]:
            entries[name]["after"] = entries[name]["after"].rstrip("\n") + " (restarted)\n"
    return [entries[name] for name in order]


# Modules

def converge(command, workload, check):
    words = command.words((workload, "--workload"), ("profile", "--profile"), ("restart", "--restart"), ("host_preference", "--host-preference"), ("timeout", "--timeout"))
    words.append(command.params["vm"])
    if check:
        plan = command.ask("unlock", "--dry-run", *words)[1]
        return {"changed": plan["changes"], "diff": diffs(plan["vm"], plan["steps"]), "report": plan}
    report = command.ask("unlock", *words)[1]
    return {"changed": report["changed"], "diff": diffs(report["vm"], report["steps"]), "report": report, "warnings": report["warnings"]}


def release_first(command, check):
    """Where only VMs of `together` claim the Mac's preference, it is put back before them: each is then started without it. What changes."""
    preference = command.ask("status", command.params["vm"])[1]["preference"]
    claimants = [vm for vm in command.params["together"] if vm in preference["claims"]]
    if len(claimants) < len(preference["claims"]) or claimants[:1] != [command.params["vm"]]:
        return []
    if not check:
        # A value that somebody else set is left alone: the rollback of the VM tells.
        command.ask("rollback", "--host")
    name = "host: preference"
    return [{"before_header": name, "after_header": name, "before": shown(preference["now"]) + "\n", "after": shown(preference["before"]) + "\n"}]


def take_back(command, check):
    words = command.words(("restart", "--restart"), ("timeout", "--timeout")) + [command.params["vm"]]
    released = release_first(command, check) if len(command.params["together"]) > 1 else []
    plan = command.ask("rollback", "--dry-run", *words)[1]
    result = {"changed": plan["changes"] or bool(released), "diff": released + diffs(plan["vm"], plan["steps"], undo=True), "report": plan}
    if check:
        return result
    status, report = command.ask("rollback", *words)
    if status != 0:
        raise unproven("not everything could be taken back", report.get("failed", []) + report.get("kept", []), status, report)
    return dict(result, changed=report["changed"] or bool(released), report=report, warnings=report["warnings"])


def unlock(command, check):
    if command.params["state"] == "absent":
        return take_back(command, check)
    return converge(command, "workload", check)


def workload(command, check):
    if command.params["state"] == "present":
        return converge(command, "src", check)
    vm, label = command.params["vm"], command.params["label"]
    here = [agent for agent in command.ask("agents", vm, "list")[1]["agents"] if agent["label"] == label]
    header = "%s: agent %s" % (vm, label)
    result = {"changed": bool(here), "report": {"agents": here},
              "diff": [{"before_header": header, "after_header": header, "before": "present\n", "after": "absent\n"}] * bool(here)}
    if here and not check:
        result["report"] = command.ask("agents", vm, "remove", label)[1]
    return result


def artifact(command, check):
    sources = [host_path("src", source, source) for source in command.params["src"]]
    if [word for word in sources + [command.params["dest"]] if word.startswith("-")]:
        raise Failure("src and dest do not begin with '-': write ./ in front", rc=2, changed=False)
    report = command.ask("copy", *(["--dry-run"] * check + [command.params["vm"]] + sources + [command.params["dest"]]))[1]
    moved = [one for one in report["files"] if one["state"] != "unchanged"]
    return {"changed": report["changes"], "report": report, "diff": [
        {"before_header": one["to"], "after_header": one["to"], "before": "", "after": "%s from %s\n" % (one["state"], one["from"])} for one in moved]}


def probe(command, check):
    if check:
        return {"changed": False, "skipped": True, "msg": "a probe puts the library into the guest for its time; not done in check mode"}
    status, report = command.ask("probe", *(command.words(("profile", "--profile")) + [command.params["vm"]]))
    if status != 0:
        raise unproven("the guest does not answer as the profile promises", report["problems"], status, report)
    return {"changed": False, "report": report}


def verify(command, check):
    status, report = command.ask("verify", command.params["vm"])
    if status != 0:
        missed = ["%s: %s" % (one["id"], one["evidence"]) for one in report["checks"] if not one["passed"]]
        raise unproven("%s is not unlocked as it was proven" % report["vm"], missed, status, report)
    return {"changed": False, "report": report}


def info(command, check):
    report = command.ask("status", *([command.params["vm"]] if command.params["vm"] else []))[1]
    return {"changed": False, "report": report, "vms": report["vms"], "preference": report["preference"]}


def bench(command, check):
    if check:
        return {"changed": True, "skipped": True, "msg": "a benchmark would run and write its folder"}
    words = command.words(
        ("profile", "--profile"), ("model", "--model"), ("bench", "--bench"), ("files", "--file"), ("guest_model", "--guest-model"),
        ("guest_bench", "--guest-bench"), ("output", "--output"), ("prompt_tokens", "--n-prompt"), ("generate_tokens", "--n-gen"),
        ("repetitions", "--repetitions"), ("rounds", "--rounds"), ("cool_down", "--cool-down"))
    words += ["--no-host"] * (not command.params["bare_metal"]) + ["--no-text-check"] * (not command.params["compare_text"])
    status, report = command.ask("bench", *(words + [command.params["vm"]]))
    if status != 0:
        raise unproven("the benchmark does not hold", report.get("notes", []), status, report)
    return {"changed": True, "report": report}


MODULES = {"unlock": unlock, "workload": workload, "artifact": artifact, "probe": probe, "verify": verify, "info": info, "bench": bench}


def perform(name, params, check, run):
    """A module's result, from validated options."""
    if (params.get("vm") or "").startswith("-"):
        # It would be read as an option.
        return Failure("%s cannot be the name of a VM" % params["vm"], rc=2, changed=False).result
    try:
        return MODULES[name](Command(params, run), check)
    except Failure as failure:
        return failure.result


def main(name):
    """The module itself, on a Mac with Python."""
    import os

    from ansible.module_utils.basic import AnsibleModule

    module = AnsibleModule(argument_spec=SPECS[name], supports_check_mode=True, **RULES.get(name, {}))
    folders = [os.path.expanduser(folder) for folder in module.params["search_path"]]

    def run(argv, password, passphrase):
        words = [os.path.expanduser("~").join(word.parts()) if isinstance(word, HostPath) else word for word in argv]
        environment = {"PATH": ":".join([os.environ.get("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")] + folders)}
        if passphrase:
            environment["LUMELIFT_KEY_PASSPHRASE"] = passphrase
        try:
            return module.run_command(words, data=password, environ_update=environment, expand_user_and_vars=False, handle_exceptions=False)
        except OSError as error:
            return 127, "", str(error)

    result = perform(name, module.params, module.check_mode, run)
    if not module._diff:
        result.pop("diff", None)
    if result.pop("failed", False):
        module.fail_json(**result)
    module.exit_json(**result)
