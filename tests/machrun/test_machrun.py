"""The lab's loader and exec layer: do Mach-O files run, and are dyld's rules of insertion kept? Both architectures.

What this cannot show: that a Mac's dyld and kernel act so. The rules come from public documentation and reports.
"""

import json
import os
import re
import subprocess

import pytest

import craft

BUILD = os.environ.get("LUMELIFT_BUILD", "")
LAB = os.path.join(BUILD, "tests", "lab")
WORKLOADS = os.path.join(LAB, "workloads")
pytestmark = pytest.mark.skipif(not BUILD, reason="LUMELIFT_BUILD names the build folder")
TOOLS = {"/bin/zsh": "/usr/bin/zsh", "/bin/sh": "/usr/bin/bash", "/bin/bash": "/usr/bin/bash", "/usr/bin/env": "/usr/bin/env",
         "/bin/cat": "/usr/bin/cat"}


@pytest.fixture(params=["x86_64", "arm64"], scope="session")
def arch(request):
    return request.param


@pytest.fixture(scope="session")
def build(tmp_path_factory, arch):
    """Builds order.c into `name`; every test names its files differently."""
    folder = tmp_path_factory.mktemp(f"macho-{arch}")

    def make(name, source="order.c", defines=("PROGRAM",), **options):
        return craft.compile_file(source, str(folder / name), arch, defines=[f"NAME={re.sub('[^a-z0-9]', '_', name)}", *defines], **options)
    make.folder = folder
    return make


@pytest.fixture(scope="session")
def library(build):
    """A library to insert; answers needed_value() with 21."""
    return build("libinserted.dylib", defines=["PROVIDES"], dylib="@rpath/libinserted.dylib")


@pytest.fixture
def guest(tmp_path, arch):
    """Runs a command as a guest's process: run(command, variable=value, …)."""
    root = tmp_path / "root"
    for path, target in TOOLS.items():
        (root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        (root / path[1:]).symlink_to(target)

    def run(*command, sip=True, own_arch=arch, cwd=tmp_path, **variables):
        layer = {"LD_PRELOAD": os.path.join(LAB, "libguestexec.so"), "LAB_MACHRUN_DIR": LAB, "LAB_GUEST_ROOT": str(root),
                 "LAB_ARCH": own_arch, "LAB_QEMU": "/usr/bin/qemu-aarch64", "LAB_SIP": "1" if sip else "0"}
        own = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(tmp_path), **variables}
        text = [[f"{key}={value}" for key, value in names.items()] for names in (layer, own)]
        return subprocess.run(["/usr/bin/env", "-i", *text[0], "/usr/bin/env", *text[1], *map(str, command)], cwd=cwd, timeout=60,
                              capture_output=True, text=True, errors="replace")
    run.root = root
    return run


# -- loading and libSystem --

def test_libsystem_is_translated(guest, build, tmp_path):
    program = build("translate", source="translate.c", defines=())
    result = guest(program, "a", "b c", cwd=tmp_path)
    wrong = [line for line in result.stdout.splitlines() if line.startswith("FAIL")]
    assert (result.returncode, wrong) == (0, []), result.stdout + result.stderr
    assert result.stdout.count("\nok ") > 50 and result.stdout.endswith("atexit: 0 failures\n")


@pytest.mark.parametrize("fixups", ["-fixup_chains", "-no_fixup_chains"])
def test_libraries_are_found_and_bound(guest, build, fixups):
    """Chained fixups and the older opcodes; @rpath by @loader_path; initialisers of libraries first."""
    tag = fixups.replace("-", "").replace("_", "")
    dylib = build(f"lib{tag}.dylib", defines=["PROVIDES"], dylib=f"@rpath/lib{tag}.dylib", fixups=fixups)
    program = build(f"uses{tag}", defines=["PROGRAM", "NEEDS"], libraries=[dylib], rpaths=["@loader_path"], fixups=fixups)
    result = guest(program)
    assert result.stdout.splitlines() == [f"init lib{tag}_dylib", f"init uses{tag}", f"main {program}", "value 21", "variable gone"]
    assert result.returncode == 7


