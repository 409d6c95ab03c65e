"""Part 1 of the tutorial, followed to the letter: each command that stands in it is typed into one shell."""

import os
import re
import subprocess

from product import BUILD, HERE

ROOT = HERE.parent
PAGE = ROOT / "docs/tutorial.md"
# What a line may end with, where that is not 0.
STATUS = {"lumelift run ci-1 -- .local/share/lumelift/lumelift-probe --text": 10}


def lines():
    part = PAGE.read_text().split("## 1. ")[1].split("## 2. ")[0]
    return [line[4:] for line in part.splitlines() if line.startswith("    ")]


def test_followed_to_the_letter(tmp_path):
    typed = [line for line in lines() if line not in ("tests/prepare", "exit")]
    assert len(typed) > 12
    log = tmp_path / "log"
    script = f"cd {ROOT}\n"
    for line in typed:
        here = line.replace("/tmp/mac", str(tmp_path / "mac")).replace("--build build", f"--build {BUILD}").replace("$PWD/build", str(BUILD))
        script += f"echo '$ '{line!r}\n{here}\nprintf '%s\\n' $? >> {log}\n"
    (tmp_path / "typed").write_text(script)  # a file, since `lumelift run` hands standard input to its program
    done = subprocess.run(["bash", tmp_path / "typed"], stdin=subprocess.DEVNULL, text=True, capture_output=True, check=False,
                          env={**os.environ, "LC_ALL": "C.UTF-8"})
    said = done.stdout
    statuses = [int(word) for word in log.read_text().split()]
    assert statuses == [STATUS.get(line, 0) for line in typed], f"{list(zip(typed, statuses))}\n{said}\n{done.stderr}"

    answers = dict(zip(typed, [part.split("\n", 1)[1] for part in re.split(r"^\$ ", said, flags=re.M)[1:]]))
    assert re.search(r"^ci-1 .* no ", answers["lumelift"], re.M) and re.search(r"^dev .* no ", answers["lumelift"], re.M)
    assert "problem" not in answers["lumelift doctor ci-1"] and answers["lumelift doctor ci-1"].count("warning") <= 1
    assert re.search(r"32768 B +65536 B", answers["lumelift probe ci-1"])
    assert answers["lumelift verify ci-1; echo $?"].rstrip().endswith("0")
    assert re.search(r"unlock +undone", answers["lumelift history"])
