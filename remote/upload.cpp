#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>

#include "host/sys/error.hpp"
#include "remote/receive_script.hpp"
#include "remote/script.hpp"
#include "remote/sftp.hpp"
#include "remote/source_file.hpp"
#include "remote/transfer.hpp"
#include "remote/transfer_answer.hpp"

namespace lumelift {
namespace {

using namespace std::chrono_literals;
using sys::Deadline;

constexpr unsigned checks_at_once = 4;
constexpr unsigned pulls_at_once = 4;
constexpr auto guest_block_bytes = 1u << 20;  // as receive_script's dd

/// Which bytes the guest has, for several threads.
class Arrived {
 public:
  Arrived(const Feed& feed, std::uint64_t from) : left_(feed.segments()), total_(from) {
    for (std::size_t i = 0; i < left_.size(); ++i) {
      const auto start = i * Feed::segment_bytes, end = start + feed.length(i);
      left_[i] = end <= from ? 0 : end - std::max(start, from);
    }
  }
  void add(std::uint64_t offset, std::uint64_t bytes) {
    const std::lock_guard hold(mutex_);
    const auto segment = offset / Feed::segment_bytes;
    left_[segment] -= bytes;
    total_ += bytes;
    if (left_[segment] == 0) {
      complete_.push_back(segment);
    }
  }
  std::optional<std::size_t> next_complete() {
    const std::lock_guard hold(mutex_);
    if (complete_.empty()) {
      return std::nullopt;
    }
    const auto segment = complete_.front();
    complete_.pop_front();
    return segment;
  }
  std::uint64_t total() {
    const std::lock_guard hold(mutex_);
    return total_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::uint64_t> left_;
  std::deque<std::size_t> complete_;
  std::uint64_t total_;
};

/// A further connection with a thread of its own, which sends blocks until none is left.
class Lane {
 public:
  Lane(const Sending& how, const std::string& part, Feed& feed, Arrived& arrived)
      : thread_([this, &how, &part, &feed, &arrived] {
          try {
            const auto session = how.connect();
            SftpFile file(*session, part, Deadline::in(30s));
            begun_ = true;
            while (!stop_ && !feed.drained()) {
              auto block = feed.take(50ms);
              if (!block) {
                continue;
              }
              file.write_at(block->offset, block->bytes);
              arrived.add(block->offset, block->bytes.size());
              feed.give_back(std::move(*block));
            }
            file.close(Deadline::in(30s));
          } catch (...) {
            // One that never began has taken no block: the others send it all.
            if (begun_) {
              fault_ = std::current_exception();
            }
          }
          ended_ = true;
        }) {}
  ~Lane() {
    stop_ = true;
    thread_.join();
  }
  void require_well() const {
    if (ended_ && fault_) {
      std::rethrow_exception(fault_);
    }
  }

 private:
  std::atomic<bool> stop_ = false, ended_ = false;
  bool begun_ = false;
  std::exception_ptr fault_;
  std::thread thread_;
};

/// One large file on its way.
class Upload {
 public:
  Upload(Session& session, const SourceFile& source, const std::string& path, const Sending& how)
      : session_(session),
        source_(source),
        path_(path),
        part_(Transfer::part_name(path)),
        how_(how),
        feed_(source, std::max(1u, how.connections) + 1) {}

  Sent go(unsigned mode, const std::optional<FileState>& before, Former former) {
    const std::string expected = former == Former::drop ? "any" : before ? std::to_string(before->size) : "absent";
    std::vector<std::string> words{path_,
                                   part_,
                                   before && former == Former::keep ? Transfer::before_name(path_, before->sha256) : "",
                                   expected,
                                   fmt::format("{:o}", mode),
                                   std::to_string(source_.size()),
                                   std::to_string(Feed::segment_bytes / guest_block_bytes),
                                   how_.shared};
    const auto own = own_folders_above(path_);
    words.insert(words.end(), own.begin(), own.end());
    channel_ = session_.open_exec(script_command(receive_script, words), Deadline::in(30s));
    Sent sent;
    sent.found = prove(std::min(part_found(), source_.size()));
    if (how_.shared.empty()) {
      send(sent.found);
    } else {
      pull(sent.found);
    }
    source_.require_unchanged();
    sent.state = {feed_.whole(), mode, source_.size()};
    sent.source_stamp = source_.stamp();
    if (how_.before_rename) {
      how_.before_rename(sent.state);
    }
    tell("commit");
    const auto answer = finish();
    const auto line = answer.body.rfind("\ndone ");
    if (line == std::string::npos) {
      throw refused(answer);
    }
    sent.stamp = answer.body.substr(line + 6);
    sent.stamp.erase(sent.stamp.find_last_not_of('\n') + 1);
    return sent;
  }

