#include <doctest/doctest.h>

#include <algorithm>

#include "cli/copy_items.hpp"
#include "cli/copy_report.hpp"
#include "host/sys/error.hpp"
#include "remote/manifest.hpp"

using namespace lumelift;

namespace {

std::string id_of(const std::vector<Guest::Entry>& entries) {
  try {
    (void)copy_items("/Users/lume/tree", "tree", entries);
  } catch (const Error& error) {
    return error.id();
  }
  return "none";
}

}  // namespace

TEST_CASE("a link stays inside when no way to read it leads out") {
  CHECK(stays_inside("tree/link", "file"));
  CHECK(stays_inside("tree/link", "sub/file"));
  CHECK(stays_inside("tree/a/b/link", "../../file"));
  CHECK(stays_inside("tree/a/link", ".././b"));
  CHECK_FALSE(stays_inside("tree/link", ".."));
  CHECK_FALSE(stays_inside("tree/a/link", "../../x"));
  CHECK_FALSE(stays_inside("tree/link", "/etc"));
  CHECK_FALSE(stays_inside("tree/link", ""));
  // The first name may itself be a link, and then ".." is not what it seems.
  CHECK_FALSE(stays_inside("tree/link", "other/../file"));
}

TEST_CASE("what a guest lists below a folder cannot lead anywhere else on this Mac") {
  const std::string top = "/Users/lume/tree";
  CHECK(id_of({{PathKind::file, top + "/a", {}}, {PathKind::link, top + "/b", "a"}}) == "none");
  CHECK(id_of({{PathKind::file, top + "/../../x", {}}}) == "guest-path-unsafe");
  CHECK(id_of({{PathKind::file, "/etc/passwd", {}}}) == "guest-path-unsafe");
  CHECK(id_of({{PathKind::file, top + "/", {}}}) == "guest-path-unsafe");
  CHECK(id_of({{PathKind::file, top + "x/y", {}}}) == "guest-path-unsafe");
  CHECK(id_of({{PathKind::link, top + "/b", "/etc"}}) == "copy-link-escapes");
  CHECK(id_of({{PathKind::other, top + "/fifo", {}}}) == "copy-special-file");
}

TEST_CASE("a manifest comes back as it was written, whatever the names") {
  Manifest manifest;
  const Manifest::Entry entry{42, "1.000000001 2.000000002 77", std::string(64, 'a'), "42:1.5:2.5:9:8"};
  for (const auto* name : {"/a b", "/new\nline", "/100%", "/%41", "/caf\xc3\xa9", "/cafe\xcc\x81", "/tab\t", "/del\x7f"}) {
    manifest.remember(name, entry);
  }
  CHECK(Manifest::parse(manifest.text()) == manifest);
  REQUIRE(manifest.find("/%41") != nullptr);
  CHECK(manifest.find("/A") == nullptr);
  CHECK(manifest.find("/a b", 42, entry.stamp) != nullptr);
  CHECK(manifest.find("/a b", 43, entry.stamp) == nullptr);
  CHECK(manifest.find("/a b", 42, "1.000000001 2.000000002 78") == nullptr);
  manifest.forget("/a b");
  CHECK(manifest.find("/a b") == nullptr);
}

TEST_CASE("a manifest cut or changed at any byte is read as what is left of it") {
  Manifest manifest;
  manifest.remember("/a", {1, "1.0 1.0 1", std::string(64, 'a'), "-"});
  manifest.remember("/b%", {2, "2.0 2.0 2", std::string(64, 'b'), "-"});
  const auto text = manifest.text();
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto cut = Manifest::parse(text.substr(0, i));
    CHECK((cut.find("/a") == nullptr || *cut.find("/a") == *manifest.find("/a")));
    auto changed = text;
    changed[i] = '\x1f';
    (void)Manifest::parse(changed);
  }
  CHECK(Manifest::parse("") == Manifest{});
  CHECK(Manifest::parse(text.substr(text.find('\n') + 1)) == Manifest{});
}

TEST_CASE("a copy is told in one line") {
  CopyReport report;
  report.vm = "ci-1";
  report.spent = sys::Milliseconds{5200};
  report.files.push_back({"/m", "/home/m", {std::string(64, 'a'), 0644, 2'000'000'000}, Copied::How::continued, 500'000'000});
  report.files.push_back({"/n", "/home/n", {std::string(64, 'b'), 0644, 7}, Copied::How::unchanged});
  CHECK(report.moved() == 1'500'000'000);
  CHECK(report.text() == "1 file copied and verified, 1.5 GB in 5.2 s (288 MB/s); 1 unchanged\n");
  CHECK(report.json().find("\"state\":\"continued\"") != std::string::npos);
  report.dry_run = true;
  CHECK(report.text() == "1 file would be copied, 1.5 GB; 1 unchanged\n");
}
