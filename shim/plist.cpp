#include "shim/plist.hpp"

#include <charconv>
#include <optional>
#include <utility>

#include "host/sys/error.hpp"
#include "shim/bytes.hpp"

namespace lumelift {

namespace {

constexpr int max_depth = 64;

[[noreturn]] void unreadable(std::string message) {
  throw Error(ErrorKind::usage, "plist-unreadable", "property list: " + std::move(message));
}

std::string unescaped(std::string_view text) {
  static constexpr std::pair<std::string_view, char> names[] = {{"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}};
  std::string out;
  while (!text.empty()) {
    const auto amp = text.find('&');
    out += text.substr(0, amp);
    if (amp == text.npos) {
      break;
    }
    const auto end = text.find(';', amp);
    if (end == text.npos) {
      unreadable("an entity has no end");
    }
    const auto name = text.substr(amp + 1, end - amp - 1);
    text.remove_prefix(end + 1);
    bool known = false;
    for (const auto& [entity, character] : names) {
      if (name == entity) {
        out += character, known = true;
      }
    }
    // Numbered entities do not occur in the names and booleans that count here; keep them recognisable.
    if (!known) {
      out.append("&").append(name).append(";");
    }
  }
  return out;
}

struct Tag {
  std::string_view name;
  bool closing = false, empty = false;
};

/// Walks the elements of one XML document, forward only.
class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}

  /// The next tag; `before` gets the text in front of it. Comments, declarations and instructions are skipped.
  std::optional<Tag> next(std::string_view& before) {
    before = {};
    for (;;) {
      const auto open = rest_.find('<');
      if (open == rest_.npos) {
        return std::nullopt;
      }
      if (before.empty()) {
        before = rest_.substr(0, open);
      }
      rest_.remove_prefix(open + 1);
      if (rest_.starts_with("!--")) {
        skip_past("-->");
      } else if (rest_.starts_with("?")) {
        skip_past("?>");
      } else if (rest_.starts_with("!")) {
        skip_past(">");
      } else {
        break;
      }
    }
    const auto close = rest_.find('>');
    if (close == rest_.npos) {
      unreadable("a tag has no end");
    }
    auto inside = rest_.substr(0, close);
    rest_.remove_prefix(close + 1);
    Tag tag;
    if (inside.starts_with('/')) {
      tag.closing = true, inside.remove_prefix(1);
    }
    if (inside.ends_with('/')) {
      tag.empty = true, inside.remove_suffix(1);
    }
    tag.name = inside.substr(0, inside.find_first_of(" \t\r\n"));
    return tag;
  }

  Tag expect(std::string_view& before) {
    const auto tag = next(before);
    if (!tag) {
      unreadable("it ends inside an element");
    }
    return *tag;
  }

  /// Consumes everything up to the end of the element that `open` began.
  void skip(const Tag& open) {
    std::string_view text;
    for (int depth = open.empty ? 0 : 1; depth > 0;) {
      const Tag tag = expect(text);
      if (!tag.empty) {
        depth += tag.closing ? -1 : 1;
      }
      if (depth > max_depth) {
        unreadable("nested too deeply");
      }
    }
  }

  std::string text_of(const Tag& open) {
    if (open.empty) {
      return {};
    }
    std::string_view text;
    const Tag tag = expect(text);
    if (!tag.closing || tag.name != open.name) {
      unreadable("<" + std::string(open.name) + "> holds another element");
    }
    return unescaped(text);
  }

 private:
  void skip_past(std::string_view mark) {
    const auto at = rest_.find(mark);
    if (at == rest_.npos) {
      unreadable("it ends inside a comment or declaration");
    }
    rest_.remove_prefix(at + mark.size());
  }
  std::string_view rest_;
};

PropertyValue read_value(Reader& reader, const Tag& tag) {
  if (tag.name == "true" || tag.name == "false") {
    reader.skip(tag);
    return tag.name == "true";
  }
  if (tag.name == "string") {
    return reader.text_of(tag);
  }
  if (tag.name == "integer") {
    const std::string digits = reader.text_of(tag);
    std::int64_t value = 0;
    const auto end = digits.data() + digits.size();
    if (const auto [at, failure] = std::from_chars(digits.data(), end, value); failure == std::errc{} && at == end) {
      return value;
    }
    return OtherValue{};
  }
  reader.skip(tag);
  return OtherValue{};
}

}  // namespace

PropertyDict parse_plist_xml(std::string_view text) {
  if (text.starts_with("bplist")) {
    unreadable("it is in the binary form; only the XML form is read here");
  }
  Reader reader(text);
  std::string_view ignored;
  Tag tag = reader.expect(ignored);
  if (tag.name == "plist" && !tag.empty) {
    tag = reader.expect(ignored);
  }
  if (tag.name != "dict" || tag.closing) {
    unreadable("its outermost value is not a dictionary");
  }
  PropertyDict dict;
  if (tag.empty) {
    return dict;
  }
  for (;;) {
    tag = reader.expect(ignored);
    if (tag.closing && tag.name == "dict") {
      return dict;
    }
    if (tag.name != "key" || tag.closing) {
      unreadable("a key is missing");
    }
    std::string key = reader.text_of(tag);
    tag = reader.expect(ignored);
    if (tag.closing) {
      unreadable("the key '" + key + "' has no value");
    }
    dict.insert_or_assign(std::move(key), read_value(reader, tag));
  }
}

namespace {

using macho::Bytes;
using macho::damaged;

constexpr std::string_view der_name = "DER entitlements";

struct Element {
  std::uint8_t tag;
  Bytes content;
  std::uint64_t end;  ///< offset behind the element, in the window that it was read from
};

Element read_element(const Bytes& bytes, std::uint64_t offset) {
  const std::uint8_t tag = bytes.byte(offset++);
  std::uint64_t length = bytes.byte(offset++);
  if (length & 0x80) {
    const std::uint64_t digits = length & 0x7f;
    if (digits == 0 || digits > 4) {
      damaged("a length in the DER entitlements is not a DER length");
    }
    length = 0;
    for (std::uint64_t i = 0; i < digits; ++i) {
      length = length << 8 | bytes.byte(offset++);
    }
  }
  return {tag, bytes.part(offset, length, der_name), offset + length};
}

PropertyValue der_value(const Element& element) {
  const auto size = element.content.size();
  switch (element.tag) {
    case 0x01:
      if (size != 1) {
        damaged("a boolean in the DER entitlements is not one byte");
      }
      return element.content.byte(0) != 0;
    case 0x02: {
      if (size == 0 || size > 8) {
        return OtherValue{};
      }
      std::uint64_t value = element.content.byte(0) & 0x80 ? ~std::uint64_t{0} : 0;
      for (std::size_t i = 0; i < size; ++i) {
        value = value << 8 | element.content.byte(i);
      }
      return static_cast<std::int64_t>(value);
    }
    case 0x0c:
      return std::string(element.content.text(0, size));
    default:
      return OtherValue{};
  }
}

}  // namespace

PropertyDict parse_entitlements_der(std::span<const std::byte> data) {
  Element outer = read_element(Bytes(data, der_name), 0);
  // Since macOS 12 the dictionary (context tag 16) sits behind a version number in an application tag; older tools
  // wrote a plain SET.
  if (outer.tag == 0x70) {
    const Element version = read_element(outer.content, 0);
    if (version.tag != 0x02) {
      damaged("the DER entitlements do not begin with their version");
    }
    outer = read_element(outer.content, version.end);
  }
  if (outer.tag != 0xb0 && outer.tag != 0x31) {
    damaged("the DER entitlements are not a dictionary");
  }
  PropertyDict dict;
  for (std::uint64_t at = 0; at < outer.content.size();) {
    const Element pair = read_element(outer.content, at);
    const Element key = read_element(pair.content, 0);
    if (pair.tag != 0x30 || key.tag != 0x0c) {
      damaged("an entry of the DER entitlements is not a name and a value");
    }
    dict.insert_or_assign(std::string(key.content.text(0, key.content.size())), der_value(read_element(pair.content, key.end)));
    at = pair.end;
  }
  return dict;
}

}  // namespace lumelift