def test_missing_library_is_dylds_message(guest, build, tmp_path):
    """R70: only the executable was copied."""
    dylib = build("libgone.dylib", defines=["PROVIDES"], dylib="@rpath/libgone.dylib")
    program = build("alone", defines=["PROGRAM", "NEEDS"], libraries=[dylib], rpaths=["@loader_path/lib", "@executable_path/x"])
    result = guest(program)
    assert result.returncode == 134 or result.returncode == -6
    assert re.search(rf"^dyld\[\d+\]: Library not loaded: @rpath/libgone.dylib\n  Referenced from: <[0-9A-F-]+> {program}\n"
                     rf"  Reason: tried: '{build.folder}/lib/libgone.dylib' \(no such file\), '{build.folder}/x/libgone.dylib' "
                     r"\(no such file\)\n$", result.stderr), result.stderr
    assert result.stdout == ""


def test_dlopen_at_run_time(guest, build, library):
    program = build("opener")
    result = guest(program, "--dlopen", library, "--dlopen", "/nowhere/lib.dylib")
    assert "init libinserted_dylib\ndlsym: 21\n" in result.stdout
    assert "dlopen: dlopen(/nowhere/lib.dylib): tried: '/nowhere/lib.dylib' (no such file)" in result.stdout


def test_unknown_symbol_is_refused(guest, build, tmp_path):
    program = build("bench", source="translate.c", defines=())
    data = open(program, "rb").read()
    broken = tmp_path / "broken"
    broken.write_bytes(data.replace(b"_qsort\0", b"_qsurt\0"))
    broken.chmod(0o755)
    result = guest(broken)
    assert result.returncode in (134, -6)
    assert "Symbol not found: _qsurt\n  Referenced from: <" in result.stderr and "Expected in:     /usr/lib/libSystem.B.dylib" in result.stderr


def test_unknown_lazy_symbol_matters_only_when_called(guest, build, tmp_path):
    """The older opcodes: dyld looks for everything at launch, but only the call of what is absent is the end."""
    program = build("lazy", source="translate.c", defines=(), fixups="-no_fixup_chains")
    broken = tmp_path / "broken"
    broken.write_bytes(open(program, "rb").read().replace(b"_qsort\0", b"_qsurt\0"))
    broken.chmod(0o755)
    result = guest(broken, "a", "b c", cwd=tmp_path)
    assert result.returncode in (134, -6)
    assert re.fullmatch(r"dyld\[\d+\]: missing symbol called: _qsurt\n", result.stderr), result.stderr
    assert "ok once: 1" in result.stdout and "page size" not in result.stdout


def test_truncated_files_never_crash_the_loader(guest, build, tmp_path, arch):
    """Cut at many places, a file is refused or at least ends by dyld's own death, never by a fault of the loader."""
    data = open(build("whole"), "rb").read()
    loader = [f"{LAB}/machrun-x86_64"] if arch == "x86_64" else ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", f"{LAB}/machrun-aarch64"]
    step = 997 if arch == "x86_64" else 7919
    for length in [4, 8, 31, 32, 40, 100, *range(200, len(data), step)]:
        (tmp_path / "cut").write_bytes(data[:length])
        result = subprocess.run([*loader, str(tmp_path / "cut")], capture_output=True, text=True, timeout=60)
        assert result.returncode == -6 and "dyld[" in result.stderr, (length, result)


# -- insertion --

def test_inserted_library_comes_first(guest, build, library):
    program = build("plain")
    second = build("libsecond.dylib", defines=[], dylib="@rpath/libsecond.dylib")
    result = guest(program, DYLD_INSERT_LIBRARIES=f"{library}:{second}")
    assert result.stdout.splitlines() == ["init libinserted_dylib", "init libsecond_dylib", "init plain", f"main {program}",
                                          f"variable {library}:{second}"]


@pytest.mark.parametrize("what, reason", [
    ("missing", "no such file"), ("text", "not a mach-o file"), ("empty", "not a mach-o file"),
    ("other", "mach-o file, but is an incompatible architecture \\(have '{other}', need '{own}'\\)"),
    ("fat", "fat file, but missing compatible architecture \\(have '{other},arm64e', need '{own}'\\)")])
