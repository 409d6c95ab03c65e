#pragma once

#include <stddef.h>
#include <stdint.h>

namespace lumelift::shim {

/// Builds text in a buffer that the caller owns; never allocates and never writes past the end. Once something did not
/// fit, `complete()` is false for good and the text must not be used.
class Text {
 public:
  Text(char* buffer, size_t capacity) : buffer_(buffer), capacity_(capacity) {}
  template <size_t N>
  explicit Text(char (&buffer)[N]) : Text(buffer, N) {}

  Text& put(char c) {
    if (size_ < capacity_)
      buffer_[size_++] = c;
    else
      complete_ = false;
    return *this;
  }
  Text& put(const char* text) {
    while (*text != '\0') put(*text++);
    return *this;
  }
  Text& number(uint64_t value) {
    char digits[20];
    size_t count = 0;
    do digits[count++] = static_cast<char>('0' + value % 10);
    while ((value /= 10) != 0);
    while (count > 0) put(digits[--count]);
    return *this;
  }
  Text& signed_number(int64_t value) {
    if (value >= 0) return number(static_cast<uint64_t>(value));
    return put('-').number(uint64_t{0} - static_cast<uint64_t>(value));
  }
  /// With leading zeros up to `width` digits.
  Text& padded(uint64_t value, unsigned width) {
    uint64_t limit = 1;
    while (width-- > 1) limit *= 10;
    for (; limit > 1 && value < limit; limit /= 10) put('0');
    return number(value);
  }
  Text& boolean(bool value) { return put(value ? "true" : "false"); }

  /// A JSON string, or null for a null pointer. Bytes that are not UTF-8 become U+FFFD, so the result is valid JSON.
  Text& quoted(const char* text) {
    if (text == nullptr) return put("null");
    put('"');
    while (*text != '\0') text = escaped(text);
    return put('"');
  }
  /// `"name":`, with a comma in front unless it is the first member of its object.
  Text& key(const char* name) {
    if (size_ > 0 && buffer_[size_ - 1] != '{') put(',');
    return quoted(name).put(':');
  }
  /// A comma unless the array was just opened.
  Text& element() { return size_ > 0 && buffer_[size_ - 1] != '[' ? put(',') : *this; }

  /// Ends the text with a zero byte, which is not counted.
  const char* c_str() {
    if (size_ == capacity_) --size_, complete_ = false;
    buffer_[size_] = '\0';
    return buffer_;
  }
  [[nodiscard]] const char* data() const { return buffer_; }
  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] bool complete() const { return complete_; }

 private:
  const char* escaped(const char* text) {
    const auto c = static_cast<unsigned char>(*text);
    if (c == '"' || c == '\\') {
      put('\\').put(*text);
    } else if (c < 0x20 || c == 0x7f) {
      constexpr char kHex[] = "0123456789abcdef";
      put("\\u00").put(kHex[c >> 4]).put(kHex[c & 15]);
    } else if (c < 0x80) {
      put(*text);
    } else {
      const size_t size = utf8_length(text);
      if (size == 0) return put("\\ufffd"), text + 1;
      for (size_t i = 0; i < size; ++i) put(text[i]);
      return text + size;
    }
    return text + 1;
  }
  /// Bytes of the well-formed multi-byte character at `text`, or 0. Stops at a zero byte by itself.
  static size_t utf8_length(const char* text) {
    auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned char lead = at(0);
    const size_t size = lead >= 0xc2 && lead <= 0xdf ? 2 : (lead & 0xf0) == 0xe0 ? 3 : lead >= 0xf0 && lead <= 0xf4 ? 4 : 0;
    for (size_t i = 1; i < size; ++i)
      if ((at(i) & 0xc0) != 0x80) return 0;
    if (lead == 0xe0 && at(1) < 0xa0) return 0;  // overlong
    if (lead == 0xed && at(1) > 0x9f) return 0;  // surrogates
    if (lead == 0xf0 && at(1) < 0x90) return 0;  // overlong
    if (lead == 0xf4 && at(1) > 0x8f) return 0;  // beyond U+10FFFF
    return size;
  }

  char* buffer_;
  size_t capacity_;
  size_t size_ = 0;
  bool complete_ = true;
};

}  // namespace lumelift::shim
