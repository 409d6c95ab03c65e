#!/usr/bin/python
# SPDX-License-Identifier: MIT

from __future__ import (absolute_import, division, print_function)
__metaclass__ = type

DOCUMENTATION = r"""
module: workload
short_description: Run a workload in an unlocked VM
description:
  - Calls C(lumelift unlock --workload) on the Mac that runs the VM. The module C(lumelift.fleet.unlock) with I(state=absent) takes it back.
  - Program, files and LaunchAgent come into the guest and are proven to run with the library.
extends_documentation_fragment: [lumelift.fleet.login]
author: lumelift
attributes:
  check_mode:
    support: full
    description: Plans with lumelift and changes nothing.
  diff_mode:
    support: full
    description: One entry per resource that changes.
  platform:
    support: full
    description: The Mac that runs the VMs.
    platforms: darwin
options:
  vm:
    description: Name of the VM, as C(lume ls) shows it.
    type: str
    required: true
  src:
    description: Workload file on the Mac.
    type: str
    required: true
  profile:
    description: Name of a profile, or a file on the Mac; lumelift's own default without it.
    type: str
  restart:
    description: Whether the VM may be restarted; C(auto) restarts a running VM when that is needed.
    type: str
    choices: [auto, always, never]
    default: auto
  host_preference:
    description: C(keep) leaves the Mac's preference as it is.
    type: str
    choices: [set, keep]
    default: set
  timeout:
    description: Seconds from starting the VM until its guest must answer.
    type: int
"""

EXAMPLES = r"""
- name: A llama.cpp server runs in the guest, on its GPU
  lumelift.fleet.workload:
    vm: ci-1
    src: ~/workloads/llama-server.yaml
"""

RETURN = r"""
report:
  description: lumelift's own report or its plan in check mode.
  returned: when lumelift answered
  type: dict
error:
  description: The command's own error, with C(id), exit C(status), C(message), C(details) and C(fix).
  returned: when lumelift told an error
  type: dict
  sample: {id: lock-held, status: 4, message: another lumelift works on ci-1, details: [], fix: wait for it}
rc:
  description: Exit status of lumelift. 3 means that something could not be undone.
  returned: on failure
  type: int
"""

from ansible_collections.lumelift.fleet.plugins.module_utils.cli import main

if __name__ == "__main__":
    main("workload")