def test_bad_inserted_library_kills(guest, build, tmp_path, arch, what, reason):
    other = "arm64" if arch == "x86_64" else "x86_64"
    path = tmp_path / "x.dylib"
    if what == "text":
        path.write_text("hello, this is not a library\n" * 4)
    elif what == "empty":
        path.touch()
    elif what in ("other", "fat"):
        craft.compile_file("order.c", str(path), other, defines=["NAME=x"], dylib="@rpath/x.dylib")
    if what == "fat":
        if other == "arm64":
            other = "x86_64h"
        thin = [craft.compile_file("order.c", str(tmp_path / a), a, defines=["NAME=x"], dylib="@rpath/x") for a in ("arm64", "x86_64")]
        craft.set_subtype(thin[0], 2)
        craft.set_subtype(thin[1], 8 if other == "x86_64h" else 3)
        craft.universal(str(path), thin[1], thin[0])
    result = guest(build("plain"), DYLD_INSERT_LIBRARIES=path)
    assert result.returncode in (134, -6) and result.stdout == ""
    expected = reason.format(other=other, own=arch)
    assert re.match(rf"dyld\[\d+\]: terminating because inserted dylib '{path}' could not be loaded: tried: '{path}' \({expected}\)\n$",
                    result.stderr), result.stderr


def restricted(build, how):
    program = build(f"restricted-{how}", defines=["PROGRAM", *(["RESTRICTED"] if how == "section" else [])])
    flags = {"restrict": craft.RESTRICT, "runtime": craft.RUNTIME, "validation": craft.LIBRARY_VALIDATION}
    for word, flag in flags.items():
        if how.startswith(word):
            craft.set_flags(program, flag)
    if how == "setuid":
        os.chmod(program, 0o4755)
    if how == "setgid":
        os.chmod(program, 0o2755)
    keys = [craft.ALLOW_ENVIRONMENT] * ("allow" in how) + [craft.NO_VALIDATION] * ("foreign" in how)
    if keys:
        craft.add_entitlements(program, keys, der="der" in how)
    return program


@pytest.mark.parametrize("how", ["setuid", "setgid", "section", "restrict", "runtime", "runtime-foreign"])
def test_restricted_program_runs_without(guest, build, library, how):
    """R63, R64: the variables vanish, silently, and the program's children do not see them either."""
    program = restricted(build, how)
    result = guest(program, DYLD_INSERT_LIBRARIES=library, DYLD_OTHER="1")
    assert result.stdout.splitlines()[-2:] == [f"main {program}", "variable gone"] and "libinserted" not in result.stdout
    assert (result.returncode, result.stderr) == (7, "")


@pytest.mark.parametrize("how", ["runtime-allow", "runtime-allow-der", "validation"])
def test_library_validation_kills(guest, build, library, how):
    result = guest(restricted(build, how), DYLD_INSERT_LIBRARIES=library)
    assert result.returncode in (134, -6) and "have different Team IDs" in result.stderr and result.stdout == ""


@pytest.mark.parametrize("how", ["runtime-allow-foreign", "runtime-allow-foreign-der"])
def test_both_entitlements_allow(guest, build, library, how):
    result = guest(restricted(build, how), DYLD_INSERT_LIBRARIES=library)
    assert "init libinserted_dylib" in result.stdout and result.returncode == 7


# -- starting programs in a guest --

def test_sip_strips_for_system_tools_only(guest, build, library, tmp_path):
    """R61: a shell in between loses the variable, an assignment behind it does not."""
    program = build("plain")
    script = tmp_path / "s.sh"
    script.write_text(f"#!/bin/sh\n{program}\n")
    script.chmod(0o755)
    assert "variable gone" in guest(script, DYLD_INSERT_LIBRARIES=library).stdout
    assert "variable gone" in guest("/bin/zsh", "-c", program, DYLD_INSERT_LIBRARIES=library).stdout
    assert "init libinserted" in guest("/bin/zsh", "-c", f"DYLD_INSERT_LIBRARIES={library} {program}").stdout
    assert "init libinserted" in guest("/usr/bin/env", f"DYLD_INSERT_LIBRARIES={library}", program).stdout


def test_without_sip_a_tool_dies_of_a_missing_slice(guest, library, arch):
    """R25: the system's tools are arm64e there, and the variable is honoured."""
    result = guest("/bin/cat", "/dev/null", sip=False, DYLD_INSERT_LIBRARIES=library)
    assert result.returncode in (134, -6)
    assert f"(have '{arch}', need 'arm64e')" in result.stderr
    assert guest("/bin/cat", "/dev/null", sip=False).returncode == 0


