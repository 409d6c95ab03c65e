#pragma once
// The parts of the Mach-O file format that the rehearsal lab reads. Names follow Apple's documentation.

#include <cstdint>

namespace lab::macho {

constexpr uint32_t kMagic64 = 0xfeedfacf;
constexpr uint32_t kMagicFat = 0xcafebabe;    // stored big-endian
constexpr uint32_t kMagicFat64 = 0xcafebabf;  // stored big-endian
constexpr uint32_t kCpuX86_64 = 0x01000007;
constexpr uint32_t kCpuArm64 = 0x0100000c;
constexpr uint32_t kFileExecute = 2, kFileDylib = 6, kFileBundle = 8;

constexpr uint32_t kSegment64 = 0x19, kSymtab = 0x2, kLoadDylib = 0xc, kIdDylib = 0xd, kUuid = 0x1b;
constexpr uint32_t kCodeSignature = 0x1d, kDyldInfo = 0x22, kLoadWeakDylib = 0x80000018, kRpath = 0x8000001c;
constexpr uint32_t kReexportDylib = 0x8000001f, kDyldInfoOnly = 0x80000022, kUpwardDylib = 0x80000023;
constexpr uint32_t kMain = 0x80000028, kExportsTrie = 0x80000033, kChainedFixups = 0x80000034;
constexpr uint32_t kEncryptionInfo64 = 0x2c;

constexpr uint32_t kSectionTypeMask = 0xff, kModInitPointers = 0x9, kInitOffsets = 0x16, kThreadLocalRegular = 0x11;
constexpr uint32_t kThreadLocalZeroFill = 0x12, kThreadLocalVariables = 0x13;

struct Header {
  uint32_t magic, cputype, cpusubtype, filetype, ncmds, sizeofcmds, flags, reserved;
};
struct LoadCommand {
  uint32_t cmd, cmdsize;
};
struct Segment64 {
  uint32_t cmd, cmdsize;
  char segname[16];
  uint64_t vmaddr, vmsize, fileoff, filesize;
  uint32_t maxprot, initprot, nsects, flags;
};
struct Section64 {
  char sectname[16], segname[16];
  uint64_t addr, size;
  uint32_t offset, align, reloff, nreloc, flags, reserved1, reserved2, reserved3;
};
struct DylibCommand {
  uint32_t cmd, cmdsize, name_offset, timestamp, current_version, compatibility_version;
};
struct RpathCommand {
  uint32_t cmd, cmdsize, path_offset;
};
struct LinkeditData {
  uint32_t cmd, cmdsize, dataoff, datasize;
};
struct DyldInfo {
  uint32_t cmd, cmdsize, rebase_off, rebase_size, bind_off, bind_size, weak_bind_off, weak_bind_size, lazy_bind_off, lazy_bind_size,
      export_off, export_size;
};
struct EntryPoint {
  uint32_t cmd, cmdsize;
  uint64_t entryoff, stacksize;
};
struct UuidCommand {
  uint32_t cmd, cmdsize;
  uint8_t uuid[16];
};
struct EncryptionInfo64 {
  uint32_t cmd, cmdsize, cryptoff, cryptsize, cryptid, pad;
};

struct ChainedHeader {
  uint32_t version, starts_offset, imports_offset, symbols_offset, imports_count, imports_format, symbols_format;
};
struct ChainedStarts {
  uint32_t size;
  uint16_t page_size, pointer_format;
  uint64_t segment_offset;
  uint32_t max_valid_pointer;
  uint16_t page_count, page_start[1];
};
constexpr uint16_t kPointer64 = 2, kPointer64Offset = 6, kPageStartNone = 0xffff;

}  // namespace lab::macho
