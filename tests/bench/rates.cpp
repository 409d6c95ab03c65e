// How fast one connection of the linked libssh2 moves bytes into a guest, by the ways there are: rates HOST PORT USER
// KEY FILE MEGABYTES FILE is written in the guest. Prints one line for each way; the docs say which one the product
// takes.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <vector>

#include "remote/guest.hpp"
#include "remote/sftp.hpp"

using namespace lumelift;
using namespace std::chrono_literals;

namespace {

constexpr int rounds = 5;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void by_sftp(Session& session, const std::string& path, const std::string& block, std::uint64_t bytes) {
  SftpFile file(session, path, sys::Deadline::in(10s));
  for (std::uint64_t at = 0; at < bytes; at += block.size()) {
    file.write_at(at, std::as_bytes(std::span(block)));
  }
  file.close(sys::Deadline::in(10s));
}

void by_stream(Session& session, const std::string& path, const std::string& block, std::uint64_t bytes) {
  const auto channel = session.open_exec("/bin/cat > " + quote(path), sys::Deadline::in(10s));
  for (std::uint64_t at = 0; at < bytes; at += block.size()) {
    channel->write_all(std::as_bytes(std::span(block)));
  }
  (void)channel->finish(sys::Deadline::in(60s));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) {
    return 2;
  }
  const auto deadline = sys::Deadline::in(20s);
  const std::uint64_t bytes = std::stoull(argv[6]) << 20;
  Session session(connect_tcp(argv[1], std::stoi(argv[2]), deadline), deadline);
  session.authenticate({.user = argv[3], .key_file = argv[4]}, deadline);
  struct Way {
    const char* name;
    std::size_t block;
    decltype(&by_sftp) send;
    std::vector<double> rates;
  };
  std::vector<Way> ways;
  for (const std::size_t block : {1, 2, 4, 8}) {
    ways.push_back({"sftp", block << 20, &by_sftp, {}});
  }
  ways.push_back({"exec", 1u << 20, &by_stream, {}});
  (void)session.exec(": > " + quote(argv[5]), deadline);
  for (int round = 0; round < rounds; ++round) {
    for (auto& way : ways) {
      const std::string block(way.block, 'x');
      const sys::Stopwatch watch;
      way.send(session, argv[5], block, bytes);
      way.rates.push_back(static_cast<double>(bytes) / 1000.0 / static_cast<double>(std::max<long>(watch.elapsed().count(), 1)));
    }
  }
  for (const auto& way : ways) {
    std::fputs(fmt::format("{}  {} MiB blocks  {:4.0f} MB/s  ({:.0f} to {:.0f})\n", way.name, way.block >> 20, median(way.rates),
                           *std::min_element(way.rates.begin(), way.rates.end()), *std::max_element(way.rates.begin(), way.rates.end()))
                   .c_str(),
               stdout);
  }
}
