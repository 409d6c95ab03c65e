# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Runs the collection's modules: the lumelift of a Mac is called over the connection alone, so that the Mac needs no Python.

With `async`, or where `lumelift_python` is true, the same code runs as an ordinary Python module on the Mac.
"""

from __future__ import (absolute_import, division, print_function)
__metaclass__ = type

from ansible.errors import AnsibleActionFail
from ansible.module_utils.common.parameters import remove_values
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible.utils.vars import merge_hash

from ansible_collections.lumelift.fleet.plugins.module_utils import cli
from ansible_collections.lumelift.fleet.plugins.plugin_utils import shell

display = Display()


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        self._supports_check_mode = self._supports_async = True
        result = super(ActionModule, self).run(tmp, task_vars)
        if result.get("skipped"):
            return result
        shell.refuse_root(self)
        play = self._task._parent._play
        if play.serial and play.max_fail_percentage is None:
            display.warning("serial without max_fail_percentage: 0: the next batch will begin although a Mac could not be reached")
        if self._task.async_val or boolean(self._templar.template(task_vars.get("lumelift_python", False))):
            wrap_async = self._task.async_val and not self._connection.has_native_async
            return merge_hash(result, self._execute_module(task_vars=task_vars, wrap_async=wrap_async))
        name = self._task.action.rpartition(".")[2]
        params = self.validate_argument_spec(cli.SPECS[name], **cli.RULES.get(name, {}))[1]
        done = cli.perform(name, params, self._task.check_mode, self.runner(params["search_path"]))
        if not self._task.diff:
            done.pop("diff", None)
        secrets = {params[key] for key, about in cli.SPECS[name].items() if about.get("no_log") and params[key]}
        return merge_hash(result, remove_values(done, secrets))

    def runner(self, folders):
        prepare = self._compute_environment_string()

        def run(argv, password, passphrase):
            # Secrets go through standard input: no argument, no file and no log of either side has them.
            script, lines = [prepare, shell.search_path(folders)], []
            if passphrase:
                script.append("IFS= read -r LUMELIFT_KEY_PASSPHRASE && export LUMELIFT_KEY_PASSPHRASE &&")
                lines.append(passphrase)
            if password:
                lines.append(password)
            script.append("exec " + " ".join(map(shell.quoted, argv)))
            if any("\n" in line for line in lines):
                raise AnsibleActionFail("a password or passphrase cannot hold a line break")
            return shell.execute(self, " ".join(filter(None, script)), "".join(line + "\n" for line in lines))

        return run
