# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import (absolute_import, division, print_function)
__metaclass__ = type

DOCUMENTATION = r"""
name: lume
short_description: Macs and their VMs, with unlock state and the way into each guest
description:
  - Asks C(lumelift status) on every Mac over SSH. Files end in C(lume.yml) or C(lume.yaml).
  - Macs are in the group C(macs), VMs in C(vms) as C(VM.MAC); a VM is reached through its Mac.
  - A Mac that does not answer stays in the inventory, with the reason in C(lumelift_error), and has no VMs.
author: lumelift
extends_documentation_fragment: [constructed, inventory_cache]
options:
  plugin:
    description: This plugin.
    required: true
    choices: [lumelift.fleet.lume]
  macs:
    description: Name of each Mac, with C(address) (the name, without it), C(user), C(port), and C(guest_user) where a Mac's guests have another.
    type: dict
    required: true
  guest_user:
    description: Account in the guests.
    type: str
    default: lume
  guest_port:
    description: SSH port of the guests.
    type: int
    default: 22
  executable:
    description: The lumelift of the Macs.
    type: str
    default: lumelift
  search_path:
    description: Folders of the Macs, after those of the SSH session, where lumelift and lume are found.
    type: list
    elements: str
    default: [~/.local/bin, /opt/homebrew/bin, /usr/local/bin]
  ssh_args:
    description: Further words for ssh to the Macs, for the plugin itself and for the jump to the guests.
    type: list
    elements: str
    default: []
  timeout:
    description: Seconds for one Mac to answer.
    type: int
    default: 60
notes:
  - Variables of a Mac are C(lume_names) and C(lumelift_preference); of a VM C(lume_name), C(lume_mac), C(lume_state), C(lumelift_unlocked),
    C(lumelift_note), C(lume_guest) and C(lumelift_agents). All come from guests and Macs, and are never taken for templates.
"""

EXAMPLES = r"""
# fleet.lume.yml
plugin: lumelift.fleet.lume
macs:
  mac-1: {address: 10.0.0.11, user: ci}
  mac-2: {address: 10.0.0.12, user: ci}
# Groups unlocked_yes, unlocked_no, unlocked_stale ...
keyed_groups:
  - {key: lumelift_unlocked, prefix: unlocked}
"""

import concurrent.futures
import json
import re
import subprocess
from shlex import quote

from ansible.errors import AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin, Cacheable, Constructable
from ansible.utils.unsafe_proxy import wrap_var

from ansible_collections.lumelift.fleet.plugins.module_utils.cli import SCHEMA
from ansible_collections.lumelift.fleet.plugins.plugin_utils import shell

# Other names and addresses of VMs are left out: they become words of an ssh command line.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*$")
ADDRESS = re.compile(r"[0-9A-Fa-f.:]+$")


