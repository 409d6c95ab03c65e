#include "host/host.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "host/property_list.hpp"
#include "host/sys/error.hpp"
#include "tests/unit/scratch.hpp"

using namespace lumelift;
using sys::Milliseconds;
using test::error_of;
using test::holds;

namespace {

const PrefKey key{"com.example.graphics", "Level"};

std::string plist(const std::string& entries) {
  return R"(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
)" + entries +
         "</dict>\n</plist>\n";
}

std::string entry(const std::string& value) {
  return plist("\t<key>Level</key>\n\t" + value + "\n");
}

/// A `defaults` that keeps one typed value as the XML of it, with the real one's rules and texts. `on_read` is shell text run
/// before each export, with $n counting reads since the last write.
class FakeDefaults {
 public:
  explicit FakeDefaults(const std::string& xml, const std::string& on_read = ":") : first_(scratch_.path() / "bin") {
    if (!xml.empty()) scratch_.write("value", xml);
    scratch_.script("bin/defaults", R"(dir=)" + scratch_.path().string() + R"(
echo "$*" >> $dir/calls
set_value() { cp $dir/value $dir/old 2>/dev/null || rm -f $dir/old; printf '%s' "$1" > $dir/value; echo 0 > $dir/reads; }
case "$1 $4" in
"export "*)
  n=$(cat $dir/reads 2>/dev/null || echo 99); n=$((n + 1)); echo $n > $dir/reads
  from=$dir/value; )" + on_read + R"(
  echo '<?xml version="1.0"?><plist version="1.0"><dict>'
  test -f $from && { echo "<key>$(cat $dir/key)</key>"; cat $from; }
  echo '</dict></plist>';;
"write -bool")
  case "$5" in true) set_value '<true/>';; false) set_value '<false/>';; *) echo "Unexpected argument $5; leaving defaults unchanged." >&2; exit 255;; esac;;
"write -int") set_value "<integer>$5</integer>";;
"write -float") set_value "<real>$5</real>";;
"write -string") set_value "<string>$5</string>";;
"delete "*)
  test -f $dir/value || { echo 'Domain (com.example.graphics) not found.' >&2; exit 1; }
  cp $dir/value $dir/old; rm $dir/value; echo 0 > $dir/reads;;
*) exit 255;;
esac
)");
    scratch_.write("key", "Level");
  }
  [[nodiscard]] std::string calls() const { return test::slurp(scratch_.path() / "calls"); }

 private:
  test::Scratch scratch_;
  test::PathFirst first_;
};

}  // namespace

TEST_CASE("R105: the same printed 1 is a boolean, an integer, a real or a string, and each is told apart") {
  const std::vector<std::pair<std::string, PrefValue>> cases = {
      {"<true/>", true},
      {"<false/>", false},
      {"<true></true>", true},
      {"<integer>1</integer>", std::int64_t{1}},
      {"<integer>-9223372036854775808</integer>", INT64_MIN},
      {"<real>1</real>", PrefReal{"1"}},
      {"<real>0.10000000149011612</real>", PrefReal{"0.10000000149011612"}},
      {"<string>1</string>", std::string("1")},
      {"<string></string>", std::string()},
      {"<string/>", std::string()},
      {"<string> a\n </string>", std::string(" a\n ")},
      {"<string>&lt;&amp;&gt;&quot;&apos;&#65;&#x1F600;</string>", std::string("<&>\"'A\xf0\x9f\x98\x80")},
      {"<string><![CDATA[<true/>]]></string>", std::string("<true/>")},
  };
  for (const auto& [xml, value] : cases) {
    CAPTURE(xml);
    CHECK(read_property_list(entry(xml)).at("Level") == value);
  }
  CHECK(read_property_list(entry("<true/>")).at("Level") != PrefValue(std::int64_t{1}));
}

