#pragma once

// Makes Mach-O files in memory, so that every class of file can be had without an Apple tool.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "host/sys/hash.hpp"
#include "shim/macho.hpp"

namespace lumelift::test {

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

inline Digest256 digest(std::span<const std::byte> bytes) {
  const std::string hex = sys::sha256({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  Digest256 out;
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<std::byte>(std::stoi(hex.substr(i * 2, 2), nullptr, 16));
  }
  return out;
}

class Out {
 public:
  template <typename T>
  Out& little(T value) {
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      text_ += static_cast<char>(value >> (8 * i));
    }
    return *this;
  }
  template <typename T>
  Out& big(T value) {
    for (std::size_t i = sizeof(T); i-- > 0;) {
      text_ += static_cast<char>(value >> (8 * i));
    }
    return *this;
  }
  Out& words(std::initializer_list<std::uint32_t> values) {
    for (const auto value : values) {
      little(value);
    }
    return *this;
  }
  Out& big_words(std::initializer_list<std::uint32_t> values) {
    for (const auto value : values) {
      big(value);
    }
    return *this;
  }
  Out& raw(std::string_view text) { return text_ += text, *this; }
  Out& padded(std::string_view text, std::size_t size) { return text_ += text, text_.append(size - text.size(), '\0'), *this; }
  Out& align(std::size_t size) { return text_.append((size - text_.size() % size) % size, '\0'), *this; }
  [[nodiscard]] std::size_t size() const { return text_.size(); }
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

using Grants = std::vector<std::pair<std::string, bool>>;

inline std::string entitlements_xml(const Grants& grants) {
  std::string out =
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" "
      "\"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n<plist version=\"1.0\">\n<dict>\n";
  for (const auto& [name, value] : grants) {
    out += "  <key>" + name + "</key><" + (value ? "true" : "false") + "/>\n";
  }
  return out + "</dict>\n</plist>\n";
}

inline std::string der(std::uint8_t tag, std::string_view content) {
  Out out;
  out.big(tag);
  if (content.size() < 0x80) {
    out.big(static_cast<std::uint8_t>(content.size()));
  } else {
    out.big(static_cast<std::uint8_t>(0x82)).big(static_cast<std::uint16_t>(content.size()));
  }
  return out.raw(content).take();
}

inline std::string entitlements_der(const Grants& grants) {
  std::string entries;
  for (const auto& [name, value] : grants) {
    entries += der(0x30, der(0x0c, name) + der(0x01, value ? "\xff" : std::string_view("\0", 1)));
  }
  return der(0x70, der(0x02, "\x01") + der(0xb0, entries));
}

struct SignSpec {
  std::uint32_t flags = 0x2;  // ad hoc
  std::string identifier = "io.lumelift.specimen";
  std::string team;
  std::optional<std::string> xml, der;
  std::uint8_t hash_type = 2, page_bits = 12;
  bool certificate = false;
};

struct SliceSpec {
  std::uint32_t cpu_type = 0x0100000c, cpu_subtype = 0, file_type = 2;
  std::uint32_t platform = 1, minimum = 13u << 16;
  std::string install_name;
  std::vector<LinkedLibrary> libraries = {{"/usr/lib/libSystem.B.dylib", false}};
  std::vector<std::string> rpaths;
  bool encrypted = false, restrict_section = false, chained = true;
  std::vector<std::string> imports = {"_printf"}, exports = {"_main"};
  std::size_t text_size = 9000;
  std::optional<SignSpec> sign = SignSpec{};
};

inline SliceSpec for_cpu(Cpu cpu, SliceSpec spec = {}) {
  switch (cpu) {
    case Cpu::arm64:
      break;
    case Cpu::arm64e:
      spec.cpu_subtype = 0x80000002;
      break;
    case Cpu::x86_64:
      spec.cpu_type = 0x01000007, spec.cpu_subtype = 3;
      break;
    case Cpu::x86_64h:
      spec.cpu_type = 0x01000007, spec.cpu_subtype = 8;
      break;
    case Cpu::i386:
      spec.cpu_type = 7, spec.cpu_subtype = 3;
      break;
    default:
      spec.cpu_type = 99;
      break;
  }
  return spec;
}

/// The super blob for `code`: everything of the slice that comes before it.
inline std::string signature_of(std::string_view code, const SignSpec& spec) {
  const std::size_t page = spec.page_bits == 0 ? code.size() : std::size_t{1} << spec.page_bits;
  const std::size_t hash_size = spec.hash_type == 2 ? 32 : spec.hash_type == 4 ? 48 : 20;
  const auto hashed = [&](std::string_view bytes) {
    const Digest256 whole = digest(bytes_of(bytes));
    std::string out(reinterpret_cast<const char*>(whole.data()), whole.size());
    out.resize(hash_size);
    return out;
  };
  const auto blob = [](std::uint32_t magic, std::string_view content) {
    return Out().big(magic).big(static_cast<std::uint32_t>(content.size() + 8)).raw(content).take();
  };
  std::vector<std::pair<std::uint32_t, std::string>> blobs = {{2, blob(0xfade0c01, std::string(4, '\0'))}};
  if (spec.xml) {
    blobs.emplace_back(5, blob(0xfade7171, *spec.xml));
  }
  if (spec.der) {
    blobs.emplace_back(7, blob(0xfade7172, *spec.der));
  }
  if (spec.certificate) {
    blobs.emplace_back(0x10000, blob(0xfade0b01, "certificate"));
  }

  constexpr std::uint32_t special = 7, fixed = 88;
  std::string hashes;
  for (std::uint32_t slot = special; slot >= 1; --slot) {
    std::string hash(hash_size, '\0');
    for (const auto& [of, content] : blobs) {
      if (of == slot) {
        hash = hashed(content);
      }
    }
    hashes += hash;
  }
  std::uint32_t pages = 0;
  for (std::size_t at = 0; at < code.size(); at += page, ++pages) {
    hashes += hashed(code.substr(at, page));
  }
  std::string names = spec.identifier + '\0';
  const std::uint32_t team = spec.team.empty() ? 0 : fixed + static_cast<std::uint32_t>(names.size());
  if (team != 0) {
    names += spec.team + '\0';
  }
  const auto first_hash = static_cast<std::uint32_t>(fixed + names.size() + special * hash_size);
  const auto length = static_cast<std::uint32_t>(fixed + names.size() + hashes.size());
  Out directory;
  directory.big_words(
      {0xfade0c02, length, 0x20400, spec.flags, first_hash, fixed, special, pages, static_cast<std::uint32_t>(code.size())});
  directory.big(static_cast<std::uint8_t>(hash_size)).big(spec.hash_type).big(std::uint8_t{0}).big(spec.page_bits);
  directory.big_words({0, 0, team, 0, 0, 0, 0, 0, 0, 0, 0, 0}).raw(names).raw(hashes);
  blobs.insert(blobs.begin(), {0, directory.take()});

  Out index, body;
  const std::size_t start = 12 + blobs.size() * 8;
  for (const auto& [slot, content] : blobs) {
    index.big(slot).big(static_cast<std::uint32_t>(start + body.size()));
    body.raw(content);
  }
  const auto count = static_cast<std::uint32_t>(blobs.size());
  return Out().big_words({0xfade0cc0, static_cast<std::uint32_t>(start + body.size()), count}).raw(index.take()).raw(body.take()).take();
}

inline std::string chained_fixups(const std::vector<std::string>& imports) {
  Out names, table;
  names.raw(std::string(1, '\0'));
  for (const auto& name : imports) {
    table.little(static_cast<std::uint32_t>(names.size() << 9 | 1));
    names.raw(name + '\0');
  }
  const auto count = static_cast<std::uint32_t>(imports.size());
  return Out().words({0, 28, 28, 28 + count * 4, count, 1, 0}).raw(table.take()).raw(names.take()).align(8).take();
}

class SliceBuilder {
 public:
  explicit SliceBuilder(const SliceSpec& spec) : spec_(spec) {
    Out symbols, names;
    names.raw(std::string(1, '\0'));
    const auto add = [&](const std::string& name, std::uint8_t type) {
      symbols.little(static_cast<std::uint32_t>(names.size())).little(type).little(std::uint8_t{1});
      symbols.little(std::uint16_t{0}).little(std::uint64_t{0});
      names.raw(name + '\0');
      ++symbol_count_;
    };
    for (const auto& name : spec.exports) {
      add(name, 0x0f);
    }
    for (const auto& name : spec.imports) {
      add(name, 0x01);
    }
    symbols_ = symbols.take(), names_ = names.align(8).take();
    if (spec.chained) {
      fixups_ = chained_fixups(spec.imports);
    }
  }

  std::string build() {
    // The size of the commands does not depend on the offsets in them, so a first pass with zeroes measures it.
    text_at_ = Out().raw(std::string(32 + commands().size(), '\0')).align(4096).size();
    linkedit_at_ = Out().raw(std::string(text_at_ + spec_.text_size, '\0')).align(4096).size();
    const std::size_t tables = fixups_.size() + symbols_.size() + names_.size();
    signature_at_ = Out().raw(std::string(linkedit_at_ + tables, '\0')).align(16).size();
    if (spec_.sign) {
      signature_size_ = signature_of(std::string(signature_at_, 'x'), *spec_.sign).size();
    }
    std::string code = contents();
    return spec_.sign ? code + signature_of(code, *spec_.sign) : code;
  }

 private:
  std::string contents() {
    const std::string commands_text = commands();
    Out out;
    out.words({0xfeedfacf, spec_.cpu_type, spec_.cpu_subtype, spec_.file_type, count_, static_cast<std::uint32_t>(commands_text.size()),
               0x85, 0});
    out.raw(commands_text).align(4096);
    std::uint32_t noise = 12345;
    for (std::size_t i = 0; i < spec_.text_size; ++i) {
      noise = noise * 1664525 + 1013904223;
      out.little(static_cast<std::uint8_t>(noise >> 24));
    }
    return out.align(4096).raw(fixups_).raw(symbols_).raw(names_).align(16).take();
  }

  std::string commands() {
    Out out;
    count_ = 0;
    const auto add = [&](std::uint32_t kind, std::string body) {
      Out rest;
      rest.raw(body).align(8);
      out.words({kind, static_cast<std::uint32_t>(rest.size() + 8)}).raw(rest.take());
      ++count_;
    };
    const auto named = [](std::initializer_list<std::uint32_t> fields, std::string_view text) {
      return Out().words(fields).raw(text).raw(std::string(1, '\0')).take();
    };
    add(0x19, segment("__PAGEZERO", 0, 0, 0));
    add(0x19, segment("__TEXT", 0, linkedit_at_, spec_.restrict_section ? 2 : 1));
    add(0x19, segment("__LINKEDIT", linkedit_at_, signature_at_ + signature_size_ - linkedit_at_, 0));
    add(0x32, Out().words({spec_.platform, spec_.minimum, 0, 0}).take());
    add(0x1b, "0123456789abcdef");
    if (spec_.file_type == 2) {
      add(0x80000028, Out().little(std::uint64_t{text_at_}).little(std::uint64_t{0}).take());
    }
    if (!spec_.install_name.empty()) {
      add(0xd, named({24, 2, 0, 0}, spec_.install_name));
    }
    for (const auto& library : spec_.libraries) {
      add(library.weak ? 0x80000018 : 0xc, named({24, 2, 0, 0}, library.path));
    }
    for (const auto& rpath : spec_.rpaths) {
      add(0x8000001c, named({12}, rpath));
    }
    if (spec_.encrypted) {
      add(0x2c, Out().words({4096, 4096, 1, 0}).take());
    }
    const auto fixups_size = static_cast<std::uint32_t>(fixups_.size());
    const auto at = static_cast<std::uint32_t>(linkedit_at_);
    if (spec_.chained) {
      add(0x80000034, Out().words({at, fixups_size}).take());
    }
    const auto symbols_at = at + fixups_size;
    const auto names_at = static_cast<std::uint32_t>(symbols_at + symbols_.size());
    add(0x2, Out().words({symbols_at, symbol_count_, names_at, static_cast<std::uint32_t>(names_.size())}).take());
    if (spec_.sign) {
      add(0x1d, Out().words({static_cast<std::uint32_t>(signature_at_), static_cast<std::uint32_t>(signature_size_)}).take());
    }
    return out.take();
  }

  std::string segment(std::string_view name, std::size_t offset, std::size_t size, std::uint32_t sections) const {
    Out out;
    out.padded(name, 16);
    for (const std::size_t value : {offset, size, offset, size}) {
      out.little(static_cast<std::uint64_t>(value));
    }
    out.words({5, 5, sections, 0});
    for (std::uint32_t i = 0; i < sections; ++i) {
      out.padded(i == 0 ? "__text" : "__restrict", 16).padded(i == 0 ? "__TEXT" : "__RESTRICT", 16);
      out.raw(std::string(48, '\0'));
    }
    return out.take();
  }

  SliceSpec spec_;
  std::string fixups_, symbols_, names_;
  std::uint32_t symbol_count_ = 0, count_ = 0;
  std::size_t text_at_ = 0, linkedit_at_ = 0, signature_at_ = 0, signature_size_ = 0;
};

inline std::string build(const SliceSpec& spec = {}) {
  return SliceBuilder(spec).build();
}

/// One universal file with a 32-bit or (wide) a 64-bit header.
inline std::string build_universal(const std::vector<SliceSpec>& specs, bool wide = false) {
  std::vector<std::string> slices;
  for (const auto& spec : specs) {
    slices.push_back(build(spec));
  }
  Out header, body;
  header.big_words({wide ? 0xcafebabf : 0xcafebabe, static_cast<std::uint32_t>(specs.size())});
  constexpr std::size_t first = 16384;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    body.align(16384);
    header.big_words({specs[i].cpu_type, specs[i].cpu_subtype});
    if (wide) {
      header.big(std::uint64_t{first + body.size()}).big(std::uint64_t{slices[i].size()}).big_words({14, 0});
    } else {
      header.big_words({static_cast<std::uint32_t>(first + body.size()), static_cast<std::uint32_t>(slices[i].size()), 14});
    }
    body.raw(slices[i]);
  }
  return header.align(first).raw(body.take()).take();
}

}  // namespace lumelift::test
