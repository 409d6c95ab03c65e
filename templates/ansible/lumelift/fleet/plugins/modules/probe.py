#!/usr/bin/python
# SPDX-License-Identifier: MIT

from __future__ import (absolute_import, division, print_function)
__metaclass__ = type

DOCUMENTATION = r"""
module: probe
short_description: Compare stock and unlocked answers of a running VM
description:
  - Calls C(lumelift probe) on the Mac that runs the VM.
  - Fails when the answers are not those that the profile promises.
extends_documentation_fragment: [lumelift.fleet.login]
author: lumelift
attributes:
  check_mode:
    support: none
    description: Skipped, as the library is put into the guest for the time of the probe.
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
  profile:
    description: Name of a profile, or a file on the Mac; lumelift's own default without it.
    type: str
"""

EXAMPLES = r"""
- name: What would the unlock bring
  lumelift.fleet.probe:
    vm: ci-1
    profile: minimal
"""

RETURN = r"""
report:
  description: Both probes, and whether they are as promised.
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
    main("probe")