TEST_CASE("R110: containers, data, dates and numbers beyond 64 bits are seen by type and compared by content") {
  const auto type = [](const std::string& xml) { return std::get<PrefContainer>(read_property_list(entry(xml)).at("Level")).type; };
  const auto value = [](const std::string& xml) { return read_property_list(entry(xml)).at("Level"); };
  CHECK(type("<dict><key>a</key><array><true/><dict/></array></dict>") == "dictionary");
  CHECK(type("<array/>") == "array");
  CHECK(type("<data>AAEC</data>") == "data");
  CHECK(type("<date>2026-01-01T00:00:00Z</date>") == "date");
  CHECK(type("<integer>18446744073709551615</integer>") == "integer");
  CHECK(value("<array><true/></array>") == value("<array><true/></array>"));
  CHECK(value("<array><true/></array>") != value("<array><false/></array>"));
}

TEST_CASE("an empty domain, other keys, comments and a byte order mark") {
  CHECK(read_property_list("<plist version=\"1.0\"><dict/></plist>").empty());
  CHECK(read_property_list("\xef\xbb\xbf" + plist("<!-- a <key> --><key>A</key> <!-- b --> <true/>")).size() == 1);
  const auto values = read_property_list(plist("<key>Levels</key><array><string>Level</string></array><key>a&amp;b</key><false/>"));
  CHECK(values.size() == 2);
  CHECK(values.contains("a&b"));
}

TEST_CASE("what is no property list is refused with its place, cut or changed anywhere") {
  const std::string whole = plist("<key>Level</key><dict><key>x</key><string>a&amp;b</string></dict><key>b</key><true/>");
  const std::string trimmed = whole.substr(0, whole.size() - 1);
  for (std::size_t cut = 0; cut < trimmed.size(); ++cut) {
    CAPTURE(cut);
    CHECK(error_of([&] { (void)read_property_list(trimmed.substr(0, cut)); }));
  }
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "<array>";
  for (const std::string& bad : {std::string("garbage"), std::string("{ Level = 1; }"), entry("<true>"), entry("<string>&bogus;</string>"),
                                 entry("<string>&#0;</string>"), entry("<string>&#xD800;</string>"), entry("<maybe/>"), entry("</true>"),
                                 entry(deep), plist("<key>a</key><true/><key>a</key><true/>"), plist("<true/>"), plist("<key>a</key>"),
                                 whole + "x", std::string("<plist version=\"1.0\"><array/></plist>"), std::string(5'000'000, '<')}) {
    const auto error = error_of([&] { (void)read_property_list(bad); });
    REQUIRE(error);
    CHECK(error->id() == "preference-unreadable");
  }
}

TEST_CASE("R105: reading takes one call of defaults, and absent is a value") {
  const FakeDefaults defaults("<string>1</string>");
  CHECK(Host().preference(key) == PrefValue(std::string("1")));
  CHECK(Host().preference({key.domain, "Other"}) == PrefValue(PrefAbsent{}));
  CHECK(defaults.calls() == "export com.example.graphics -\nexport com.example.graphics -\n");
}

TEST_CASE("a domain that does not exist is absent; any other failure of defaults is an error with its text") {
  const test::Scratch scratch;
  const test::PathFirst first(scratch.path());
  scratch.script("defaults", "echo 'Domain com.example.graphics does not exist' >&2; exit 1");
  CHECK(Host().preference(key) == PrefValue(PrefAbsent{}));

  scratch.script("defaults", "echo 'Could not talk to the daemon' >&2; exit 1");
  auto error = error_of([] { (void)Host().preference(key); });
  REQUIRE(error);
  CHECK(error->id() == "preference-unreadable");
  CHECK(holds(error->message(), "exit status 1"));
  CHECK(holds(error->details().at(0), "Could not talk"));

  scratch.script("defaults", "head -c 3000000 /dev/zero | tr '\\0' 'x'");
  error = error_of([] { (void)Host().preference(key); });
  REQUIRE(error);
  CHECK(error->id() == "preference-unreadable");
  CHECK(error->details().at(0).size() < 600);

  scratch.script("defaults", "exit 0");
  CHECK(error_of([] { (void)Host().preference(key); })->id() == "preference-unreadable");
}

TEST_CASE("defaults that is not there is named") {
  const test::Scratch scratch;
  const std::string old = ::getenv("PATH");
  ::setenv("PATH", scratch.path().c_str(), 1);
  const auto error = error_of([] { (void)Host().preference(key); });
  ::setenv("PATH", old.c_str(), 1);
  REQUIRE(error);
  CHECK(error->id() == "host-tool-missing");
}

