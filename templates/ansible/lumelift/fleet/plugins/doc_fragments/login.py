# SPDX-License-Identifier: MIT

from __future__ import (absolute_import, division, print_function)
__metaclass__ = type


class ModuleDocFragment(object):
    DOCUMENTATION = r"""
options:
  guest_user:
    description: Account in the guest; lumelift's own default without it.
    type: str
  guest_port:
    description: SSH port of the guest.
    type: int
  guest_key:
    description: Private key file on the Mac.
    type: str
  guest_password:
    description: Password in the guest. Reaches lumelift by a descriptor, never as an argument.
    type: str
  guest_passphrase:
    description: Passphrase of I(guest_key). Reaches lumelift by its environment, never as an argument.
    type: str
  executable:
    description: The lumelift of the Mac.
    type: str
    default: lumelift
  search_path:
    description: Folders of the Mac, after those of the SSH session, where lumelift and lume are found.
    type: list
    elements: str
    default: [~/.local/bin, /opt/homebrew/bin, /usr/local/bin]
notes:
  - Runs on the Mac that owns the VMs, as the user who owns them; refused as root, also by I(become).
  - The Mac needs no Python, except with I(async) or where the variable C(lumelift_python) is true.
"""