class InventoryModule(BaseInventoryPlugin, Constructable, Cacheable):
    NAME = "lumelift.fleet.lume"

    def verify_file(self, path):
        return super(InventoryModule, self).verify_file(path) and path.endswith(("lume.yml", "lume.yaml"))

    def parse(self, inventory, loader, path, cache=True):
        super(InventoryModule, self).parse(inventory, loader, path)
        self._read_config_data(path)
        self.load_cache_plugin()
        key = self.get_cache_key(path)
        wanted = self.get_option("cache")
        answers = self._cache.get(key) if wanted and cache else None
        if answers is None:
            answers = self.ask_all()
            if wanted:
                self._cache[key] = answers
        for group in ("macs", "vms"):
            self.inventory.add_group(group)
        for name, mac in self.get_option("macs").items():
            self.add_mac(name, mac or {}, answers[name])

    # Asking

    def ask_all(self):
        macs = self.get_option("macs")
        with concurrent.futures.ThreadPoolExecutor(max_workers=16) as pool:
            return dict(zip(macs, pool.map(self.ask, macs, macs.values())))

    def ssh(self, name, mac):
        address = str((mac or {}).get("address", name))
        user = (mac or {}).get("user")
        if address.startswith("-") or str(user or "").startswith("-"):
            raise AnsibleParserError("%s: address and user of a Mac do not begin with '-'" % name)
        port = ["-p", str(mac["port"])] if (mac or {}).get("port") else []
        return ["ssh", *self.get_option("ssh_args"), "-o", "BatchMode=yes", *port], ("%s@" % user if user else "") + address

    def ask(self, name, mac):
        options, target = self.ssh(name, mac)
        script = "%s exec %s --json --quiet status" % (shell.search_path(self.get_option("search_path")), shell.quoted(self.get_option("executable")))
        try:
            done = subprocess.run([*options, target, "/bin/sh -c " + quote(script)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, timeout=self.get_option("timeout"), check=False)
            answer = json.loads(done.stdout)
            if not isinstance(answer, dict):
                raise ValueError("no JSON object")
        except subprocess.TimeoutExpired:
            return {"failed": "no answer within %s s" % self.get_option("timeout")}
        except OSError as error:
            return {"failed": "ssh cannot be run: %s" % error}
        except ValueError:
            return {"failed": "status %s: %s" % (done.returncode, done.stderr.decode(errors="replace").strip()[-300:])}
        if "error" in answer:
            return {"failed": "%s [%s]" % (answer["error"].get("message"), answer["error"].get("id"))}
        if answer.get("schema") != SCHEMA:
            return {"failed": "lumelift answers with schema %s, not %s" % (answer.get("schema"), SCHEMA)}
        return answer

    # Telling

    def add_mac(self, name, mac, answer):
        self.inventory.add_host(name, group="macs")
        settings = {"ansible_host": str(mac.get("address", name)), "ansible_user": mac.get("user"), "ansible_port": mac.get("port"),
                    "ansible_ssh_common_args": " ".join(map(quote, self.get_option("ssh_args"))) or None}
        if "failed" in answer:
            self.display.warning("%s: %s" % (name, answer["failed"]))
            self.set_all(name, settings, {"lumelift_error": answer["failed"]})
            return
        known = [vm for vm in answer["vms"] if NAME.match(vm["name"])]
        self.set_all(name, settings, {"lume_names": [vm["name"] for vm in known], "lumelift_preference": answer["preference"]})
        for vm in known:
            self.add_vm(name, mac, vm)

    def add_vm(self, mac_name, mac, vm):
        name = "%s.%s" % (vm["name"], mac_name)
        self.inventory.add_host(name, group="vms")
        address = vm.get("address") or ""
        options, target = self.ssh(mac_name, mac)
        jump = " ".join([*map(quote, options), "-W", "%h:%p", quote(target)])
        # Addresses are given again to other VMs; the name is what a known host key belongs to.
        settings = {"ansible_host": address if ADDRESS.match(address) else None, "ansible_port": self.get_option("guest_port"),
                    "ansible_user": mac.get("guest_user", self.get_option("guest_user")),
                    "ansible_ssh_common_args": "-o ProxyCommand=%s -o HostKeyAlias=%s" % (quote(jump), name)}
        self.set_all(name, settings, {
            "lume_name": vm["name"], "lume_mac": mac_name, "lume_state": vm["state"], "lumelift_unlocked": vm["unlocked"],
            "lumelift_note": vm["note"], "lume_guest": vm.get("guest"), "lumelift_agents": vm.get("agents", [])})

    def set_all(self, host, settings, seen):
        for key, value in settings.items():
            if value is not None:
                self.inventory.set_variable(host, key, value)
        # What guests and Macs say is text, and never a template that the control node would evaluate.
        for key, value in seen.items():
            self.inventory.set_variable(host, key, wrap_var(value))
        variables = self.inventory.get_host(host).get_vars()
        strict = self.get_option("strict")
        self._set_composite_vars(self.get_option("compose"), variables, host, strict=strict)
        self._add_host_to_composed_groups(self.get_option("groups"), variables, host, strict=strict)
        self._add_host_to_keyed_groups(self.get_option("keyed_groups"), variables, host, strict=strict)