TEST_CASE("R106, R107: every former value comes back with its type") {
  const std::vector<std::pair<std::string, PrefValue>> formers = {
      {"", PrefAbsent{}},
      {"<true/>", true},
      {"<false/>", false},
      {"<integer>1</integer>", std::int64_t{1}},
      {"<real>1</real>", PrefReal{"1"}},
      {"<string>1</string>", std::string("1")},
      {"<string>-bool it's \"odd\"</string>", std::string("-bool it's \"odd\"")},
      {"<string></string>", std::string()},
  };
  for (const auto& [xml, former] : formers) {
    CAPTURE(xml);
    const FakeDefaults defaults(xml);
    const Host host;
    REQUIRE(host.preference(key) == former);
    host.set_preference(key, true);
    CHECK(host.preference(key) == PrefValue(true));
    host.set_preference(key, former);
    CHECK(host.preference(key) == former);
    CHECK(holds(defaults.calls(), "write com.example.graphics Level -bool true\n"));
    CHECK_FALSE(holds(defaults.calls(), "-bool 1"));
  }
}

TEST_CASE("deleting what is absent is no error") {
  const FakeDefaults defaults("");
  Host().set_preference(key, PrefAbsent{});
  CHECK(holds(defaults.calls(), "delete com.example.graphics Level"));
}

TEST_CASE("R107: a container is never written") {
  const FakeDefaults defaults("<array/>");
  const auto former = Host().preference(key);
  CHECK(shown(former) == "array");
  const auto error = error_of([&] { Host().set_preference(key, former); });
  REQUIRE(error);
  CHECK(error->id() == "preference-not-written");
  CHECK_FALSE(holds(defaults.calls(), "write"));
}

TEST_CASE("R107: a real comes back digit for digit, though the real switch keeps single precision only") {
  const FakeDefaults defaults("", "sed -i 's/<real>0.1</<real>0.10000000149011612</' $dir/value 2>/dev/null");
  SUBCASE("where single precision is enough") {
    Host().set_preference(key, PrefReal{"0.25"});
    CHECK(Host().preference(key) == PrefValue(PrefReal{"0.25"}));
    CHECK_FALSE(holds(defaults.calls(), "<real>"));
  }
  SUBCASE("as a property list where it is not, and then as near as defaults can") {
    Host().set_preference(key, PrefReal{"0.1"});
    CHECK(Host().preference(key) == PrefValue(PrefReal{"0.10000000149011612"}));
    CHECK(holds(defaults.calls(), "write com.example.graphics Level <real>0.1</real>"));
  }
}