@pytest.mark.parametrize("shell", ["zsh", "bash", "sh"])
def test_only_the_guests_tools_exist(guest, shell):
    result = guest(f"/bin/{shell}", "-c", "command -v git; git --version; echo $?; cat /dev/null; echo $?; /usr/bin/git; echo $?")
    assert result.stdout.split() == ["127", "0", "127"], result


@pytest.mark.parametrize("shell, text", [("zsh", "zsh:1: bad CPU type in executable: ./e\n"), ("bash", "./e: Bad CPU type in executable\n")])
def test_wrong_architecture_is_named(guest, build, tmp_path, shell, text):
    program = str(tmp_path / "e")
    craft.compile_file("order.c", program, "arm64", defines=["PROGRAM", "NAME=e"])
    craft.set_subtype(program, 2)
    result = guest(f"/bin/{shell}", "-c", "./e; echo $?")
    assert result.stderr.endswith(text) and result.stdout in ("126\n", "127\n")


def test_universal_programs_prefer_the_machine(guest, tmp_path, arch):
    thin = [craft.compile_file("order.c", str(tmp_path / a), a, defines=["PROGRAM", f"NAME={a}"]) for a in ("arm64", "x86_64")]
    both = craft.universal(str(tmp_path / "both"), *thin)
    assert f"init {arch}\n" in guest(both).stdout
    # Rosetta: a program for Intel alone runs everywhere.
    assert "init x86_64\n" in guest(thin[1]).stdout


def test_interpreter_lines_follow_macos(guest, tmp_path, library):
    script = tmp_path / "s"
    script.write_text('#!/usr/bin/env zsh -f\nprint -r -- "$0|$1|$2|$DYLD_INSERT_LIBRARIES"\n')
    script.chmod(0o755)
    result = guest(script, "a b", "c", DYLD_INSERT_LIBRARIES=library)
    assert result.stdout == f"{script}|a b|c|\n", result
    script.write_text("#!/usr/bin/nothing\n")
    assert guest("/bin/zsh", "-c", script).returncode == 127


def test_children_of_programs_keep_to_the_rules(guest, library):
    program = f"{WORKLOADS}/lab-children"
    plain, inserted = guest(program), guest(program, DYLD_INSERT_LIBRARIES=library)
    assert [json.loads(line).get("injected") for line in plain.stdout.splitlines()] == [False, False, None]
    lines = [json.loads(line) for line in inserted.stdout.splitlines() if line.startswith("{")]
    assert [line.get("injected") for line in lines] == [True, True, None] and lines[-1] == {"role": "end", "status": 0}
    for way in ("--exec", "--spawn"):
        through_tool = guest(program, way, "/usr/bin/env", DYLD_INSERT_LIBRARIES=library)
        assert "DYLD_" not in through_tool.stdout.replace(library, ""), "SIP strips for the child too"
        dead = guest(program, way, "/usr/bin/env", sip=False, DYLD_INSERT_LIBRARIES=library)
        assert dead.returncode == 134 and "need 'arm64e'" in dead.stderr and '{"role":"end","signal":6}' in dead.stdout
        gone = guest(program, way, "/usr/bin/git")
        assert gone.returncode == 127 and "No such file or directory" in gone.stderr


def test_an_emptied_environment_stays_in_the_guest(guest, build):
    result = guest("/usr/bin/env", "-i", "/bin/zsh", "-f", "-c", f"{build('plain')}; git")
    assert "init plain\n" in result.stdout and result.returncode == 127


def test_mapped_files_show_in_the_kernels_list(guest, build, library, tmp_path):
    """lsof and vmmap of the lab read the kernel's list of mappings."""
    process = subprocess.Popen(["/usr/bin/env", "-i", f"LD_PRELOAD={LAB}/libguestexec.so", f"LAB_MACHRUN_DIR={LAB}",
                                "LAB_QEMU=/usr/bin/qemu-aarch64", f"LAB_ARCH={'arm64' if 'arm64' in str(build.folder) else 'x86_64'}",
                                "/usr/bin/env", f"DYLD_INSERT_LIBRARIES={library}", f"{WORKLOADS}/lab-ignore", "--serve"],
                               stdout=subprocess.PIPE, text=True)
    try:
        assert any("working" in line for line in process.stdout), "it ended before it worked"
        maps = open(f"/proc/{process.pid}/maps").read()
        assert library in maps and "lab-ignore" in maps
    finally:
        process.terminate()
    assert process.wait(10) == 0
