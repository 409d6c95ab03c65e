"""Finds the lab and the guest from the path a stand-in was called by, and the code that answers for its name."""

import os
import sys

from world import World, give_up_capabilities, run_tool, set_title

served = False                    # forked by a server (server.py), rather than started by its caller


def lift_file_limit():
    """A guest's full disk is a limit on file sizes (see session.py), which must not hit the lab's own records."""
    import resource
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def main(called_as, argv, caller=None):
    """Answers one call and ends this process. `caller`: the process that was called, where a server answers for it."""
    global served  # one call per process
    served = caller is not None
    folder, tool = os.path.split(called_as)
    if "/vms/" in folder and "/root/" in folder + "/":
        lab, _, rest = folder.rpartition("/vms/")
        lift_file_limit()
        if served:
            give_up_capabilities()
        world = World(lab)
        vm = world.vm(rest.split("/", 1)[0])
        if tool == "launchctl":
            from launchctl import answer
        else:
            from guest_tools import TOOLS
            answer = TOOLS[tool]
        run_tool(world, tool, argv, lambda words: answer(vm, words), vm.name)
    world = World(os.path.dirname(os.path.dirname(folder)))
    if tool == "lume":
        from lume import answer
    elif tool == "defaults":
        from defaults import answer
    else:
        from host_tools import TOOLS
        answer = TOOLS[tool]
    run_tool(world, tool, argv, lambda words: answer(world, words), caller=caller)


def again(argv):
    """Becomes another call of the same stand-in, in a process that stays and that others find by its command line."""
    called_as = sys.argv[0]
    if not served:
        os.execv(called_as, [called_as, *argv])
    set_title(["/usr/bin/python3", "-IS", called_as, *argv], os.path.basename(called_as))
    main(called_as, argv, os.getppid())
