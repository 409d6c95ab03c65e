# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Installs a release archive of lumelift on a Mac, over the connection alone: see plugins/modules/install.py."""

from __future__ import (absolute_import, division, print_function)
__metaclass__ = type

import hashlib
import re

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.lumelift.fleet.plugins.module_utils.cli import HostPath
from ansible_collections.lumelift.fleet.plugins.plugin_utils import shell

SPEC = {
    "archive": {"type": "path", "required": True},
    "checksum": {"type": "str", "required": True},
    "prefix": {"type": "str", "default": "~/.local"},
}

# Prints the archive's sum when every file of it still stands as it was installed.
LOOK = """
cd {prefix} 2>/dev/null || exit 0
sum=$(cat share/lumelift/.archive.sha256 2>/dev/null) || exit 0
shasum -a 256 -c share/lumelift/.files.sha256 >/dev/null 2>&1 && printf '%s' "$sum" || printf 'changed since it was installed'
"""
STAGE = """
umask 022
mkdir -p {prefix}/share/lumelift && cd {prefix}/share/lumelift && pwd && mktemp -d .install.XXXXXX
"""
# The sum is checked on the Mac, all is unpacked before anything is replaced, and each file goes to its place by a rename.
PLACE = """
set -eu
umask 022
cd {stage}
printf '%s  archive\\n' {sum} | shasum -a 256 -c >/dev/null
mkdir tree
tar -xf archive -C tree
top=tree
if [ ! -x tree/bin/lumelift ]; then
  set -- tree/*
  top=$1
fi
[ -x "$top/bin/lumelift" ]
[ -f "$top/libexec/lumelift/liblumelift-metal.dylib" ]
cd "$top"
find . -type f -exec shasum -a 256 '{{}}' + > {stage}/files
find . -type d | while IFS= read -r folder; do mkdir -p {prefix}/"$folder"; done
find . -type f -o -type l | while IFS= read -r file; do mv -f "$file" {prefix}/"$file"; done
mv -f {stage}/files {prefix}/share/lumelift/.files.sha256
printf '%s' {sum} > {stage}/sum
mv -f {stage}/sum {prefix}/share/lumelift/.archive.sha256
"""


def sha256_of(path):
    total = hashlib.sha256()
    try:
        with open(path, "rb") as archive:
            for piece in iter(lambda: archive.read(1 << 20), b""):
                total.update(piece)
    except OSError as error:
        raise AnsibleActionFail("the archive cannot be read: %s" % error)
    return total.hexdigest()


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        self._supports_check_mode = True
        result = super(ActionModule, self).run(tmp, task_vars)
        shell.refuse_root(self)
        params = self.validate_argument_spec(SPEC)[1]
        wanted = params["checksum"].lower()
        wanted = wanted[len("sha256:"):] if wanted.startswith("sha256:") else wanted
        if not re.match("[0-9a-f]{64}$", wanted):
            raise AnsibleActionFail("checksum is no SHA-256: 64 hexadecimal digits, with or without 'sha256:' in front")
        archive = self._find_needle("files", params["archive"])
        found = sha256_of(archive)
        if found != wanted:
            raise AnsibleActionFail("%s has the SHA-256 %s, not %s: it was not installed" % (params["archive"], found, wanted))
        prefix = params["prefix"]
        prefix = shell.quoted(HostPath(prefix) if prefix.startswith("~/") else prefix)
        now = self.ask(LOOK.format(prefix=prefix))
        result["changed"] = now != wanted
        if result["changed"] and self._task.diff:
            name = "%s/bin/lumelift, library and templates" % params["prefix"]
            result["diff"] = [{"before_header": name, "after_header": name, "before": (now or "absent") + "\n", "after": wanted + "\n"}]
        if result["changed"] and not self._task.check_mode:
            stage = "/".join(self.ask(STAGE.format(prefix=prefix)).split("\n"))
            try:
                self._transfer_file(archive, stage + "/archive")
                self.ask(PLACE.format(prefix=prefix, stage=shell.quoted(stage), sum=wanted))
            finally:
                self.ask("rm -rf " + shell.quoted(stage))
        return result

    def ask(self, script):
        status, out, err = shell.execute(self, script)
        if status != 0:
            raise AnsibleActionFail("the archive was not installed: status %s, %s" % (status, err[-600:].strip() or "no message"))
        return out.strip()
