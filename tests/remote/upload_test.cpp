#include <doctest/doctest.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <fstream>
#include <random>
#include <thread>

#include "host/sys/hash.hpp"
#include "remote/guest.hpp"
#include "remote/transfer.hpp"
#include "server.hpp"

using namespace lumelift;
using namespace lumelift::test;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t segment = 64u << 20;

std::string content(const fs::path& file) {
  return sys::read_file(file, 1u << 30);
}

void put(const fs::path& file, std::string_view text) {
  std::ofstream(file, std::ios::binary) << text;
}

std::string bytes(std::size_t count) {
  std::string text(count, '\0');
  std::mt19937_64 random(count);
  for (std::size_t i = 0; i + 8 <= count; i += 8) {
    const auto word = random();
    std::copy_n(reinterpret_cast<const char*>(&word), 8, text.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return text;
}

unsigned mode_of(const fs::path& file) {
  struct stat about {};
  REQUIRE(::lstat(file.c_str(), &about) == 0);
  return about.st_mode & 07777;
}

/// A lab guest, a source of `size` bytes and where it goes.
struct Copying {
  explicit Copying(std::size_t size, const std::string& options = "{}")
      : lab(options), text(bytes(size)), source(folder.write("source", text)) {}
  Sent send(Sending how = {}, Former former = Former::drop) const {
    auto session = lab.connect();
    return Transfer(session).put_large(source, path, 0644, {}, former, how);
  }
  LabGuest lab;
  TempFolder folder;
  std::string text;
  fs::path source;
  std::string path = lab.home() + "/model.gguf", part = Transfer::part_name(path);
};

/// A network that keeps the guest's answers back for a while: from `from` bytes towards the guest on, until the client has sent
/// `enough` more, or has waited in vain for three seconds. What it sent in that time is what it has under way without an answer.
class LateAnswers {
 public:
  LateAnswers(sys::Fd far, std::size_t from, std::size_t enough) : far_(std::move(far)), from_(from), enough_(enough) {
    std::array<int, 2> ends{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0);
    near_ = sys::Fd(ends[1]);
    client_ = sys::Fd(ends[0]);
    thread_ = std::thread([this] { pass(); });
  }
  ~LateAnswers() {
    ::shutdown(near_.get(), SHUT_RDWR);
    thread_.join();
  }
  sys::Fd client() { return std::move(client_); }
  [[nodiscard]] std::size_t unanswered() const { return unanswered_; }

 private:
  void pass() {
    std::size_t sent = 0;
    bool holds = false, held = false;
    for (;;) {
      std::array<pollfd, 2> ready{pollfd{near_.get(), POLLIN, 0}, pollfd{far_.get(), holds ? short{0} : short{POLLIN}, 0}};
      const int count = ::poll(ready.data(), ready.size(), holds ? 3000 : -1);
      if (count == 0) {
        holds = false;
      }
      if (ready[0].revents != 0) {
        const auto got = carry(near_, far_);
        if (got == 0) {
          return;
        }
        sent += got;
        if (holds) {
          unanswered_ += got;
        }
        if (!held && sent >= from_) {
          held = holds = true;
        }
        if (unanswered_ >= enough_) {
          holds = false;
        }
      }
      if (!holds && ready[1].revents != 0 && carry(far_, near_) == 0) {
        return;
      }
    }
  }
  /// Bytes carried; 0 at the end.
  static std::size_t carry(const sys::Fd& from, const sys::Fd& to) {
    std::array<char, 65536> block;
    const auto got = ::recv(from.get(), block.data(), block.size(), 0);
    for (ssize_t done = 0; done < got;) {
      const auto put = ::send(to.get(), block.data() + done, static_cast<std::size_t>(got - done), MSG_NOSIGNAL);
      if (put <= 0) {
        return 0;
      }
      done += put;
    }
    return got > 0 ? static_cast<std::size_t>(got) : 0;
  }

  sys::Fd far_, near_, client_;
  std::size_t from_, enough_;
  std::atomic<std::size_t> unanswered_ = 0;
  std::thread thread_;
};

}  // namespace

TEST_CASE("R83: a megabyte and more is under way without an answer, so that delay costs no rate") {
  // 20 ms there and back then leave 50 MB/s. One write at a time would have 30 kB under way, and 1.5 MB/s.
  constexpr std::size_t greetings = 64'000, enough = 1'000'000;
  const Copying copy(12'000'000);
  const auto under_way = [&](auto put) {
    LateAnswers network(copy.lab.dial(), greetings, enough);
    {
      auto session = copy.lab.connect(Route(network.client()));
      Transfer transfer(session);
      put(transfer);
    }
    return network.unanswered();
  };
  CHECK(under_way([&](Transfer& transfer) { (void)transfer.put_large(copy.source, copy.path, 0644, {}, Former::drop, {}); }) >= enough);
  CHECK(content(copy.path) == copy.text);
  const FileState state{sys::sha256(copy.text), 0644, copy.text.size()};
  CHECK(under_way([&](Transfer& transfer) { transfer.put_file(copy.source, copy.path + "-streamed", state); }) >= enough);
  CHECK(content(copy.path + "-streamed") == copy.text);
}

TEST_CASE("a large file is hashed on its way, verified by segments, and gets its name last") {
  const Copying copy(2 * segment + 1'000'001);
  FileState promised;
  std::vector<std::uint64_t> news;
  Sending how;
  how.before_rename = [&](const FileState& state) {
    promised = state;
    CHECK_FALSE(fs::exists(copy.path));
    CHECK(content(copy.part) == copy.text);
  };
  how.progress = [&](std::uint64_t sent, std::uint64_t total) {
    news.push_back(sent);
    CHECK(total == copy.text.size());
  };
  const auto sent = copy.send(how);
  CHECK(sent.state == FileState{sys::sha256(copy.text), 0644, copy.text.size()});
  CHECK(sent.state == promised);
  CHECK(sent.found == 0);
  CHECK(content(copy.path) == copy.text);
  CHECK(mode_of(copy.path) == 0644);
  CHECK_FALSE(fs::exists(copy.part));
  REQUIRE_FALSE(news.empty());
  CHECK(news.back() == copy.text.size());
  // The manifest's stamp is what the guest's stat says afterwards.
  auto session = copy.lab.connect();
  Guest guest(session);
  auto recalled = guest.recall({copy.path, "~/model.gguf", copy.lab.home() + "/none"}, sys::Deadline::in(30s));
  CHECK(recalled.home == copy.lab.home());
  CHECK(recalled.stamps[0] == sent.stamp);
  CHECK(recalled.seen[1] == recalled.seen[0]);
  CHECK(recalled.seen[2].kind == PathKind::absent);
  CHECK(recalled.seen[0].file == FileState{"", 0644, copy.text.size()});
  recalled.manifest.remember(copy.path, {copy.text.size(), sent.stamp, sent.state.sha256, sent.source_stamp});
  guest.keep(recalled.manifest);
  const auto again = guest.recall({copy.path}, sys::Deadline::in(30s));
  CHECK(again.manifest == recalled.manifest);
  CHECK(again.seen[0].file == sent.state);
  // Written to in place, with its time put back: no longer known.
  host_run({"/bin/sh", "-c", "touch -r \"$1\" \"$2\" && printf x | dd of=\"$1\" conv=notrunc 2>/dev/null && touch -r \"$2\" \"$1\"", "sh",
            copy.path, (copy.folder.path() / "time").string()});
  CHECK(guest.recall({copy.path}, sys::Deadline::in(30s)).seen[0].file == FileState{"", 0644, copy.text.size()});
}

TEST_CASE("several connections send one file") {
  const Copying copy(2 * segment + 5);
  Sending how;
  how.connections = 3;
  how.connect = [&] { return std::make_unique<Session>(copy.lab.connect()); };
  CHECK(copy.send(how).state.sha256 == sys::sha256(copy.text));
  CHECK(content(copy.path) == copy.text);
  // One that cannot be had is done without.
  how.connect = []() -> std::unique_ptr<Session> { throw Error(ErrorKind::failed, "guest-lost", "no"); };
  CHECK(copy.send(how).state.sha256 == sys::sha256(copy.text));
}

TEST_CASE("what is there already is used only as far as it is a true prefix") {
  Copying copy(segment + 9'000'000);
  const auto whole = copy.text;
  const auto found = [&](const std::string& part) {
    put(copy.part, part);
    const auto sent = copy.send();
    CHECK(content(copy.path) == copy.text);
    CHECK(sent.state.sha256 == sys::sha256(copy.text));
    CHECK_FALSE(fs::exists(copy.part));
    return sent.found;
  };
  CHECK(found(whole.substr(0, 5'000'000)) == 5'000'000);
  CHECK(found(whole.substr(0, segment + 123)) == segment + 123);
  CHECK(found(whole) == whole.size());
  CHECK(found(whole + "x") == 0);
  auto damaged = whole.substr(0, segment + 5'000'000);
  damaged[10] ^= 1;
  CHECK(found(damaged) == 0);
  damaged[10] ^= 1;
  damaged[segment + 10] ^= 1;
  CHECK(found(damaged) == segment);
  copy.text = bytes(segment + 9'000'008);
  put(copy.source, copy.text);
  CHECK(found(whole) == 0);
}

TEST_CASE("R88: cut twenty times in a row at random places, it ends with the right bytes") {
  const Copying copy(24'000'000);
  std::mt19937 random(7);
  std::uint64_t most = 0;
  int cuts = 0;
  for (int i = 0; i < 20; ++i) {
    copy.lab.fault({"sftp", fmt::format("at_byte={}", 100 + random() % 4'000'000), "cut=true", "times=1"});
    try {
      most = std::max(most, copy.send().found);
    } catch (const Error& error) {
      CHECK(error.id() == "guest-lost");
      ++cuts;
    }
    if (cuts <= i) {
      fs::remove(copy.path);
    }
  }
  const auto sent = copy.send();
  MESSAGE("cut " << cuts << " times; " << sent.found << " bytes found in the end");
  CHECK(cuts >= 10);
  CHECK(content(copy.path) == copy.text);
  CHECK(sent.state.sha256 == sys::sha256(copy.text));
  CHECK(std::max(most, sent.found) > 0);
}

TEST_CASE("a host file that changes while it is sent is an error, and nothing gets the final name") {
  const Copying copy(12'000'000);
  const auto changing = [&](auto change) {
    Sending how;
    bool done = false;
    how.progress = [&](std::uint64_t, std::uint64_t) {
      if (!std::exchange(done, true)) {
        change();
      }
    };
    const auto id = error_id([&] { (void)copy.send(how); });
    CHECK_FALSE(fs::exists(copy.path));
    put(copy.source, copy.text);
    fs::remove(copy.part);
    return id;
  };
  CHECK(changing([&] { std::ofstream(copy.source, std::ios::app) << "more"; }) == "source-changed");
  CHECK(changing([&] { fs::resize_file(copy.source, 1000); }) == "source-changed");
  CHECK(changing([&] {
          std::fstream file(copy.source, std::ios::in | std::ios::out);
          file.seekp(10);
          file << "other";
        }) == "source-changed");
  CHECK(changing([&] {
          fs::rename(copy.source, copy.folder.path() / "away");
          put(copy.source, copy.text);
        }) == "source-changed");
  CHECK(copy.send().state.sha256 == sys::sha256(copy.text));
}

TEST_CASE("a large file that is replaced is kept for the undo, or dropped") {
  const Copying copy(9'000'000);
  put(copy.path, "former");
  ::chmod(copy.path.c_str(), 0600);
  const FileState former{sys::sha256("former"), 0600, 6};
  auto session = copy.lab.connect();
  Transfer transfer(session);
  CHECK(error_id([&] { (void)transfer.put_large(copy.source, copy.path, 0644, {}, Former::keep, {}); }) == "world-moved");
  (void)transfer.put_large(copy.source, copy.path, 0755, former, Former::keep, {});
  CHECK(mode_of(copy.path) == 0755);
  CHECK(content(Transfer::before_name(copy.path, former.sha256)) == "former");
  transfer.take_back(copy.path, former);
  transfer.tidy(copy.path);
  CHECK(content(copy.path) == "former");
  CHECK(mode_of(copy.path) == 0600);
  (void)transfer.put_large(copy.source, copy.path, 0644, former, Former::drop, {});
  CHECK(content(copy.path) == copy.text);
  CHECK_FALSE(fs::exists(Transfer::before_name(copy.path, former.sha256)));
}

TEST_CASE("R87: no room is found before the first byte; links and folders are refused") {
  const Copying copy(9'000'000, R"({"disk_kb": 3000})");
  const auto full = error_text([&] { (void)copy.send(); });
  CHECK(full.starts_with("guest-disk-full"));
  CHECK_FALSE(fs::exists(copy.part));
  REQUIRE(::symlink("elsewhere", copy.path.c_str()) == 0);
  CHECK(error_id([&] { (void)copy.send(); }) == "guest-path-unsafe");
  fs::remove(copy.path);
  fs::create_directory(copy.path);
  CHECK(error_id([&] { (void)copy.send(); }) == "guest-path-unsafe");
}

TEST_CASE("R87: a disk that fills up on the way is told apart from other refusals") {
  // What df promises is not there: the file size limit of the lab strikes first.
  const Copying copy(9'000'000, R"({"disk_kb": 3000})");
  const auto df = copy.lab.root() + "/bin/df";
  fs::remove(df);
  put(df,
      "#!/bin/sh\nif [ -e \"$HOME/asked\" ]; then free=12; else free=99999; fi\n: > \"$HOME/asked\"\nprintf "
      "'Filesystem\\n/dev/disk 1 1 %s 1\\n' $free\n");
  ::chmod(df.c_str(), 0755);
  const auto full = error_text([&] { (void)copy.send(); });
  INFO(full);
  CHECK(full.starts_with("guest-disk-full"));
  CHECK(full.find("12 kB free") != std::string::npos);
  CHECK_FALSE(fs::exists(copy.path));
}

TEST_CASE("R98: a signal ends the sending at once, over several connections as well; the part stays for the next try") {
  const Copying copy(segment + 40'000'000);
  unsigned connections = 1;
  SUBCASE("one connection") {}
  SUBCASE("three connections") {
    connections = 3;
  }
  const pid_t child = ::fork();
  if (child == 0) {
    sys::arm_signals();
    Sending how;
    how.connections = connections;
    how.connect = [&] { return std::make_unique<Session>(copy.lab.connect()); };
    how.progress = [](std::uint64_t sent, std::uint64_t) {
      if (sent > 10'000'000) {
        ::raise(SIGTERM);
      }
    };
    try {
      (void)copy.send(how);
    } catch (const sys::Interrupted&) {
      ::_exit(0);
    } catch (const Error& error) {
      std::fprintf(stderr, "%s\n", joined(error).c_str());
    }
    ::_exit(1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK_FALSE(fs::exists(copy.path));
  const auto again = copy.send();
  // What several connections have sent has holes before its end, and only a prefix without them counts.
  CHECK((again.found > 0 || connections > 1));
  CHECK(content(copy.path) == copy.text);
}

TEST_CASE("R94: a checksum tool that is missing or babbles is no mismatch; a guest that damages bytes is") {
  const Copying copy(9'000'000);
  const auto tool = copy.lab.root() + "/usr/bin/shasum";
  const auto with = [&](const char* script) {
    fs::remove(tool);
    put(tool, script);
    ::chmod(tool.c_str(), 0755);
    return error_id([&] { (void)copy.send(); });
  };
  CHECK(with("#!/bin/sh\nexit 1\n") == "transfer-unverified");
  CHECK(with("#!/bin/sh\necho warning\n") == "transfer-unverified");
  CHECK(with("#!/bin/sh\nprintf '%064d  -\\n' 0\n") == "transfer-corrupt");
  CHECK_FALSE(fs::exists(copy.path));
}

TEST_CASE("a guest without SFTP says so") {
  const Copying copy(9'000'000);
  copy.lab.fault({"sftp", "exit=1"});
  CHECK(error_id([&] { (void)copy.send(); }) == "guest-no-sftp");
}

TEST_CASE("from a share the guest copies by itself, with the same proof, and goes on where it stopped") {
  const Copying copy(2 * segment + 1'000'001);
  // A guest of the lab sees the host's files; SFTP is not needed.
  copy.lab.fault({"sftp", "exit=1"});
  Sending how;
  how.shared = copy.source.string();
  std::uint64_t last = 0;
  how.progress = [&](std::uint64_t done, std::uint64_t) { last = done; };
  const auto sent = copy.send(how);
  CHECK(sent.state == FileState{sys::sha256(copy.text), 0644, copy.text.size()});
  CHECK(sent.found == 0);
  CHECK(last == copy.text.size());
  CHECK(content(copy.path) == copy.text);
  CHECK_FALSE(fs::exists(copy.part));
  put(copy.part, copy.text.substr(0, segment + 1000));
  CHECK(copy.send(how).found == segment + 1000);
  CHECK(content(copy.path) == copy.text);
  put(copy.part, copy.text.substr(0, segment - 1) + "x" + copy.text.substr(segment));
  CHECK(copy.send(how).found == 0);
  CHECK(content(copy.path) == copy.text);
}

TEST_CASE("wrong bytes on a share are found, and a share that cannot be read says so") {
  const Copying copy(segment + 9);
  auto other = copy.text;
  other[segment + 1] ^= 1;
  Sending how;
  how.shared = copy.folder.write("other", other).string();
  CHECK(error_id([&] { (void)copy.send(how); }) == "transfer-corrupt");
  CHECK_FALSE(fs::exists(copy.path));
  how.shared = (copy.folder.path() / "none").string();
  const auto missing = error_text([&] { (void)copy.send(how); });
  CHECK(missing.starts_with("share-unreadable"));
  CHECK(missing.find("No such file") != std::string::npos);
  // Shorter than it was: dd is content, the sums are not.
  how.shared = copy.folder.write("short", copy.text.substr(0, 10)).string();
  CHECK(error_id([&] { (void)copy.send(how); }) == "transfer-corrupt");
  CHECK_FALSE(fs::exists(copy.path));
  auto session = copy.lab.connect();
  CHECK_FALSE(Guest(session).share_with("none", sys::Deadline::in(0s)));
}

TEST_CASE("R87: a disk that fills up during a copy from a share") {
  const Copying copy(9'000'000, R"({"disk_kb": 3000})");
  const auto df = copy.lab.root() + "/bin/df";
  fs::remove(df);
  put(df,
      "#!/bin/sh\nif [ -e \"$HOME/asked\" ]; then free=12; else free=99999; fi\n: > \"$HOME/asked\"\nprintf "
      "'Filesystem\\n/dev/disk 1 1 %s 1\\n' $free\n");
  ::chmod(df.c_str(), 0755);
  Sending how;
  how.shared = copy.source.string();
  CHECK(error_text([&] { (void)copy.send(how); }).starts_with("guest-disk-full"));
  CHECK_FALSE(fs::exists(copy.path));
}
