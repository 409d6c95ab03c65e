"""Stand-in for `launchctl`: asks the launchd of the running guest. Part of the rehearsal lab."""

import sys


def answer(vm, argv):
    if argv[:1] == ["error"] and len(argv) == 2 and argv[1].isdigit():
        from launchd import TEXTS
        print(f"{argv[1]}: {TEXTS.get(int(argv[1]), 'unknown error code')}")
        return 0
    got = vm.ask({"op": "launchctl", "argv": argv})
    if got is None:
        print("Could not contact launchd", file=sys.stderr)
        return 1
    status, out, err = got
    sys.stdout.write(out)
    sys.stderr.write(err)
    return status
