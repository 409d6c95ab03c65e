#!/usr/bin/python
# SPDX-License-Identifier: MIT

from __future__ import (absolute_import, division, print_function)
__metaclass__ = type

DOCUMENTATION = r"""
module: info
short_description: What lumelift knows of a Mac and its VMs
description:
  - Calls C(lumelift status); changes nothing.
extends_documentation_fragment: [lumelift.fleet.login]
author: lumelift
attributes:
  check_mode:
    support: full
    description: The same as without.
  diff_mode:
    support: none
    description: Changes nothing that lasts.
  platform:
    support: full
    description: The Mac that runs the VMs.
    platforms: darwin
options:
  vm:
    description: Only this VM.
    type: str
"""

EXAMPLES = r"""
- name: Look
  lumelift.fleet.info:
  register: lumelift_info

- name: Drifted VMs
  ansible.builtin.debug:
    msg: "{{ lumelift_info.vms | selectattr('unlocked', 'in', ['stale', 'drifted']) | map(attribute='name') }}"
"""

RETURN = r"""
vms:
  description: One entry per VM, with C(name), C(state) and C(unlocked).
  returned: success
  type: list
  elements: dict
preference:
  description: The Mac's preference now, its former value, and the VMs that claim it.
  returned: success
  type: dict
report:
  description: The whole answer.
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
    main("info")
