#!/usr/bin/python
# SPDX-License-Identifier: MIT

from __future__ import (absolute_import, division, print_function)
__metaclass__ = type

DOCUMENTATION = r"""
module: artifact
short_description: Copy files and folders into a guest, verified
description:
  - Calls C(lumelift copy) on the Mac that runs the VM. Each file appears under its name only after its checksum was compared in the guest.
  - What stands there already is not sent again. A copy is no part of the unlock, and not taken back by a rollback.
extends_documentation_fragment: [lumelift.fleet.login]
author: lumelift
attributes:
  check_mode:
    support: full
    description: Compares as the copy itself would, and changes nothing.
  diff_mode:
    support: full
    description: Each file that is sent, continued or given another mode.
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
    description: Files or folders of the Mac.
    type: list
    elements: str
    required: true
  dest:
    description: Where to in the guest; relative to its home. A folder where it ends with C(/) or there are several sources.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: A model is in the guest
  lumelift.fleet.artifact:
    vm: ci-1
    src: [~/models/tinyllama.gguf]
    dest: models/
"""

RETURN = r"""
report:
  description: All files, each with size, checksum and C(state) - copied, continued, mode-set or unchanged.
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
    main("artifact")