 private:
  void tell(std::string_view words) {
    const auto line = fmt::format("{}\n", words);
    channel_->write_all(std::as_bytes(std::span(line)));
  }
  ScriptAnswer finish() { return script_answer("write " + path_, channel_->finish(Deadline::in(30s))); }
  Error refused(ScriptAnswer answer) {
    // The guest's last word; what it said of parts and sums came before.
    const auto end = answer.body.find_last_not_of('\n');
    const auto start = answer.body.rfind('\n', end);
    if (start != std::string::npos) {
      answer.body.erase(0, start + 1);
    }
    if (answer.body == "exists\n") {
      return Error(ErrorKind::failed, "world-moved", fmt::format("{} in the guest is not what it was a moment ago", path_))
          .fix("somebody else is changing it; try again");
    }
    return refusal(path_, answer, source_.size());
  }
  [[noreturn]] void give_up() { throw refused(finish()); }

  /// The next line that begins with `word`, without it.
  std::string answer_to(std::string_view word, const Deadline& deadline) {
    const auto mark = fmt::format("\n{} ", word);
    for (;;) {
      const auto said = channel_->output();
      const auto at = said.find(mark, read_);
      const auto end = at == std::string_view::npos ? at : said.find('\n', at + mark.size());
      if (end != std::string_view::npos) {
        read_ = end;
        return std::string(said.substr(at + mark.size(), end - at - mark.size()));
      }
      if (channel_->ended()) {
        give_up();
      }
      if (deadline.expired()) {
        throw Error(ErrorKind::failed, "guest-timeout", fmt::format("write {}: no answer within the time allowed", path_));
      }
      channel_->await_output(1000ms);
    }
  }

  std::uint64_t part_found() {
    const auto text = answer_to("part", Deadline::in(30s));
    std::uint64_t bytes = 0;
    std::from_chars(text.data(), text.data() + text.size(), bytes);
    return bytes;
  }

  /// How many bytes of a part of `have` bytes are those of the source, by the checksums of both sides. Makes a new part
  /// when none is.
  std::uint64_t prove(std::uint64_t have) {
    const auto whole = static_cast<std::size_t>(have / Feed::segment_bytes);
    std::size_t asked = 0, proven = 0;
    std::vector<std::string> sums(whole);
    const auto right = [&](std::size_t segment) {
      while (asked < whole && asked < segment + checks_at_once) {
        tell(fmt::format("check {}", asked++));
      }
      const auto own = feed_.sum_now(segment, Feed::segment_bytes);
      while (sums[segment].empty()) {
        take_sum(sums, time_for(Feed::segment_bytes));
      }
      return sums[segment] == own;
    };
    while (proven < whole && right(proven)) {
      ++proven;
    }
    // Sums that were asked for must not be taken for those of what is sent now.
    while (std::count(sums.begin(), sums.begin() + static_cast<std::ptrdiff_t>(asked), "") > 0) {
      take_sum(sums, time_for(Feed::segment_bytes));
    }
    auto bytes = proven * Feed::segment_bytes;
    if (proven == whole && have > bytes) {
      tell(fmt::format("tail {}", whole));
      const auto own = feed_.sum_now(whole, have - bytes);
      if (answer_to("sum tail", time_for(Feed::segment_bytes)) == own) {
        bytes = have;
      }
    }
    if (bytes == 0) {
      tell("new");
      while (channel_->output().find("\nready\n", read_) == std::string_view::npos) {
        if (channel_->ended()) {
          give_up();
        }
        channel_->await_output(1000ms);
      }
    }
    return bytes;
  }

  void take_sum(std::vector<std::string>& sums, const Deadline& deadline) {
    const auto text = answer_to("sum", deadline);
    std::size_t segment = 0;
    const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), segment);
    if (fault != std::errc{} || segment >= sums.size()) {
      throw Error(ErrorKind::failed, "guest-unreadable", fmt::format("{}: the guest answered 'sum {}'", path_, excerpt(text)));
    }
    sums[segment] = text.substr(std::min<std::size_t>(static_cast<std::size_t>(end - text.data()) + 1, text.size()));
    if (sums[segment].size() != 64) {
      throw Error(ErrorKind::failed, "transfer-unverified",
                  fmt::format("{}: the guest's shasum gave no checksum but '{}'", path_, excerpt(sums[segment])));
    }
  }

  void send(std::uint64_t from) {
    SftpFile file(session_, part_, Deadline::in(30s));
    Arrived arrived(feed_, from);
    feed_.start(from);
    std::deque<Lane> lanes;
    for (unsigned i = 1; how_.connect && i < how_.connections; ++i) {
      lanes.emplace_back(how_, part_, feed_, arrived);
    }
    try {
      pump(file, arrived, lanes, first_segment(from));
    } catch (...) {
      feed_.stop();
      throw;
    }
    file.close(Deadline::in(30s));
    if (how_.progress) {
      how_.progress(source_.size(), source_.size());
    }
  }

  [[nodiscard]] std::size_t first_segment(std::uint64_t from) const {
    return from == source_.size() ? feed_.segments() : static_cast<std::size_t>(from / Feed::segment_bytes);
  }

