#!/usr/bin/python
# SPDX-License-Identifier: MIT

from __future__ import (absolute_import, division, print_function)
__metaclass__ = type

DOCUMENTATION = r"""
module: install
short_description: Install lumelift, its library and templates from a release archive
description:
  - Copies an archive of the control node to the Mac, checks it there, unpacks it, and puts each file in place by a rename.
  - Installed files that were changed since are installed again.
  - Runs on the control node; the Mac needs no Python.
author: lumelift
attributes:
  check_mode:
    support: full
    description: Tells whether it would install.
  diff_mode:
    support: full
    description: One entry per resource that changes.
  platform:
    support: full
    description: The Mac that runs the VMs.
    platforms: darwin
options:
  archive:
    description: Release archive on the control node, a tar file with C(bin), C(lib) and C(share).
    type: path
    required: true
  checksum:
    description: SHA-256 of the archive, from a source other than the archive's own.
    type: str
    required: true
  prefix:
    description: Folder on the Mac.
    type: str
    default: ~/.local
"""

EXAMPLES = r"""
- name: The Mac has this very lumelift
  lumelift.fleet.install:
    archive: lumelift-macos-arm64.tar.gz
    checksum: sha256:9f2c1c4c0f9e5f0c3bb1c5b1f0d5a1f3f4f3d8f7f0b6d7a5f7d3f5a1f0c2b4e6
"""

RETURN = r"""
{}
"""

from ansible.module_utils.basic import AnsibleModule


def main():
    # The action plugin of this name does the work.
    AnsibleModule(argument_spec={}).fail_json(msg="lumelift.fleet.install runs on the control node only")


if __name__ == "__main__":
    main()
