#!/usr/bin/python
# SPDX-License-Identifier: MIT

from __future__ import (absolute_import, division, print_function)
__metaclass__ = type

DOCUMENTATION = r"""
module: unlock
short_description: Unlock a VM's Metal GPU, or take it back
description:
  - Calls C(lumelift unlock) or C(lumelift rollback) on the Mac that runs the VM.
  - What is unlocked as wanted already is proven again and not changed.
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
    description: C(absent) takes back everything that lumelift did to the VM, and only that.
    type: str
    choices: [present, absent]
    default: present
  profile:
    description: Name of a profile, or a file on the Mac; lumelift's own default without it.
    type: str
  workload:
    description: Workload file on the Mac to run with the library in it. Several per VM are tasks of the module C(lumelift.fleet.workload).
    type: str
  together:
    description:
      - VMs that are rolled back together, for I(state=absent). When no other VM claims the Mac's preference, it is put back before the first of them,
        so that each is restarted without it.
    type: list
    elements: str
    default: []
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
- name: The VM is unlocked
  lumelift.fleet.unlock:
    vm: ci-1
    guest_password: "{{ vault_guest_password }}"

- name: The VM is stock
  lumelift.fleet.unlock:
    vm: ci-1
    state: absent
"""

RETURN = r"""
report:
  description: lumelift's own report, or its plan in check mode.
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
    main("unlock")
