"""Boots one guest of the rehearsal lab and says where it is: lab_guest.py FOLDER BUILD OPTIONS (a JSON object)."""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lab"))

from lab import Lab  # noqa: E402

FOLDER, BUILD, OPTIONS = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])

lab = Lab(FOLDER, build=BUILD)
vm = lab.add_vm("tahoe", running=True, **OPTIONS)
lab.guard(os.getppid())
lab.start(owner=False)
print(json.dumps([vm.run_state()["ip"], str(vm.port), os.path.join(lab.home, ".ssh", "id_ed25519"), vm.home, vm.root]))
