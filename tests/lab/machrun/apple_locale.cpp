// The C locale, which is the only one here: functions that take a locale, wide characters, and the table of character
// classes.
#include <cctype>
#include <clocale>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <cwchar>
#include <cwctype>

#include "machrun/symbol_tables.hpp"
#include "machrun/variadic.hpp"

namespace lab {
namespace {

locale_t c_locale() {
  static const locale_t locale = ::newlocale(LC_ALL_MASK, "C", nullptr);
  return locale;
}
/// What loaded code passes on was made here; null is the current locale there.
locale_t own(locale_t locale) {
  return locale ? locale : c_locale();
}

locale_t apple_newlocale(int, const char*, locale_t) {
  return c_locale();
}
void apple_freelocale(locale_t) {}
locale_t apple_uselocale(locale_t) {
  return c_locale();
}
char* apple_setlocale(int, const char*) {
  return const_cast<char*>("C");
}
lconv* apple_localeconv(locale_t) {
  return std::localeconv();
}
size_t apple_mb_cur_max(locale_t) {
  return 1;
}

double apple_strtod(const char* text, char** end, locale_t locale) {
  return ::strtod_l(text, end, own(locale));
}
float apple_strtof(const char* text, char** end, locale_t locale) {
  return ::strtof_l(text, end, own(locale));
}
#if defined(__aarch64__)
using AppleLongDouble = double;  // the same type there
#else
using AppleLongDouble = long double;
#endif
AppleLongDouble apple_strtold(const char* text, char** end, locale_t locale) {
  return static_cast<AppleLongDouble>(::strtold_l(text, end, own(locale)));
}
AppleLongDouble apple_plain_strtold(const char* text, char** end) {
  return apple_strtold(text, end, nullptr);
}
long long apple_strtoll(const char* text, char** end, int base, locale_t locale) {
  return ::strtoll_l(text, end, base, own(locale));
}
unsigned long long apple_strtoull(const char* text, char** end, int base, locale_t locale) {
  return ::strtoull_l(text, end, base, own(locale));
}
int apple_strcoll(const char* a, const char* b, locale_t) {
  return std::strcmp(a, b);
}
size_t apple_strxfrm(char* out, const char* text, size_t size, locale_t locale) {
  return ::strxfrm_l(out, text, size, own(locale));
}
size_t apple_strftime(char* out, size_t size, const char* format, const tm* when, locale_t locale) {
  return ::strftime_l(out, size, format, when, own(locale));
}
int apple_wcscoll(const wchar_t* a, const wchar_t* b, locale_t) {
  return std::wcscmp(a, b);
}
size_t apple_wcsxfrm(wchar_t* out, const wchar_t* text, size_t size, locale_t locale) {
  return ::wcsxfrm_l(out, text, size, own(locale));
}

// mbstate_t has more room there than glibc's takes.
wint_t apple_btowc(int c, locale_t) {
  return std::btowc(c);
}
int apple_wctob(wint_t c, locale_t) {
  return std::wctob(c);
}
size_t apple_mbrtowc(wchar_t* out, const char* text, size_t size, mbstate_t* state, locale_t) {
  return std::mbrtowc(out, text, size, state);
}
size_t apple_mbrlen(const char* text, size_t size, mbstate_t* state, locale_t) {
  return std::mbrlen(text, size, state);
}
int apple_mbtowc(wchar_t* out, const char* text, size_t size, locale_t) {
  return std::mbtowc(out, text, size);
}
size_t apple_wcrtomb(char* out, wchar_t c, mbstate_t* state, locale_t) {
  return std::wcrtomb(out, c, state);
}
size_t apple_mbsrtowcs(wchar_t* out, const char** text, size_t size, mbstate_t* state, locale_t) {
  return std::mbsrtowcs(out, text, size, state);
}
size_t apple_mbsnrtowcs(wchar_t* out, const char** text, size_t most, size_t size, mbstate_t* state, locale_t) {
  return ::mbsnrtowcs(out, text, most, size, state);
}
size_t apple_wcsnrtombs(char* out, const wchar_t** text, size_t most, size_t size, mbstate_t* state, locale_t) {
  return ::wcsnrtombs(out, text, most, size, state);
}

// <runetype.h>: the bits of a class, and the table that the compiler-inlined isalpha() and its like read.
constexpr unsigned kAlpha = 0x100, kControl = 0x200, kDigit = 0x400, kGraph = 0x800, kLower = 0x1000, kPunctuation = 0x2000,
                   kSpace = 0x4000, kUpper = 0x8000, kHex = 0x10000, kBlank = 0x20000, kPrint = 0x40000;

unsigned rune_class(int c) {
  if (c < 0 || c > 127) return 0;
  return (std::isalpha(c) ? kAlpha : 0) | (std::iscntrl(c) ? kControl : 0) | (std::isdigit(c) ? kDigit : 0) |
         (std::isgraph(c) ? kGraph : 0) | (std::islower(c) ? kLower : 0) | (std::ispunct(c) ? kPunctuation : 0) |
         (std::isspace(c) ? kSpace : 0) | (std::isupper(c) ? kUpper : 0) | (std::isxdigit(c) ? kHex : 0) | (std::isblank(c) ? kBlank : 0) |
         (std::isprint(c) ? kPrint : 0);
}
int mask_rune(int c, unsigned long mask) {
  return static_cast<int>(rune_class(c) & mask);
}
int mask_rune_in(int c, unsigned long mask, locale_t) {
  return mask_rune(c, mask);
}
int lower_rune(int c) {
  return c >= 0 && c < 128 ? std::tolower(c) : c;
}
int upper_rune(int c) {
  return c >= 0 && c < 128 ? std::toupper(c) : c;
}
int lower_rune_in(int c, locale_t) {
  return lower_rune(c);
}
int upper_rune_in(int c, locale_t) {
  return upper_rune(c);
}

struct RuneLocale {
  char magic[8] = {'R', 'u', 'n', 'e', 'M', 'a', 'g', 'A'};
  char encoding[32] = "NONE";
  void* functions[2] = {};
  int invalid = -1;
  uint32_t classes[256] = {};
  int lower[256] = {}, upper[256] = {};
  char rest[128] = {};
  RuneLocale() {
    for (int c = 0; c < 256; ++c) classes[c] = rune_class(c), lower[c] = lower_rune(c), upper[c] = upper_rune(c);
  }
};
static_assert(offsetof(RuneLocale, classes) == 60);

const RuneLocale rune_locale;
const RuneLocale* const current_rune_locale = &rune_locale;

}  // namespace
}  // namespace lab

