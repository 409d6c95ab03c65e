"""The shipped files themselves: what they contain, need and promise."""
import hashlib
import json
import re
import subprocess

import pytest

import machofile
from conftest import BUILD, LIBRARY, PROBE, ROOT

SELECTORS = {"initGPUFamilySupport", "supportsFamily:", "maxThreadgroupMemoryLength", "recommendedMaxWorkingSetSize"}
LIBRARY_IMPORTS = {
    "/usr/lib/libSystem.B.dylib": set(
        "_NSGetExecutablePath __cxa_atexit bzero close dladdr dlopen free getcwd getenv getpid link memcpy memset mkstemp "
        "proc_pidinfo rename sched_yield setenv strcmp strlen unlink unsetenv write".split()),
    "/usr/lib/libobjc.A.dylib": set(
        "class_addMethod class_copyMethodList class_getInstanceMethod class_getMethodImplementation class_getName "
        "method_getImplementation method_getName method_getTypeEncoding method_setImplementation objc_lookUpClass "
        "object_getClass sel_getName sel_registerName".split()),
}
FORBIDDEN = re.compile(r"clock|gettime|mach_time|mesh|featureprofile|feature_profile|gpufamilyset|raytrac", re.I)


@pytest.fixture(params=[LIBRARY, PROBE], ids=["library", "probe"])
def file(request):
    return request.param


@pytest.fixture(params=["x86_64", "arm64"])
def library(request):
    return machofile.slices(LIBRARY)[request.param]


def test_both_slices_for_macos_13(file):
    slices = machofile.slices(file)
    assert set(slices) == {"arm64", "x86_64"}
    for part in slices.values():
        assert part.minimum_os == (1, (13, 0))
        assert part.offset % 4096 == 0
        assert part.of(machofile.LC_UUID)


def test_install_name_and_kind(library):
    assert library.install_name == "@rpath/liblumelift-metal.dylib"
    assert library.filetype == 6  # MH_DYLIB


def test_signature_is_ad_hoc_and_every_page_hash_is_right(file):
    for part in machofile.slices(file).values():
        signature = part.signature
        assert signature.flags & 0x2, "CS_ADHOC"
        assert signature.identifier == file.name
        assert signature.slots == -(-signature.limit // signature.page)
        assert signature.bad_pages() == []


def test_a_flipped_byte_is_found_on_its_page(file):
    for part in machofile.slices(file).values():
        signature = part.signature
        for at in {0, 33, signature.page - 1, signature.page, signature.limit // 2, signature.limit - 1}:
            damaged = bytearray(part.data)
            damaged[at] ^= 1
            assert signature.bad_pages(bytes(damaged)) == [at // signature.page], at


def test_library_imports_only_what_is_listed(library):
    assert set(library.libraries) == set(LIBRARY_IMPORTS)
    for symbol, origin in library.imports:
        assert symbol.removeprefix("_") in LIBRARY_IMPORTS[origin], symbol


def test_probe_needs_only_the_two_system_libraries():
    for part in machofile.slices(PROBE).values():
        assert set(part.libraries) == set(LIBRARY_IMPORTS)


def test_library_has_no_objective_c_metadata_and_exports_nothing(library):
    assert not [name for _, name in library.sections if name.startswith("__objc")]
    assert library.exports_size <= 8  # an empty trie


def test_library_touches_no_time_mesh_or_feature_profile(library):
    texts = library.strings + [symbol for symbol, _ in library.imports]
    assert not [text for text in texts if FORBIDDEN.search(text)]
    assert not [symbol for symbol, _ in library.imports if "time" in symbol]
    assert SELECTORS <= set(library.strings)
    assert [text for text in library.strings if re.fullmatch(r"[a-z]\w+:[\w:]*", text)] == ["supportsFamily:"]


def test_nothing_of_the_build_machine_leaks(file):
    data = file.read_bytes()
    for word in (str(ROOT), str(BUILD), "/home/", "/tmp/", "/root/", "__FILE__"):
        assert word.encode() not in data, word


def test_checksums_and_provenance_describe_these_files():
    sums = dict(reversed(line.split("  ")) for line in (BUILD / "shim/SHA256SUMS").read_text().splitlines())
    provenance = json.loads((BUILD / "shim/provenance.json").read_text())
    assert {entry["name"] for entry in provenance["files"]} == set(sums) == {LIBRARY.name, PROBE.name}
    assert all(provenance["tools"].values())
    for entry in provenance["files"]:
        path = BUILD / "shim" / entry["name"]
        data = path.read_bytes()
        assert entry["sha256"] == sums[entry["name"]] == hashlib.sha256(data).hexdigest()
        assert entry["size"] == len(data)
        parts = machofile.slices(path)
        assert entry["slices"] == {name: hashlib.sha256(part.data).hexdigest() for name, part in parts.items()}


def test_two_clean_builds_are_identical(tmp_path):
    results = []
    for folder in (tmp_path / "a", tmp_path / "another" / "place"):
        subprocess.run(["cmake", "-S", ROOT, "-B", folder, "-DLUMELIFT_TESTS=OFF"], check=True, capture_output=True)
        subprocess.run(["cmake", "--build", folder, "--target", "lumelift_provenance", "-j2"], check=True, capture_output=True)
        results.append({name: (folder / "shim" / name).read_bytes()
                        for name in (LIBRARY.name, PROBE.name, "SHA256SUMS", "provenance.json")})
    assert results[0] == results[1]
    assert results[0][LIBRARY.name] == LIBRARY.read_bytes()