  /// The guest copies segments from the share, several at a time, while this side only hashes.
  void pull(std::uint64_t from) {
    feed_.start_hashing();
    std::vector<std::string> sums(feed_.segments());
    std::size_t asked = first_segment(from), busy = 0, verified = asked;
    auto deadline = time_for(pulls_at_once * Feed::segment_bytes);
    while (verified < sums.size()) {
      for (; busy < pulls_at_once && asked < sums.size(); ++busy) {
        tell(fmt::format("pull {}", asked++));
      }
      channel_->await_output(20ms);
      // Nothing is handed out, but a source that cannot be read is told here.
      (void)feed_.take(0ms);
      require_share();
      for (; busy > 0 && has_sum(); --busy) {
        take_sum(sums, time_for(Feed::segment_bytes));
        deadline = time_for(pulls_at_once * Feed::segment_bytes);
      }
      const auto compared = compare_all(sums);
      verified += compared;
      if (compared > 0 && how_.progress) {
        how_.progress(std::min(verified * Feed::segment_bytes, source_.size()), source_.size());
      }
      if (channel_->ended()) {
        give_up();
      }
      if (deadline.expired()) {
        throw Error(ErrorKind::failed, "guest-timeout", fmt::format("write {}: the copy from the share came to a halt", path_));
      }
    }
  }

  /// Throws when the guest could not copy a segment.
  void require_share() {
    const auto said = channel_->output();
    const auto at = said.find("\nlost ", read_);
    if (at == std::string_view::npos || said.find('\n', at + 1) == std::string_view::npos) {
      return;
    }
    auto why = answer_to("lost", Deadline::in(1s));
    const auto blank = why.find(' ');
    auto refused = refusal(path_, {fmt::format("short {}\n", why.substr(0, blank)), 0, ""}, source_.size());
    if (refused.id() == "guest-disk-full") {
      throw refused;
    }
    throw Error(ErrorKind::failed, "share-unreadable", fmt::format("the guest cannot copy {} to {}", excerpt(how_.shared), path_))
        .note("the guest said: " + excerpt(why.substr(std::min(blank, why.size()))))
        .fix("send it over SSH: transfer: ssh");
  }

  void pump(SftpFile& file, Arrived& arrived, std::deque<Lane>& lanes, std::size_t verified) {
    std::vector<std::string> sums(feed_.segments());
    std::size_t checking = 0;
    sys::Stopwatch told;
    while (verified < sums.size()) {
      for (const auto& lane : lanes) {
        lane.require_well();
      }
      while (checking < checks_at_once) {
        const auto segment = arrived.next_complete();
        if (!segment) {
          break;
        }
        tell(fmt::format("check {}", *segment));
        ++checking;
      }
      if (auto block = feed_.take(checking > 0 ? 0ms : 20ms)) {
        write(file, *block);
        arrived.add(block->offset, block->bytes.size());
        feed_.give_back(std::move(*block));
      } else if (checking > 0) {
        channel_->await_output(20ms);
      } else {
        sys::check_interrupt();
      }
      while (checking > 0 && has_sum()) {
        take_sum(sums, time_for(Feed::segment_bytes));
        --checking;
      }
      verified += compare_all(sums);
      if (channel_->ended()) {
        give_up();
      }
      if (how_.progress && told.elapsed() >= 100ms) {
        how_.progress(arrived.total(), source_.size());
        told = {};
      }
    }
  }

  bool has_sum() {
    const auto said = channel_->output();
    const auto at = said.find("\nsum ", read_);
    return at != std::string_view::npos && said.find('\n', at + 1) != std::string_view::npos;
  }

  /// Compares what came of the guest's sums with our own, where those are known yet; how many it did.
  std::size_t compare_all(std::vector<std::string>& sums) {
    std::size_t compared = 0;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      compared += compare(sums[i], i) ? 1 : 0;
    }
    return compared;
  }

  bool compare(std::string& sum, std::size_t segment) {
    const auto own = feed_.sum(segment);
    if (sum.empty() || own.empty()) {
      return false;
    }
    if (sum != own) {
      throw Error(ErrorKind::failed, "transfer-corrupt",
                  fmt::format("{} arrived damaged: of the bytes from {} on, the guest read back SHA-256 {}", path_,
                              segment * Feed::segment_bytes, excerpt(sum)))
          .fix("try again; if it stays so, check the guest's disk");
    }
    sum.clear();
    return true;
  }

  /// A refused write has no reason of its own in this protocol; the free space tells whether the disk is full.
  void write(SftpFile& file, const Block& block) try { file.write_at(block.offset, block.bytes); } catch (const Error& error) {
    if (error.id() != "guest-write-refused") {
      throw;
    }
    tell("free");
    throw refusal(path_, {fmt::format("short {}\n", answer_to("free", Deadline::in(30s))), 0, error.message()}, source_.size());
  }

  Session& session_;
  const SourceFile& source_;
  const std::string path_, part_;
  const Sending& how_;
  Feed feed_;
  std::unique_ptr<Session::Channel> channel_;
  std::size_t read_ = 0;  ///< of the guest's words, up to here
};

}  // namespace

Sent Transfer::put_large(const sys::fs::path& source, const std::string& path, unsigned mode, const std::optional<FileState>& before,
                         Former former, const Sending& how) {
  require_plain_path(path);
  const SourceFile file(source);
  return Upload(session_, file, path, how).go(mode, before, former);
}

}  // namespace lumelift
