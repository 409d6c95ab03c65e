#include "host/property_list.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>

#include "host/sys/error.hpp"
#include "host/sys/hash.hpp"

namespace lumelift {
namespace {

constexpr int deepest = 64;

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

void append_utf8(std::string& text, unsigned long code) {
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xc0 | (code >> 6));
    text += static_cast<char>(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    text += static_cast<char>(0xe0 | (code >> 12));
    text += static_cast<char>(0x80 | ((code >> 6) & 0x3f));
    text += static_cast<char>(0x80 | (code & 0x3f));
  } else {
    text += static_cast<char>(0xf0 | (code >> 18));
    text += static_cast<char>(0x80 | ((code >> 12) & 0x3f));
    text += static_cast<char>(0x80 | ((code >> 6) & 0x3f));
    text += static_cast<char>(0x80 | (code & 0x3f));
  }
}

/// What one tag says: its name, and whether it opens, closes or does both.
struct Tag {
  std::string_view name;
  bool closes = false, empty = false;
};

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  std::map<std::string, PrefValue> document() {
    skip_prologue();
    expect_open("plist");
    skip_blanks();
    const Tag top = tag();
    if (top.closes || top.name != "dict") fail("a dictionary");
    std::map<std::string, PrefValue> values;
    if (!top.empty) {
      each_entry([&](std::string key) {
        PrefValue found = value(tag(), 1);
        if (!values.emplace(std::move(key), std::move(found)).second) fail("a key only once");
      });
    }
    expect_close("plist");
    skip_blanks();
    if (at_ != text_.size()) fail("the end");
    return values;
  }

 private:
  [[noreturn]] void fail(std::string_view expected) const {
    throw Error(ErrorKind::failed, "preference-unreadable",
                fmt::format("not a property list: expected {} at byte {} of {}", expected, at_, text_.size()));
  }

  [[nodiscard]] bool starts_with(std::string_view part) const { return text_.substr(at_).starts_with(part); }

  void skip_past(std::string_view end) {
    const auto found = text_.find(end, at_);
    if (found == std::string_view::npos) fail(fmt::format("\"{}\"", end));
    at_ = found + end.size();
  }

  void skip_blanks() {
    for (;;) {
      while (at_ < text_.size() && is_blank(text_[at_])) ++at_;
      if (!starts_with("<!--")) return;
      skip_past("-->");
    }
  }

  void skip_prologue() {
    if (starts_with("\xef\xbb\xbf")) at_ += 3;
    skip_blanks();
    if (starts_with("<?xml")) skip_past("?>");
    skip_blanks();
    if (starts_with("<!DOCTYPE")) skip_past(">");
    skip_blanks();
  }

  Tag tag() {
    if (at_ >= text_.size() || text_[at_] != '<') fail("a tag");
    const auto end = text_.find('>', at_);
    if (end == std::string_view::npos) fail("\">\"");
    std::string_view inside = text_.substr(at_ + 1, end - at_ - 1);
    Tag tag;
    if (inside.starts_with('/')) {
      tag.closes = true;
      inside.remove_prefix(1);
    } else if (inside.ends_with('/')) {
      tag.empty = true;
      inside.remove_suffix(1);
    }
    tag.name = inside.substr(0, inside.find_first_of(" \t\r\n"));
    at_ = end + 1;
    return tag;
  }

  void expect_open(std::string_view name) {
    skip_blanks();
    const Tag found = tag();
    if (found.closes || found.empty || found.name != name) fail(fmt::format("<{}>", name));
  }

  void expect_close(std::string_view name) {
    skip_blanks();
    const Tag found = tag();
    if (!found.closes || found.name != name) fail(fmt::format("</{}>", name));
  }

  /// Text up to the closing tag, entities resolved. Blanks belong to it.
  std::string content(std::string_view name) {
    std::string result;
    for (;;) {
      if (at_ >= text_.size()) fail(fmt::format("</{}>", name));
      if (starts_with("<![CDATA[")) {
        at_ += 9;
        const auto start = at_;
        skip_past("]]>");
        result += text_.substr(start, at_ - 3 - start);
      } else if (text_[at_] == '<') {
        expect_close(name);
        return result;
      } else if (text_[at_] == '&') {
        entity(result);
      } else {
        result += text_[at_++];
      }
    }
  }

  void entity(std::string& result) {
    static constexpr std::array<std::pair<std::string_view, char>, 5> named{
        {{"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}}};
    const auto end = text_.find(';', at_);
    if (end == std::string_view::npos || end - at_ > 10) fail("an entity");
    std::string_view name = text_.substr(at_ + 1, end - at_ - 1);
    for (const auto& [known, character] : named) {
      if (name == known) {
        result += character;
        at_ = end + 1;
        return;
      }
    }
    const bool hex = name.starts_with("#x") || name.starts_with("#X");
    if (!name.starts_with('#')) fail("a known entity");
    name.remove_prefix(hex ? 2 : 1);
    unsigned long code = 0;
    const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), code, hex ? 16 : 10);
    const bool whole = error == std::errc{} && stop == name.data() + name.size();
    if (!whole || code == 0 || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) fail("a character's number");
    append_utf8(result, code);
    at_ = end + 1;
  }

  template <typename Entry>
  void each_entry(Entry entry) {
    for (;;) {
      skip_blanks();
      const Tag next = tag();
      if (next.closes && next.name == "dict") return;
      if (next.closes || next.name != "key") fail("<key>");
      const std::string key = next.empty ? "" : content("key");
      skip_blanks();
      entry(std::move(key));
    }
  }

  PrefValue value(const Tag& open, int depth) {
    if (open.closes || depth > deepest) fail("a value");
    if (open.name == "true" || open.name == "false") {
      if (!open.empty) expect_close(open.name);
      return open.name == "true";
    }
    if (open.name == "array" || open.name == "dict") return container(open, depth);
    std::string text = open.empty ? "" : content(open.name);
    if (open.name == "string") return text;
    if (open.name == "real") return PrefReal{std::move(text)};
    if (open.name == "integer") return integer(std::move(text));
    if (open.name == "data" || open.name == "date") return PrefContainer{std::string(open.name), sys::sha256(text)};
    fail("a known type");
  }

  static PrefValue integer(std::string text) {
    std::int64_t number = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    if (error == std::errc{} && stop == end) return number;
    return PrefContainer{"integer", sys::sha256(text)};
  }

  PrefValue container(const Tag& open, int depth) {
    const auto start = at_;
    if (!open.empty && open.name == "dict") {
      each_entry([&](const std::string&) { (void)value(tag(), depth + 1); });
    } else if (!open.empty) {
      for (;;) {
        skip_blanks();
        const Tag next = tag();
        if (next.closes && next.name == "array") break;
        (void)value(next, depth + 1);
      }
    }
    return PrefContainer{open.name == "dict" ? "dictionary" : "array", sys::sha256(text_.substr(start, at_ - start))};
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

std::map<std::string, PrefValue> read_property_list(std::string_view text) {
  return Reader(text).document();
}

}  // namespace lumelift