LAB_VARIADIC(int, snprintf_l, 4, (char* out, size_t size, locale_t, const char* format), format, ::vsnprintf(out, size, format, args))
LAB_VARIADIC(int, asprintf_l, 3, (char** out, locale_t, const char* format), format, ::vasprintf(out, format, args))
LAB_VARIADIC(int, sscanf_l, 3, (const char* text, locale_t, const char* format), format, ::vsscanf(text, format, args))
LAB_VARIADIC(int, swprintf, 3, (wchar_t * out, size_t size, const wchar_t* format), format, ::vswprintf(out, size, format, args))

namespace lab {

SymbolTable locale_symbols() {
  static const SystemSymbol table[] = {
      {"_newlocale", as_address(apple_newlocale)},     {"_freelocale", as_address(apple_freelocale)},
      {"_uselocale", as_address(apple_uselocale)},     {"_setlocale", as_address(apple_setlocale)},
      {"_localeconv_l", as_address(apple_localeconv)}, {"____mb_cur_max_l", as_address(apple_mb_cur_max)},
      {"_strtod_l", as_address(apple_strtod)},         {"_strtof_l", as_address(apple_strtof)},
      {"_strtold_l", as_address(apple_strtold)},       {"_strtold", as_address(apple_plain_strtold)},
      {"_strtoll_l", as_address(apple_strtoll)},       {"_strtoull_l", as_address(apple_strtoull)},
      {"_strcoll_l", as_address(apple_strcoll)},       {"_strxfrm_l", as_address(apple_strxfrm)},
      {"_strftime_l", as_address(apple_strftime)},     {"_wcscoll_l", as_address(apple_wcscoll)},
      {"_wcsxfrm_l", as_address(apple_wcsxfrm)},       {"_btowc_l", as_address(apple_btowc)},
      {"_wctob_l", as_address(apple_wctob)},           {"_mbrtowc_l", as_address(apple_mbrtowc)},
      {"_mbrlen_l", as_address(apple_mbrlen)},         {"_mbtowc_l", as_address(apple_mbtowc)},
      {"_wcrtomb_l", as_address(apple_wcrtomb)},       {"_mbsrtowcs_l", as_address(apple_mbsrtowcs)},
      {"_mbsnrtowcs_l", as_address(apple_mbsnrtowcs)}, {"_wcsnrtombs_l", as_address(apple_wcsnrtombs)},
      {"___maskrune", as_address(mask_rune)},          {"___maskrune_l", as_address(mask_rune_in)},
      {"___tolower", as_address(lower_rune)},          {"___toupper", as_address(upper_rune)},
      {"____tolower_l", as_address(lower_rune_in)},    {"____toupper_l", as_address(upper_rune_in)},
      {"_snprintf_l", as_address(apple_snprintf_l)},   {"_asprintf_l", as_address(apple_asprintf_l)},
      {"_sscanf_l", as_address(apple_sscanf_l)},       {"_swprintf", as_address(apple_swprintf)},
      {"__DefaultRuneLocale", &rune_locale},           {"__CurrentRuneLocale", &current_rune_locale},
  };
  return table;
}

}  // namespace lab
