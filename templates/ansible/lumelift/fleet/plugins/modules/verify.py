#!/usr/bin/python
# SPDX-License-Identifier: MIT

from __future__ import (absolute_import, division, print_function)
__metaclass__ = type

DOCUMENTATION = r"""
module: verify
short_description: Assert that a VM is unlocked as it was proven
description:
  - Calls C(lumelift verify) on the Mac that runs the VM; fails with every check that did not hold.
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
    description: Name of the VM, as C(lume ls) shows it.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: The VM is fit for GPU jobs
  lumelift.fleet.verify:
    vm: ci-1
"""

RETURN = r"""
report:
  description: All checks, each with evidence.
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
    main("verify")
