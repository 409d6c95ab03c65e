"""Finds the lab and the guest from the path a stand-in was called by, and the code that answers for its name."""

import os

from world import World, run_tool


def lift_file_limit():
    """A guest's full disk is a limit on file sizes (see session.py), which must not hit the lab's own records."""
    import resource
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def main(called_as, argv):
    folder, tool = os.path.split(called_as)
    if "/vms/" in folder and "/root/" in folder + "/":
        lab, _, rest = folder.rpartition("/vms/")
        lift_file_limit()
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
    run_tool(world, tool, argv, lambda words: answer(world, words))
