"""Stand-in for `defaults`: typed values, the real texts and statuses. Part of the rehearsal lab; no cfprefsd is involved."""

import os
import sys
import time

from world import locked, read_json, write_json

NAMES = {"-string": "string", "-bool": "boolean", "-boolean": "boolean", "-int": "integer", "-integer": "integer",
         "-float": "float", "-real": "float", "-array": "array", "-dict": "dictionary", "-data": "data", "-date": "date"}


PLAIN = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:")


def complain(text, status=1):
    now = time.time()
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now)) + f".{int(now * 1000) % 1000:03d}"
    print(f"{when} defaults[{os.getpid()}:{os.getpid() * 7 % 99999}] {text}", file=sys.stderr)
    return status


def store(world):
    return world.path("host", "preferences.json")


def change(world, domain, key, value):
    """Sets (or, with None, removes) one typed value, as the preferences daemon would."""
    with locked(world.path("host", "preferences.lock")):
        everything = read_json(store(world), {})
        values = everything.get(domain, {})
        former = values.get(key)
        if value is None:
            values.pop(key, None)
        else:
            values[key] = value
        if values:
            everything[domain] = values
        else:
            everything.pop(domain, None)
        write_json(store(world), everything)
    return former


def disturb(world, domain, key, former):
    """Faults of the daemon: `stale_reads: n` answers n reads with the old value, `revert_after: n` undoes after n reads."""
    fault = world.fault_for("cfprefsd", ["write", domain, key])
    if fault:
        write_json(world.path("host", "cfprefsd.json"), {
            "domain": domain, "key": key, "former": former, "stale": fault.get("stale_reads", 0),
            "revert": fault.get("revert_after")})


def look(world, domain):
    values = dict(read_json(store(world), {}).get(domain, {}))
    path = world.path("host", "cfprefsd.json")
    lie = read_json(path)
    if not lie or lie["domain"] != domain:
        return values
    if lie["stale"] > 0:
        write_json(path, {**lie, "stale": lie["stale"] - 1})
        if lie["former"] is None:
            values.pop(lie["key"], None)
        else:
            values[lie["key"]] = lie["former"]
    elif lie["revert"] is not None:
        if lie["revert"] <= 0:
            os.unlink(path)
            change(world, domain, lie["key"], lie["former"])
            return dict(read_json(store(world), {}).get(domain, {}))
        write_json(path, {**lie, "revert": lie["revert"] - 1})
    return values


def plain(item):
    """The value as plistlib knows it."""
    kind, value = item["type"], item["value"]
    if kind == "data":
        return bytes.fromhex(value)
    if kind == "date":
        from datetime import datetime
        return datetime.strptime(value[:19], "%Y-%m-%d %H:%M:%S")
    if kind == "float":
        return float(value)
    return value


def typed(value):
    kinds = ((bool, "boolean"), (int, "integer"), (float, "float"), (str, "string"), (list, "array"), (dict, "dictionary"))
    for python, kind in kinds:
        if isinstance(value, python):
            return {"type": kind, "value": value}
    if isinstance(value, bytes):
        return {"type": "data", "value": value.hex()}
    return {"type": "date", "value": value.strftime("%Y-%m-%d %H:%M:%S +0000")}


def quoted(text):
    return text if text and set(text) <= PLAIN else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def shown(value, indent=0, top=True):
    """NSPropertyList's old text form, in which boolean true, integer 1 and string "1" look alike."""
    pad = "    " * (indent + 1)
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, float):
        return f"{value:.15g}"
    if isinstance(value, list):
        return "(\n" + ",\n".join(pad + shown(item, indent + 1, False) for item in value) + "\n" + "    " * indent + ")"
    if isinstance(value, dict):
        rows = "".join(f"{pad}{quoted(key)} = {shown(item, indent + 1, False)};\n" for key, item in sorted(value.items()))
        return "{\n" + rows + "    " * indent + "}"
    return str(value) if top or not isinstance(value, str) else quoted(value)


def show_item(item):
    if item["type"] == "data":
        return f"{{length = {len(item['value']) // 2}, bytes = 0x{item['value']}}}"
    return shown(float(item["value"]) if item["type"] == "float" else item["value"])