TEST_CASE("R108: the daemon's old answers after a write are waited out") {
  const FakeDefaults defaults("<false/>", "test $n -le 3 && from=$dir/old");
  const sys::Stopwatch watch;
  Host().set_preference(key, true);
  CHECK(watch.elapsed() < Milliseconds{3'000});
  CHECK(Host().preference(key) == PrefValue(true));
}

TEST_CASE("R108: a value that is put back after the first good read is not taken for written") {
  const FakeDefaults defaults("<false/>", "test $n -ge 2 && test $n -lt 90 && from=$dir/old");
  const auto error = error_of([] { Host().set_preference(key, true); });
  REQUIRE(error);
  CHECK(error->id() == "preference-not-written");
  CHECK(holds(error->message(), "is false again"));
}

TEST_CASE("a managed profile overrides the value: the error says what is read and where to look") {
  const FakeDefaults defaults("<false/>", "printf '<false/>' > $dir/value");
  const sys::Stopwatch watch;
  const auto error = error_of([] { Host().set_preference(key, true); });
  REQUIRE(error);
  CHECK(watch.elapsed() >= Milliseconds{4'900});
  CHECK(error->id() == "preference-not-written");
  CHECK(holds(error->message(), "is false"));
  CHECK(holds(error->message(), "not true"));
  CHECK(holds(error->fix(), "profile"));
}

TEST_CASE("a write that defaults refuses is reported at once, with its words") {
  const test::Scratch scratch;
  const test::PathFirst first(scratch.path());
  scratch.script("defaults",
                 "test $1 = export && { echo '<plist><dict/></plist>'; exit 0; }\n"
                 "echo 'Could not write domain com.example.graphics; exiting' >&2; exit 1");
  const sys::Stopwatch watch;
  const auto error = error_of([] { Host().set_preference(key, true); });
  REQUIRE(error);
  CHECK(watch.elapsed() < Milliseconds{2'000});
  CHECK(holds(error->message(), "absent"));
  CHECK(holds(error->details().at(0), "Could not write domain"));
}

TEST_CASE("a preference is set in under a tenth of a second when all is well") {
  const FakeDefaults defaults("<false/>");
  const sys::Stopwatch watch;
  Host().set_preference(key, true);
  CHECK(watch.elapsed() < Milliseconds{3'000});  // 50 ms on an idle machine
  CHECK(defaults.calls() == "write com.example.graphics Level -bool true\nexport com.example.graphics -\nexport com.example.graphics -\n");
}

TEST_CASE("values are shown with their type") {
  CHECK(shown(PrefValue(PrefAbsent{})) == "absent");
  CHECK(shown(PrefValue(true)) == "true");
  CHECK(shown(PrefValue(std::int64_t{1})) == "integer 1");
  CHECK(shown(PrefValue(std::string("1"))) == "string \"1\"");
  CHECK(shown(PrefValue(PrefReal{"1.5"})) == "real 1.5");
  CHECK(shown(PrefValue(PrefContainer{"dictionary", ""})) == "dictionary");
}

TEST_CASE("R134: facts of the Mac; it is named by its hardware, not its host name") {
  const test::Scratch scratch;
  const test::PathFirst first(scratch.path());
  scratch.script("sw_vers", "printf 'ProductName:\\t\\tmacOS\\nProductVersion:\\t\\t26.6.1\\nBuildVersion:\\t\\t25G71\\n'");
  scratch.script("sysctl", "echo 'hw.model: Mac13,2'; echo 'machdep.cpu.brand_string: Apple M1 Ultra'; echo 'hw.memsize: 137438953472'");
  scratch.script("ioreg", "echo '  | {'; echo '  |   \"IOPlatformUUID\" = \"564D1234-0000-1111-2222-333344445555\"'");
  const HostFacts facts = Host().facts();
  CHECK(facts == HostFacts{"Mac13,2", "Apple M1 Ultra", "26.6.1", "25G71", "564D1234-0000-1111-2222-333344445555", 137'438'953'472});

  scratch.script("sysctl", "echo 'hw.model: Mac13,2'; echo \"sysctl: unknown oid 'hw.memsize'\" >&2; exit 1");
  scratch.script("ioreg", "exit 1");
  CHECK(Host().facts() == HostFacts{"Mac13,2", "", "26.6.1", "25G71", "", 0});
}

TEST_CASE("R109, R130: the wrong user is told apart before anything is touched") {
  const test::Scratch scratch;
  const std::string home = scratch.path().string();
  CHECK_FALSE(Host::wrong_user({home, std::nullopt}));
  CHECK_FALSE(Host::wrong_user({home, "0"}));
  CHECK(holds(Host::wrong_user({std::nullopt, std::nullopt}).value_or(""), "HOME is not set"));
  CHECK(holds(Host::wrong_user({"", std::nullopt}).value_or(""), "HOME is not set"));
  CHECK(holds(Host::wrong_user({home + "/none", std::nullopt}).value_or(""), "no folder"));
}

TEST_CASE("R109: under sudo, or with somebody else's HOME" * doctest::skip(::geteuid() != 0)) {
  const test::Scratch scratch;
  CHECK(holds(Host::wrong_user({scratch.path().string(), "501"}).value_or(""), "user 501"));
  REQUIRE(::chown(scratch.path().c_str(), 12345, 12345) == 0);
  CHECK(holds(Host::wrong_user({scratch.path().string(), std::nullopt}).value_or(""), "belongs to user 12345"));
}
