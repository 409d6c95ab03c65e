# Writes what every task gave as one line of JSON each, for the tests.
from __future__ import (absolute_import, division, print_function)
__metaclass__ = type

DOCUMENTATION = """
name: record
type: aggregate
short_description: Results as JSON lines
description: To the file that the variable LUMELIFT_RECORD names.
"""

import json
import os

from ansible.parsing.ajson import AnsibleJSONEncoder
from ansible.plugins.callback import CallbackBase


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "record"

    def write(self, kind, result):
        record = {"kind": kind, "host": result._host.get_name(), "task": result.task_name, "action": result._task.action, "result": result._result}
        with open(os.environ["LUMELIFT_RECORD"], "a", encoding="utf-8") as file:
            file.write(json.dumps(record, cls=AnsibleJSONEncoder) + "\n")

    def v2_runner_on_ok(self, result):
        self.write("ok", result)

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self.write("failed", result)

    def v2_runner_on_skipped(self, result):
        self.write("skipped", result)

    def v2_runner_on_unreachable(self, result):
        self.write("unreachable", result)
