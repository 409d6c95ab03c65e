#include "remote/kex.hpp"

#include <fmt/format.h>
#include <libssh2.h>

#include <cstring>
#include <vector>

#include "host/sys/excerpt.hpp"
#include "remote/session_state.hpp"

namespace lumelift {
namespace {

constexpr unsigned char kexinit = 20;
constexpr std::size_t cookie_bytes = 16;

/// Cuts big-endian numbers and strings off the front of foreign bytes.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}
  std::optional<std::string_view> take(std::size_t count) {
    if (count > rest_.size()) {
      return std::nullopt;
    }
    const auto piece = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return piece;
  }
  std::optional<std::size_t> number() {
    const auto bytes = take(4);
    if (!bytes) {
      return std::nullopt;
    }
    std::size_t value = 0;
    for (const char byte : *bytes) {
      value = (value << 8) | static_cast<unsigned char>(byte);
    }
    return value;
  }
  std::optional<std::string_view> string() {
    const auto length = number();
    return length ? take(*length) : std::nullopt;
  }

 private:
  std::string_view rest_;
};

std::vector<std::string_view> names(std::string_view list) {
  std::vector<std::string_view> all;
  while (!list.empty()) {
    const auto comma = list.find(',');
    all.push_back(list.substr(0, comma));
    list.remove_prefix(comma == std::string_view::npos ? list.size() : comma + 1);
  }
  return all;
}

/// The bytes behind the greeting line "SSH-2.0-…", or nothing.
std::optional<std::string_view> after_greeting(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto end = bytes.find('\n');
    if (end == std::string_view::npos) {
      return std::nullopt;
    }
    const bool is_greeting = bytes.starts_with("SSH-");
    bytes.remove_prefix(end + 1);
    if (is_greeting) {
      return bytes;
    }
  }
  return std::nullopt;
}

std::string supported(LIBSSH2_SESSION* session, int method) {
  const char** list = nullptr;
  const int count = libssh2_session_supported_algs(session, method, &list);
  std::string joined;
  for (int i = 0; i < count; ++i) {
    joined += (i > 0 ? "," : "") + std::string(list[i]);
  }
  if (list != nullptr) {
    libssh2_free(session, static_cast<void*>(list));
  }
  return joined;
}

std::optional<Error> mismatch(LIBSSH2_SESSION* session, const KexOffer& theirs) {
  struct Row {
    const char* what;
    int method;
    const std::string& offered;
  };
  const Row rows[] = {{"key exchange", LIBSSH2_METHOD_KEX, theirs.kex},
                      {"host key", LIBSSH2_METHOD_HOSTKEY, theirs.host_key},
                      {"cipher", LIBSSH2_METHOD_CRYPT_CS, theirs.cipher_in},
                      {"cipher", LIBSSH2_METHOD_CRYPT_SC, theirs.cipher_out},
                      {"message authentication", LIBSSH2_METHOD_MAC_CS, theirs.mac_in},
                      {"message authentication", LIBSSH2_METHOD_MAC_SC, theirs.mac_out}};
  for (const auto& row : rows) {
    const auto ours = supported(session, row.method);
    if (share_a_name(ours, row.offered)) {
      continue;
    }
    return Error(ErrorKind::failed, "guest-kex-mismatch",
                 fmt::format("the guest's SSH server and libssh2 {} share no {} algorithm", libssh2_version(0), row.what))
        .note("ours:   " + ours)
        .note("theirs: " + row.offered)
        .fix("allow one of ours in the guest's sshd_config, or build lumelift with a newer libssh2");
  }
  return std::nullopt;
}

/// Why nc got nowhere, by its own words.
Error carrier_error(std::string_view said) {
  const auto holds = [&](std::string_view part) { return said.find(part) != std::string_view::npos; };
  const char* id = holds("refused") ? "guest-refused" : holds("timed out") || said.empty() ? "guest-silent" : "guest-unreachable";
  Error error(ErrorKind::failed, id, "nc found no SSH server of the guest");
  if (!said.empty()) {
    error.note("nc said: " + excerpt(said));
  }
  return error.fix("wait for the guest to boot, and see that Remote Login is on in it");
}

}  // namespace

