"""One call of a guest's POSIX tool under a fault. Part of the rehearsal lab.

Called by `bin/posix` as: slow_tool.py CALLED-AS REAL ARGUMENTS…
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from world import World, run_tool  # noqa: E402


def run(real):
    def answer(argv):
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            os.execv(real, [real, *argv])
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return status if status >= 0 else 128 - status
    return answer


called_as, target, words = sys.argv[1], sys.argv[2], sys.argv[3:]
lab, _, rest = called_as.rpartition("/vms/")
run_tool(World(lab), os.path.basename(called_as), words, run(target), rest.split("/", 1)[0])
