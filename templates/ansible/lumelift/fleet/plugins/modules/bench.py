#!/usr/bin/python
# SPDX-License-Identifier: MIT

from __future__ import (absolute_import, division, print_function)
__metaclass__ = type

DOCUMENTATION = r"""
module: bench
short_description: Measure llama-bench stock, unlocked, on the guest's CPU and on the Mac
description:
  - Calls C(lumelift bench) on the Mac that runs the VM. Runs for minutes; use C(async) with C(poll), and C(throttle=1) where hosts share a machine.
  - With C(async) the Mac needs Python.
extends_documentation_fragment: [lumelift.fleet.login]
author: lumelift
attributes:
  check_mode:
    support: none
    description: Skipped.
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
  model:
    description: Model file on the Mac, copied into the guest for the run.
    type: str
  bench:
    description: llama-bench on the Mac for the guest, copied likewise.
    type: str
  files:
    description: Libraries or folders on the Mac that it needs beside it.
    type: list
    elements: str
    default: []
  guest_model:
    description: Model that is in the guest already.
    type: str
  guest_bench:
    description: llama-bench that is in the guest already.
    type: str
  output:
    description: Folder on the Mac for the results.
    type: str
  prompt_tokens:
    description: Prompt lengths, as for llama-bench.
    type: str
  generate_tokens:
    description: Generation lengths, as for llama-bench.
    type: str
  repetitions:
    description: Repetitions of each test and arm.
    type: int
  rounds:
    description: Runs over which an arm's repetitions are spread.
    type: int
  cool_down:
    description: Seconds of rest between two runs.
    type: int
  bare_metal:
    description: Measure on the Mac itself, too.
    type: bool
    default: true
  compare_text:
    description: Compare texts before any speed is told.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Measure
  lumelift.fleet.bench:
    vm: ci-1
    model: ~/models/tinyllama.gguf
    bench: ~/llama.cpp/build/bin/llama-bench
  async: 3600
  poll: 15
  throttle: 1
"""

RETURN = r"""
report:
  description: The result, as in the folder's result.json.
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
    main("bench")
