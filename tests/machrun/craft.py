"""Builds small Mach-O files and changes single facts of them: signature flags, entitlements, architecture."""

import os
import struct
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
SDK = os.path.join(TESTS, "lab", "workloads", "sdk")
LLVM = "/usr/lib/llvm-22/bin"

CODE_SIGNATURE, SEGMENT_64 = 0x1D, 0x19
CODE_DIRECTORY, ENTITLEMENTS, DER = 0xFADE0C02, 0xFADE7171, 0xFADE7172
RESTRICT, LIBRARY_VALIDATION, RUNTIME = 0x800, 0x2000, 0x10000
ALLOW_ENVIRONMENT = "com.apple.security.cs.allow-dyld-environment-variables"
NO_VALIDATION = "com.apple.security.cs.disable-library-validation"


def compile_file(source, output, arch, *, defines=(), dylib=None, libraries=(), rpaths=(), fixups="-fixup_chains", weak=()):
    """Compiles and links one source of programs/ for one architecture. `dylib` is its install name."""
    thin = f"{output}.o"
    subprocess.run([f"{LLVM}/clang", "-target", f"{arch}-apple-macos13.0", "-x", "c", "-O2", "-nostdlibinc", "-fno-stack-protector",
                    f"-I{TESTS}", *[f"-D{name}" for name in defines], "-c", os.path.join(HERE, "programs", source), "-o", thin],
                   check=True)
    extra = ["-dylib", "-install_name", dylib] if dylib else []
    for path in rpaths:
        extra += ["-rpath", path]
    for path in weak:
        extra += ["-weak_library", path]
    subprocess.run([f"{LLVM}/ld64.lld", "-arch", arch, "-platform_version", "macos", "13.0", "14.0", "-adhoc_codesign", fixups, *extra,
                    "-syslibroot", SDK, thin, *libraries, "-lSystem", "-o", output], check=True)
    os.unlink(thin)
    return output


def universal(output, *thin):
    subprocess.run([f"{LLVM}/llvm-lipo", "-create", *thin, "-output", output], check=True)
    os.chmod(output, 0o755)
    return output


def commands(data):
    count = struct.unpack_from("<I", data, 16)[0]
    at = 32
    for _ in range(count):
        kind, size = struct.unpack_from("<II", data, at)
        yield kind, at
        at += size


def find_command(data, wanted):
    return next(at for kind, at in commands(data) if kind == wanted)


def set_flags(path, flags):
    """Adds flags to the code directory of a thin file."""
    data = bytearray(open(path, "rb").read())
    blob = struct.unpack_from("<I", data, find_command(data, CODE_SIGNATURE) + 8)[0]
    for index in range(struct.unpack_from(">I", data, blob + 8)[0]):
        part = blob + struct.unpack_from(">I", data, blob + 12 + 8 * index + 4)[0]
        if struct.unpack_from(">I", data, part)[0] == CODE_DIRECTORY:
            struct.pack_into(">I", data, part + 12, struct.unpack_from(">I", data, part + 12)[0] | flags)
    replace(path, data)


def add_entitlements(path, keys, der=False):
    """Rebuilds the signature of a thin file with one more blob, as XML text or as DER."""
    data = bytearray(open(path, "rb").read())
    command = find_command(data, CODE_SIGNATURE)
    offset, size = struct.unpack_from("<II", data, command + 8)
    old = bytes(data[offset:offset + size])
    parts = []
    for index in range(struct.unpack_from(">I", old, 8)[0]):
        kind, at = struct.unpack_from(">II", old, 12 + 8 * index)
        parts.append((kind, old[at:at + struct.unpack_from(">I", old, at + 4)[0]]))
    if der:
        body = b"".join(b"\x30" + bytes([len(k) + 5]) + b"\x0c" + bytes([len(k)]) + k.encode() + b"\x01\x01\xff" for k in keys)
        parts.append((7, struct.pack(">II", DER, 8 + len(body)) + body))
    else:
        text = "<plist version=\"1.0\"><dict>" + "".join(f"<key>{k}</key>\n <true/>" for k in keys) + "</dict></plist>"
        parts.append((5, struct.pack(">II", ENTITLEMENTS, 8 + len(text)) + text.encode()))
    head, at = b"", 12 + 8 * len(parts)
    for kind, body in parts:
        head += struct.pack(">II", kind, at)
        at += len(body)
    blob = struct.pack(">III", 0xFADE0CC0, at, len(parts)) + head + b"".join(body for _, body in parts)
    struct.pack_into("<I", data, command + 12, len(blob))
    for kind, where in commands(data):
        if kind == SEGMENT_64 and data[where + 8:where + 18] == b"__LINKEDIT":
            fileoff = struct.unpack_from("<Q", data, where + 40)[0]
            length = offset + len(blob) - fileoff
            struct.pack_into("<Q", data, where + 48, length)
            struct.pack_into("<Q", data, where + 32, (length + 16383) & ~16383)
    replace(path, data[:offset] + blob)


def set_subtype(path, subtype):
    """Relabels a thin file: subtype 2 makes arm64 claim to be arm64e."""
    data = bytearray(open(path, "rb").read())
    struct.pack_into("<I", data, 8, subtype)
    replace(path, data)


def replace(path, data):
    mode = os.stat(path).st_mode
    os.unlink(path)
    with open(path, "wb") as file:
        file.write(data)
    os.chmod(path, mode & 0o7777)
