#!/usr/bin/python
# SPDX-License-Identifier: MIT

from __future__ import (absolute_import, division, print_function)
__metaclass__ = type

DOCUMENTATION = r"""
module: workload
short_description: Run a workload in an unlocked VM, or remove it
description:
  - Calls C(lumelift unlock --workload) or C(lumelift agents remove) on the Mac that runs the VM. The module C(lumelift.fleet.unlock) with
    I(state=absent) takes back everything that lumelift did to a VM.
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
  state:
    description: C(absent) takes back the agent with this I(label).
    type: str
    choices: [present, absent]
    default: present
  src:
    description: Workload file on the Mac. Needed for I(state=present).
    type: str
  label:
    description: Label of the agent. Needed for I(state=absent).
    type: str
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

- name: It does not
  lumelift.fleet.workload:
    vm: ci-1
    label: io.lumelift.llama-server
    state: absent
"""

RETURN = r"""
report:
  description: lumelift's own report, its plan in check mode, or the agents that were removed.
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
