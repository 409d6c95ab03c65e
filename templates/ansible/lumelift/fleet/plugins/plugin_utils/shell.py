# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What action plugins share: words for the Mac's shell, and who may not be its user."""

from __future__ import (absolute_import, division, print_function)
__metaclass__ = type

from shlex import quote

from ansible.errors import AnsibleActionFail

from ansible_collections.lumelift.fleet.plugins.module_utils.cli import HostPath


def quoted(word):
    if isinstance(word, HostPath):
        before, after = word.parts()
        return (quote(before) if before else "") + '"$HOME"' + quote(after)
    return quote(word)


def search_path(folders):
    """Own folders come last, so that they never replace what the session finds by itself."""
    return "PATH=$PATH:%s; export PATH;" % ":".join(quoted(HostPath(folder) if folder.startswith("~/") else folder) for folder in folders)


def execute(action, script, data=""):
    """Runs a script on the Mac; status and both streams. It always gets some input: without, Ansible asks for a terminal, which would mix
    the streams."""
    done = action._low_level_execute_command("/bin/sh -c " + quote(script), in_data=(data or "\n").encode())
    return done["rc"], done["stdout"], done["stderr"]


def refuse_root(action):
    """The preference and the VMs belong to one user of the Mac; root has others."""
    become = action._connection.become
    user = (action.get_become_option("become_user") or "root") if become else action._get_remote_user()
    if user == "root":
        raise AnsibleActionFail("lumelift.fleet runs as the user who owns the VMs, never as root: %s" % (
            "set become: false for this task, or become_user to that user" if become else "set ansible_user to that user"))
