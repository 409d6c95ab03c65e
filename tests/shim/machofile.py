"""Reads of Mach-O files what the tests of the shipped files need, from the format's documentation alone."""
import hashlib
import re
import struct
from dataclasses import dataclass, field

FAT_MAGIC = 0xCAFEBABE
MACHO_64 = 0xFEEDFACF
NAMES = {0x01000007: "x86_64", 0x0100000C: "arm64"}

LC_SEGMENT_64, LC_SYMTAB, LC_ID_DYLIB, LC_LOAD_DYLIB = 0x19, 0x2, 0xD, 0xC
LC_CODE_SIGNATURE, LC_BUILD_VERSION, LC_UUID = 0x1D, 0x32, 0x1B
LC_CHAINED_FIXUPS, LC_EXPORTS_TRIE = 0x80000034, 0x80000033


@dataclass
class Slice:
    name: str
    offset: int  # of the slice in the file
    data: bytes
    filetype: int = 0
    flags: int = 0
    commands: list = field(default_factory=list)  # (command, its bytes)

    def of(self, wanted):
        return [body for command, body in self.commands if command == wanted]

    def text_of(self, body, at):
        start = struct.unpack_from("<I", body, at)[0]
        return body[start:].split(b"\0")[0].decode()

    @property
    def install_name(self):
        return self.text_of(self.of(LC_ID_DYLIB)[0], 8)

    @property
    def libraries(self):
        return [self.text_of(body, 8) for body in self.of(LC_LOAD_DYLIB)]

    @property
    def minimum_os(self):
        platform, minimum = struct.unpack_from("<II", self.of(LC_BUILD_VERSION)[0], 8)
        return platform, (minimum >> 16, minimum >> 8 & 255)

    @property
    def sections(self):
        """(segment, section) -> bytes"""
        found = {}
        for body in self.of(LC_SEGMENT_64):
            count = struct.unpack_from("<I", body, 64)[0]
            for i in range(count):
                section, segment, _, size, offset = struct.unpack_from("<16s16sQQI", body, 72 + 80 * i)
                key = (segment.rstrip(b"\0").decode(), section.rstrip(b"\0").decode())
                found[key] = self.data[offset:offset + size] if offset else b""
        return found

    @property
    def strings(self):
        """Texts in the read-only data; short runs are chance."""
        data = b"\0".join(body for (segment, name), body in self.sections.items() if segment == "__TEXT" and name != "__text")
        return [run.decode() for run in re.findall(rb"[\x20-\x7e]{3,}(?=\0)", data + b"\0")]

    @property
    def imports(self):
        """[(symbol, library)] of the chained fixups."""
        at, size = struct.unpack_from("<II", self.of(LC_CHAINED_FIXUPS)[0], 8)
        blob = self.data[at:at + size]
        _, _, imports, symbols, count, form, _ = struct.unpack_from("<7I", blob)
        assert form == 1, "DYLD_CHAINED_IMPORT expected"
        found = []
        for i in range(count):
            value = struct.unpack_from("<I", blob, imports + 4 * i)[0]
            name = blob[symbols + (value >> 9):].split(b"\0")[0].decode()
            found.append((name, self.libraries[(value & 255) - 1]))
        return found

    @property
    def exports_size(self):
        return sum(struct.unpack_from("<II", body, 8)[1] for body in self.of(LC_EXPORTS_TRIE))

    @property
    def signature(self):
        at, size = struct.unpack_from("<II", self.of(LC_CODE_SIGNATURE)[0], 8)
        blob = self.data[at:at + size]
        magic, _, count = struct.unpack_from(">III", blob)
        assert magic == 0xFADE0CC0
        for i in range(count):
            kind, offset = struct.unpack_from(">II", blob, 12 + 8 * i)
            if kind == 0:
                return CodeDirectory(blob[offset:], self.data)
        raise AssertionError("no code directory")


class CodeDirectory:
    def __init__(self, blob, code):
        (magic, _, _, self.flags, self.hashes, name, _, self.slots, self.limit, self.hash_size, self.hash_type, _,
         page) = struct.unpack_from(">9IBBBB", blob)
        assert magic == 0xFADE0C02 and self.hash_type == 2 and self.hash_size == 32
        self.page = 1 << page
        self.identifier = blob[name:].split(b"\0")[0].decode()
        self.blob, self.code = blob, code

    def bad_pages(self, code=None):
        code = self.code if code is None else code
        bad = []
        for i in range(self.slots):
            stored = self.blob[self.hashes + 32 * i:self.hashes + 32 * (i + 1)]
            if hashlib.sha256(code[i * self.page:min((i + 1) * self.page, self.limit)]).digest() != stored:
                bad.append(i)
        return bad


def slices(path):
    data = path.read_bytes()
    magic, count = struct.unpack_from(">II", data)
    assert magic == FAT_MAGIC, "not a universal file"
    found = {}
    for i in range(count):
        cpu, _, offset, size, _ = struct.unpack_from(">5I", data, 8 + 20 * i)
        found[NAMES[cpu]] = parse(NAMES[cpu], offset, data[offset:offset + size])
    return found


def parse(name, offset, data):
    magic, _, _, filetype, count, _, flags, _ = struct.unpack_from("<8I", data)
    assert magic == MACHO_64
    result = Slice(name, offset, data, filetype, flags)
    at = 32
    for _ in range(count):
        command, size = struct.unpack_from("<II", data, at)
        result.commands.append((command, data[at:at + size]))
        at += size
    return result