std::optional<KexOffer> read_offer(std::string_view first_bytes) {
  const auto packets = after_greeting(first_bytes);
  if (!packets) {
    return std::nullopt;
  }
  Reader reader(*packets);
  if (!reader.number()) {
    return std::nullopt;
  }
  const auto head = reader.take(2);
  if (!head || static_cast<unsigned char>((*head)[1]) != kexinit || !reader.take(cookie_bytes)) {
    return std::nullopt;
  }
  KexOffer offer;
  for (auto* list : {&offer.kex, &offer.host_key, &offer.cipher_in, &offer.cipher_out, &offer.mac_in, &offer.mac_out}) {
    const auto text = reader.string();
    if (!text) {
      return std::nullopt;
    }
    *list = *text;
  }
  return offer;
}

std::vector<Algorithm> agreed_algorithms(Session::State& state) {
  const auto theirs = read_offer(state.greeting).value_or(KexOffer{});
  struct Kind {
    const char* what;
    int method;
    const std::string& offered;
  };
  const Kind kinds[] = {{"key exchange", LIBSSH2_METHOD_KEX, theirs.kex},
                        {"host key", LIBSSH2_METHOD_HOSTKEY, theirs.host_key},
                        {"cipher", LIBSSH2_METHOD_CRYPT_SC, theirs.cipher_out},
                        {"message authentication", LIBSSH2_METHOD_MAC_SC, theirs.mac_out}};
  std::vector<Algorithm> all;
  for (const auto& kind : kinds) {
    const char* chosen = libssh2_session_methods(state.ssh, kind.method);
    all.push_back({kind.what, chosen == nullptr ? "" : chosen, supported(state.ssh, kind.method), kind.offered});
  }
  return all;
}

void prefer_host_key(LIBSSH2_SESSION* session, std::string_view kind) {
  const auto ours = supported(session, LIBSSH2_METHOD_HOSTKEY);
  if (kind.empty() || !share_a_name(ours, kind)) {
    return;
  }
  std::string order(kind);
  for (const auto name : names(ours)) {
    if (name != kind) {
      order += ',' + std::string(name);
    }
  }
  libssh2_session_method_pref(session, LIBSSH2_METHOD_HOSTKEY, order.c_str());
}

bool share_a_name(std::string_view ours, std::string_view theirs) {
  for (const auto mine : names(ours)) {
    for (const auto other : names(theirs)) {
      if (mine == other) {
        return true;
      }
    }
  }
  return false;
}

Error handshake_error(Session::State& state, long rc) {
  const std::string_view greeting = state.greeting;
  if (state.route.carrier && greeting.empty()) {
    const auto said = state.route.carrier->said();
    if (said.find("succeeded") == std::string::npos) {
      return carrier_error(said);
    }
  }
  if (const auto offer = read_offer(greeting)) {
    if (auto error = mismatch(state.ssh, *offer)) {
      return *error;
    }
  }
  const bool ended = state.lost(rc);
  std::string what;
  if (greeting.starts_with("HTTP/")) {
    what = "a web server answers there, not an SSH server";
  } else if (greeting.starts_with("Exceeded MaxStartups")) {
    what = "its SSH server has as many logins under way as it allows (MaxStartups)";
  } else if (greeting.starts_with("Not allowed at this time")) {
    what = "its SSH server shuts us out for some seconds after failed logins (PerSourcePenalties)";
  } else if (!greeting.empty() && greeting.find("SSH-") == std::string_view::npos) {
    what = fmt::format("what answers there is not an SSH server; it said: {}", greeting.substr(0, 200));
  } else if (rc == LIBSSH2_ERROR_SOCKET_TIMEOUT) {
    what = greeting.empty() ? "the connection was accepted and then nothing came for 15 s"
                            : "the server stopped answering in the middle of the key exchange";
  } else if (ended) {
    what = fmt::format("the connection ended before keys were exchanged ({})",
                       state.io_error != 0 ? std::strerror(state.io_error) : "closed by the guest");
  } else {
    what = fmt::format("{} (libssh2 {})", state.library_message(), rc);
  }
  Error error(ErrorKind::failed, "guest-handshake", "no SSH session with the guest: " + what);
  if (!state.farewell.empty()) {
    error.note("the server said: " + state.farewell);
  }
  error.fix("a guest that is still booting does this for a while; otherwise check address and port");
  return error;
}

}  // namespace lumelift