def parsed(kind, words):
    """The typed value of `write`'s words; None when defaults would refuse them."""
    word = words[0] if words else ""
    if kind == "boolean":
        choice = {"true": True, "yes": True, "false": False, "no": False}.get(word.lower())
        return None if choice is None else {"type": kind, "value": choice}
    try:
        if kind == "integer":
            return {"type": kind, "value": int(word)}
        if kind == "float":
            return {"type": kind, "value": float(word)}
        if kind == "data":
            return {"type": kind, "value": bytes.fromhex(word).hex()}
    except ValueError:
        return None
    if kind == "array":
        return {"type": kind, "value": list(words)}
    if kind == "dictionary":
        return {"type": kind, "value": dict(zip(words[::2], words[1::2]))}
    return {"type": kind, "value": word}


def missing(domain, key):
    return complain(f"\nThe domain/default pair of ({domain}, {key}) does not exist")


def do_read(world, domain, key=None):
    values = look(world, domain)
    if key is None:
        if not values:
            return complain(f"\nDomain {domain} does not exist")
        print("{\n" + "".join(f"    {quoted(name)} = {shown(item['value'], 1, False)};\n" for name, item in sorted(values.items())) + "}")
        return 0
    if key not in values:
        return missing(domain, key)
    print(show_item(values[key]))
    return 0


def do_read_type(world, domain, key):
    values = look(world, domain)
    if key not in values:
        return missing(domain, key)
    print(f"Type is {values[key]['type']}")
    return 0


def do_write(world, domain, key, *words):
    if not words:
        return complain("\nRep argument is not a dictionary\nDefaults have not been changed.")
    kind, rest = NAMES.get(words[0]), list(words[1:])
    if kind is None and words[0].startswith("-") and not words[0][1:2].isdigit():
        return complain(f"Unexpected argument {words[0]}; leaving defaults unchanged.", 255)
    if kind is None:
        import plistlib
        value = {"type": "string", "value": words[0]}
        if words[0].startswith("<"):
            try:
                value = typed(plistlib.loads(b'<plist version="1.0">' + words[0].encode() + b"</plist>"))
            except Exception:
                return complain(f"Could not parse: {words[0]}.  Try single-quoting it.")
        elif words[0].startswith(("(", "{")):
            return complain(f"Could not parse: {words[0]}.  Try single-quoting it.")
    else:
        value = parsed(kind, rest)
        if value is None:
            return complain(f"Unexpected argument {rest[0] if rest else ''}; leaving defaults unchanged.", 255)
        if kind not in ("array", "dictionary") and len(rest) > 1:
            return complain(f"Unexpected argument {rest[1]}; leaving defaults unchanged.", 255)
    disturb(world, domain, key, change(world, domain, key, value))
    return 0


def do_delete(world, domain, key=None):
    values = read_json(store(world), {}).get(domain, {})
    if not values or (key is not None and key not in values):
        return complain(f"\nDomain ({domain}) not found.\nDefaults have not been changed.")
    for name in [key] if key is not None else list(values):
        former = change(world, domain, name, None)
        if key is not None:
            disturb(world, domain, name, former)
    return 0


def do_export(world, domain, target):
    import plistlib
    data = plistlib.dumps({key: plain(item) for key, item in look(world, domain).items()})
    sys.stdout.flush()
    if target == "-":
        os.write(1, data)
    else:
        with open(target, "wb") as file:
            file.write(data)
    return 0


def do_import(world, domain, source):
    import plistlib
    try:
        values = plistlib.loads(sys.stdin.buffer.read()) if source == "-" else plistlib.load(open(source, "rb"))
    except Exception:
        return complain("Could not parse property list")
    for key, value in values.items():
        change(world, domain, key, typed(value))
    return 0


def do_domains(world):
    print(", ".join(sorted(read_json(store(world), {}))))
    return 0


COMMANDS = {"read": (do_read, 1, 2), "read-type": (do_read_type, 2, 2), "write": (do_write, 2, 99), "delete": (do_delete, 1, 2),
            "export": (do_export, 2, 2), "import": (do_import, 2, 2), "domains": (do_domains, 0, 0)}


def answer(world, argv):
    words = list(argv)
    suffix = ""
    if words[:1] == ["-currentHost"]:
        words.pop(0)
        suffix = " (current host)"
    command = COMMANDS.get(words[0]) if words else None
    if not command or not command[1] <= len(words) - 1 <= command[2]:
        print("Command line interface to a user's defaults.\nSyntax:\n\n'defaults' [-currentHost | -host <hostname>] followed by one "
              "of the following:\n\n  read <domain> <key>", file=sys.stderr)
        return 255
    rest = words[1:]
    if rest and words[0] != "domains":
        rest[0] = {"-g": "NSGlobalDomain", "-globalDomain": "NSGlobalDomain"}.get(rest[0], rest[0]) + suffix
    return command[0](world, *rest)
